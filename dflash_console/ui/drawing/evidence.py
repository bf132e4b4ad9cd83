"""The whole evidence of one check, every line of it as it came, long ones folded."""

from __future__ import annotations

from collections.abc import Iterator

from dflash_console.ui.drawing.line import Line, Row, columns, cut_middle, safe, wrap
from dflash_console.ui.drawing.page import heading
from dflash_console.ui.drawing.verdict_lines import ago, stale_words
from dflash_console.ui.drawing.verdicts import CHECK_MARKS
from dflash_console.ui.drawing.words import clock, plural
from dflash_console.verdict import Check, Verdict

__all__ = ["draw_evidence", "draw_evidence_title", "folded"]

_INDENT = 2
"""Cells before what is left of a folded line."""


def draw_evidence_title(
    host: str,
    venv: str,
    check: Check,
    verdict: Verdict | None,
    width: int,
    wall: float,
    position: str = "",
) -> list[Line]:
    """Three lines: host and environment; check, state, time, and the position in the text; what is to be said of the
    time. `verdict` is None when the check stands in none any more."""
    first = Row(width).add(" ").add(host, "title_on").add("  ")
    first.add(cut_middle(safe(venv), max(1, first.room - 1)), "strong")
    mark, ink = CHECK_MARKS[check.state]
    second = Row(width).add(" ").add(check.name, "label").add("  ").add(f"{mark} {check.state}", ink)
    if verdict is not None and not verdict.waiting:
        words = f"{'deep, ' if verdict.is_deep else ''}{clock(verdict.at)} UTC, {ago(wall - verdict.at)}"
        second.item(words, "dim")
    second.right((position, "dim"), (" ", "dim"))
    third = Row(width).add(" ")
    if verdict is None or verdict.waiting:
        third.add("◌ verifying again; this is what was said before", "dim")
    else:
        third.add(stale_words(verdict, wall), "warn")
    return [first.line(), second.line(), third.line()]


def draw_evidence(check: Check, width: int) -> list[Line]:
    """Detail and evidence, all of it."""
    lines: list[Line] = []
    if check.detail:
        lines += [Row(width).add(part, "strong").line() for part in wrap(check.detail, max(10, width))]
        lines.append(())
    if not check.evidence:
        return [*lines, Row(width).add("there is no more evidence than this", "dim").line()]
    lines.append(heading("EVIDENCE", width, plural(len(check.evidence), "line")))
    for text in check.evidence:
        start, *rest = folded(text, max(_INDENT + 1, width))
        lines.append(((start, "text"),) if start else ())
        lines += [((" " * _INDENT + part, "text"),) for part in rest]
    return lines


def folded(text: str, cells: int) -> list[str]:
    """`text` made harmless, its leading spaces kept, in lines of at most `cells`, all but the first of them shorter by
    an indent; at a space or behind a `/` where one is near the end, so that words stay whole."""
    return list(_folds(safe(text), cells))


def _folds(text: str, cells: int) -> Iterator[str]:
    widths = {} if text.isascii() else {char: columns(char) for char in set(text)}
    if all(width == 1 for width in widths.values()):
        widths = {}
    start, room = 0, cells
    while True:
        end = _end(text, start, room, widths)
        if end >= len(text):
            yield text[start:]
            return
        late = start + (end - start) * 2 // 3
        at_space = text.rfind(" ", late, end + 1)
        if at_space > start:
            yield text[start:at_space]
            start = at_space + 1
        else:
            at_slash = text.rfind("/", late, end)
            end = at_slash + 1 if at_slash > start else end
            yield text[start:end]
            start = end
        room = max(1, cells - _INDENT)


def _end(text: str, start: int, cells: int, widths: dict[str, int]) -> int:
    """Where what fits into `cells` ends; at least one character on."""
    if not widths:
        return start + cells
    at, left = start, cells
    for at in range(start, len(text)):
        left -= widths[text[at]]
        if left < 0:
            return max(at, start + 1)
    return len(text)
