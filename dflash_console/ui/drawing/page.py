"""Building stones of the host screen: headings, and pairs of a dim word and its value."""

from __future__ import annotations

from collections.abc import Iterable

from dflash_console.model import Missing
from dflash_console.ui.drawing.line import MOST_LINES, Ink, Line, Piece, Row, columns, cut, flow, safe, wrap
from dflash_console.ui.drawing.words import missing_text

__all__ = ["Pair", "heading", "long_pair", "pairs", "titled", "value_of"]

Pair = tuple[str, str, Ink]
"""A word, its value, and the value's ink."""


_GRID = 24
_PAIR_LINES = 12
"""Of a value among others; what may be longer has a place of its own."""


def heading(title: str, width: int, note: str = "") -> Line:
    """The first line of a section."""
    row = Row(width).add(title, "label").add(f"  {note}" if note else "", "dim")
    return row.add("  ").add("─" * max(0, row.room - 2), "edge_faint").line()


def value_of(word: str, value: object, unit: str = "", ink: Ink = "text") -> Pair:
    """A pair for a cell that may hold a reason: the reason is told in words."""
    if isinstance(value, Missing):
        return word, missing_text(value), "dim" if value.missing == "unsupported" else "warn"
    if isinstance(value, bool):
        return word, "yes" if value else "no", ink
    return word, f"{value}{unit}", ink


def pairs(items: Iterable[Pair], width: int, indent: int = 3) -> list[Line]:
    """The pairs one behind the other, in columns that start at multiples of the grid."""
    lines: list[Line] = []
    row = Row(width).add(" " * indent)
    for word, value, ink in items:
        word = cut(word, width // 2)
        cells = columns(word) + 1 + columns(safe(value[: width + 1]))
        start = row.used if row.used == indent else indent + -(-(row.used + 2 - indent) // _GRID) * _GRID
        if row.used > indent and start + cells > width:
            lines.append(row.line())
            row, start = Row(width).add(" " * indent), indent
        if start + cells > width:
            beside = columns(word) + 1 if word else 0
            lines += long_pair(word, value, width, ink, indent, beside, most=_PAIR_LINES)
        else:
            row.to(start).add(f"{word} " if word else "", "dim").add(value, ink)
    return [*lines, row.line()] if row.used > indent else lines


def titled(title: str, facts: Iterable[Piece], width: int) -> list[Line]:
    """What a part is about, whole, and behind it what is to be said of it in short."""
    *above, last = wrap(title, max(10, width - 3))
    lines = [Row(width).add("   ").add(part, "strong").line() for part in above]
    return lines + [row.line() for row in flow(Row(width).add("   ").add(last, "strong"), facts, 5)]


def long_pair(
    word: str,
    value: str,
    width: int,
    ink: Ink = "text",
    indent: int = 3,
    cells: int = 12,
    word_ink: Ink = "dim",
    most: int = MOST_LINES,
) -> list[Line]:
    """A word and a value of any length, wrapped beside it in at most `most` lines."""
    parts = wrap(value, max(10, width - indent - cells), most=most)
    lines = []
    for number, part in enumerate(parts):
        row = Row(width).add(" " * indent).field(word if number == 0 else "", cells, word_ink)
        lines.append(row.add(part, ink).line())
    return lines
