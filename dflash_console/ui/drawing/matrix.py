"""Which environments and which checks stand in the matrix of a host, and which part of it fits on the screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from dflash_console.model import Missing
from dflash_console.ui.drawing.line import columns, cut_left, fits, safe
from dflash_console.ui.drawing.words import REASON_WORDS, last_part, unit_name
from dflash_console.ui.scene import HostScene
from dflash_console.verdict import Check, Verdict, in_order

__all__ = [
    "GAP",
    "Matrix",
    "Place",
    "Plan",
    "Step",
    "column_names",
    "first_place",
    "matrix_of",
    "moved",
    "place_in",
    "plan_matrix",
]

Step: TypeAlias = Literal["left", "right", "up", "down", "first", "last"]

_QUICK = (
    *("python", "origin", "modules", "find_spec", "shadow", "nested", "version", "record", "leftovers"),
    *("bytecode", "links", "copy"),
)
"""Checks that every verification has: their rows stand from the beginning, so that none jumps as answers come."""
_NARROWEST = 12
"""Cells of a column: the longest head, and every state with its mark."""
_WIDEST_OF_MANY = 20
"""Cells that a column may want for a path's last part, when not all paths fit in full."""
GAP = 3
"""Cells before each column, where the cursor's mark stands."""


class Place(NamedTuple):
    """A cell, by the names of its column and its row: it stays the same one while others come and go."""

    venv: str
    check: str


class Matrix(NamedTuple):
    """The environments of a host as columns, the checks as rows."""

    venvs: tuple[str, ...]
    checks: tuple[str, ...]
    verdicts: Mapping[str, Verdict]
    """By environment; without those that were never verified."""
    lacks: Mapping[str, str]
    """Why an environment can't be read, in words."""

    def check(self, place: Place) -> Check | None:
        """What was said of a cell; None as long as nothing was."""
        verdict = self.verdicts.get(place.venv)
        if verdict is None:
            return None
        return next((check for check in verdict.checks if check.name == place.check), None)


class Plan(NamedTuple):
    """The part of a matrix that is on the screen."""

    label: int
    """Cells of the names of the checks."""
    column: int
    """Cells of a column, without the gap before it."""
    left: int
    """The first environment shown."""
    across: int
    """How many environments are shown."""
    top: int
    """The first check shown."""
    rows: int
    """How many checks are shown."""

    def at(self, x: int, row: int) -> tuple[int, int] | None:
        """The column and the row of the matrix in a cell of the screen; None outside. `row` counts from the first
        check shown."""
        across = (x - self.label) // (self.column + GAP)
        if x < self.label or not 0 <= across < self.across or not 0 <= row < self.rows:
            return None
        return self.left + across, self.top + row


def matrix_of(host: HostScene, known: Iterable[str] = ()) -> Matrix:
    """The matrix of a host. `known` are the checks that stood in it before: while answers are awaited they keep
    their rows."""
    venvs: list[str] = []
    lacks: dict[str, str] = {}
    for venv in host.view.snapshot.venvs if host.view.snapshot is not None else ():
        venvs.append(venv.path)
        if isinstance(venv.python, Missing):
            reason = venv.python.missing
            lacks[venv.path] = "not there" if reason == "not_found" else REASON_WORDS[reason]
    verdicts = {verdict.venv: verdict for verdict in host.verdicts}
    return Matrix(
        tuple(dict.fromkeys((*venvs, *verdicts))), _rows(host.verdicts, tuple(known)), verdicts, lacks
    )


def _rows(verdicts: Sequence[Verdict], known: Sequence[str]) -> tuple[str, ...]:
    said = dict.fromkeys(check.name for verdict in verdicts for check in verdict.checks)
    is_waiting = any(verdict.waiting for verdict in verdicts)
    names = dict.fromkeys((*_QUICK, *(name for name in known if is_waiting or name in said), *said))
    return tuple(check.name for check in in_order(tuple(Check(name, "unknown") for name in names)))


def first_place(matrix: Matrix) -> Place | None:
    """Where to look first: what keeps an environment from being ready, else the first cell; None without any."""
    for verdict in matrix.verdicts.values():
        if not verdict.waiting and verdict.reasons:
            return Place(verdict.venv, verdict.reasons[0].name)
    return Place(matrix.venvs[0], matrix.checks[0]) if matrix.venvs else None


def place_in(matrix: Matrix, place: Place | None, before: Matrix | None) -> Place | None:
    """The cell of the cursor: the same as before, or the nearest one where its column or row is gone."""
    if place is None or not matrix.venvs:
        return first_place(matrix)
    return Place(
        _nearest(place.venv, matrix.venvs, before.venvs if before else ()),
        _nearest(place.check, matrix.checks, before.checks if before else ()),
    )


def _nearest(name: str, names: Sequence[str], before: Sequence[str]) -> str:
    if name in names:
        return name
    return names[min(before.index(name) if name in before else 0, len(names) - 1)]


def moved(matrix: Matrix, place: Place, step: Step | int) -> Place:
    """The cell to go to; a number goes so many checks down, or up when it is negative."""
    column, row = matrix.venvs.index(place.venv), matrix.checks.index(place.check)
    if isinstance(step, int):
        row += step
    elif step in ("left", "right"):
        column += 1 if step == "right" else -1
    else:
        row = {"up": row - 1, "down": row + 1, "first": 0, "last": len(matrix.checks) - 1}[step]
    return Place(
        matrix.venvs[max(0, min(column, len(matrix.venvs) - 1))],
        matrix.checks[max(0, min(row, len(matrix.checks) - 1))],
    )


def plan_matrix(matrix: Matrix, width: int, rows: int, place: Place, before: Plan | None) -> Plan:
    """What is shown in `width` cells and at most `rows` rows of checks: whole columns, and the cursor's cell always.

    It moves as little as needed from the plan `before`.
    """
    label = min(max(columns(unit_name(name)) for name in matrix.checks), max(_NARROWEST, width * 2 // 9))
    room, count = width - label, len(matrix.venvs)
    cells = max(_NARROWEST, *(columns(safe(venv[:width])) for venv in matrix.venvs))
    if count * (cells + GAP) > room:
        lasts = max(columns(safe(last_part(venv)[:width])) for venv in matrix.venvs)
        narrow = max(_NARROWEST, min(lasts, _WIDEST_OF_MANY))
        across = max(1, min(count, room // (narrow + GAP)))
        cells = max(1, min(cells, room // across - GAP))
    across = max(1, min(count, room // (cells + GAP)))
    rows = max(1, min(rows, len(matrix.checks)))
    column, row = matrix.venvs.index(place.venv), matrix.checks.index(place.check)
    return Plan(
        label,
        cells,
        _shifted(before.left if before else 0, column, across, count),
        across,
        _shifted(before.top if before else 0, row, rows, len(matrix.checks)),
        rows,
    )


def _shifted(start: int, at: int, shown: int, count: int) -> int:
    start = max(min(start, at), at - shown + 1)
    return max(0, min(start, count - shown))


def column_names(venvs: Sequence[str], cells: int) -> list[str]:
    """Names of environments in at most `cells`: the path, or its last part where that is unique, or the path's end."""
    lasts = Counter(map(last_part, venvs))
    return [_column_name(safe(venv), cells, lasts[last_part(venv)] == 1) for venv in venvs]


def _column_name(venv: str, cells: int, is_last_unique: bool) -> str:
    if fits(venv, cells):
        return venv
    last = last_part(venv)
    return last if is_last_unique and fits(last, cells) else cut_left(venv, cells)
