"""The environments tab: the matrix of environments and checks, and below it the cell under the cursor in full."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from dflash_console.ui.drawing.evidence import folded
from dflash_console.ui.drawing.line import Line, Piece, Row, columns, cut_middle, safe, wrap
from dflash_console.ui.drawing.matrix import GAP, Matrix, Place, Plan, column_names
from dflash_console.ui.drawing.verdict_lines import ago, head_words, stale_words
from dflash_console.ui.drawing.verdicts import CHECK_MARKS
from dflash_console.ui.drawing.words import plural, unit_name
from dflash_console.verdict import DEEP_KINDS, Check, Verdict

__all__ = ["DETAIL", "HEAD", "cursor_row", "draw_detail", "draw_matrix", "draw_no_environments"]

HEAD = 2
"""Lines above the first row of checks."""
DETAIL = 5
"""Lines that the detail has at least."""


def draw_matrix(matrix: Matrix, plan: Plan, place: Place, width: int) -> list[Line]:
    """The heads of the columns, and the rows that the plan shows."""
    end = plan.left + plan.across
    venvs = matrix.venvs[plan.left : end]
    at_left, at_right = plan.left > 0, end < len(matrix.venvs)
    position = f"{matrix.venvs.index(place.venv) + 1}/{len(matrix.venvs)}" if at_left or at_right else ""
    names = Row(width).field(f"ENV {position}" if position else "", plan.label, "dim")
    position = f"{matrix.checks.index(place.check) + 1}/{len(matrix.checks)}"
    is_whole = plan.rows == len(matrix.checks)
    words = Row(width).field("CHECK" if is_whole else f"CHECK {position}", plan.label, "dim")
    all_names = column_names(matrix.venvs, plan.column)
    for number, venv in enumerate(venvs):
        is_chosen = venv == place.venv
        name = all_names[plan.left + number]
        names.add("‹" if at_left and number == 0 else " ", "accent").add(
            "▾ " if is_chosen else "  ", "title_on"
        )
        names.field(name, plan.column, "title_on" if is_chosen else "title")
        words.add(" " * GAP)
        text, ink = _head(matrix, venv)
        words.field(text, plan.column, ink)
    if at_right:
        names.right(("›", "accent"), gap=0)
    rows = [
        _check_row(matrix, plan, place, check, width)
        for check in matrix.checks[plan.top : plan.top + plan.rows]
    ]
    return [names.line(), words.line(), *rows]


def cursor_row(matrix: Matrix, plan: Plan, place: Place) -> int:
    """The line of the matrix on which the cursor is."""
    return HEAD + matrix.checks.index(place.check) - plan.top


def _head(matrix: Matrix, venv: str) -> Piece:
    verdict = matrix.verdicts.get(venv)
    if verdict is None and venv in matrix.lacks:
        return f"✗ {matrix.lacks[venv]}", "warn"
    return head_words(verdict)


def _check_row(matrix: Matrix, plan: Plan, place: Place, check: str, width: int) -> Line:
    is_row = check == place.check
    row = Row(width).field(_label(check, plan.label), plan.label, "strong" if is_row else "label")
    for venv in matrix.venvs[plan.left : plan.left + plan.across]:
        row.add(" ▸ " if is_row and venv == place.venv else " " * GAP, "title_on")
        text, ink = _cell(matrix, Place(venv, check))
        row.field(text, plan.column, ink)
    return row.line()


def _label(check: str, cells: int) -> str:
    return cut_middle(safe(unit_name(check)), max(1, cells))


def _cell(matrix: Matrix, place: Place) -> Piece:
    """A state as its mark and its word; where there is none, why."""
    verdict = matrix.verdicts.get(place.venv)
    check = matrix.check(place)
    if check is not None:
        mark, ink = CHECK_MARKS[check.state]
        return f"{mark} {check.state}", "dim" if verdict is not None and verdict.stale else ink
    return ("◌ waiting", "dim") if verdict is not None and verdict.waiting else ("·", "track")


def draw_detail(matrix: Matrix, place: Place, width: int, height: int, wall: float) -> list[Line]:
    """The cell under the cursor: state, environment, age, the whole detail, and as much evidence as fits."""
    verdict, check = matrix.verdicts.get(place.venv), matrix.check(place)
    lines = [_detail_head(matrix, place, width, wall)]
    if verdict is not None and (stale := stale_words(verdict, wall)):
        lines += [Row(width).add(text, "warn").line() for text in wrap(stale, width)[:2]]
    if check is None:
        text = _why_nothing(verdict, matrix.lacks.get(place.venv, ""), place.check)
        return [*lines, *(Row(width).add(part, "dim").line() for part in wrap(text, width))][:height]
    room = max(1, height - len(lines))
    body = list(islice(_said(check, width), room + 1))
    if len(body) > room:
        count = plural(len(check.evidence), "line")
        body[room - 1 :] = [Row(width).add(f"enter: all of it, {count} of evidence", "faint").line()]
    return lines + body


def _said(check: Check, width: int) -> Iterator[Line]:
    for part in wrap(check.detail, width) if check.detail else ():
        yield Row(width).add(part, "text").line()
    for text in check.evidence:
        for part in folded(text, max(1, width - 2)):
            yield Row(width).add("  ").add(part, "dim").line()


def _detail_head(matrix: Matrix, place: Place, width: int, wall: float) -> Line:
    verdict, check = matrix.verdicts.get(place.venv), matrix.check(place)
    row = (
        Row(width).add("── ", "edge_faint").add(cut_middle(safe(place.check), width // 2), "label").add("  ")
    )
    if check is not None:
        mark, ink = CHECK_MARKS[check.state]
        row.add(f"{mark} {check.state}", ink).add("  ")
    tail = ""
    if verdict is not None and not verdict.waiting:
        tail = f" {'deep, ' if verdict.is_deep else ''}{ago(wall - verdict.at)} "
    elif verdict is not None:
        tail = " verifying "
    room = row.room - columns(tail) - 5
    row.add(cut_middle(safe(place.venv), max(1, room)), "strong").add(" ")
    row.add("─" * max(0, row.room - columns(tail) - 2), "edge_faint").add(tail, "dim")
    return row.add("─" * row.room, "edge_faint").line()


def _why_nothing(verdict: Verdict | None, lack: str, name: str) -> str:
    """Why nothing is said of a check."""
    if verdict is None:
        return f"{lack}; not verified: v" if lack else "not verified: v"
    if verdict.waiting:
        return f"waiting for {', '.join(verdict.waiting)}"
    if name.partition(" ")[0] not in DEEP_KINDS:
        return "does not apply here"
    if not verdict.is_deep:
        return "not looked at; V verifies deeply"
    return "nothing was said of this"


def draw_no_environments(width: int, words: str) -> list[Line]:
    """What stands in place of a matrix without columns."""
    return [(), *(Row(width).add("  ").add(text, "dim").line() for text in wrap(words, max(10, width - 4)))]
