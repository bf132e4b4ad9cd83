"""Two texts, side by side where there is room and else one below the other; a line is cut, never folded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from dflash_console.copies import Side
from dflash_console.ui.differences import Difference, Pair, spans
from dflash_console.ui.drawing.copying import number
from dflash_console.ui.drawing.line import Ink, Line, Piece, Row, cut_middle, safe
from dflash_console.ui.opened import Opens, Shown

__all__ = ["SIDE_BY_SIDE", "DiffRows", "draw_diff_sides"]

SIDE_BY_SIDE = 100
"""Cells from which two texts stand beside each other."""
_TAB = 4


def draw_diff_sides(old: Side, new: Side, width: int) -> Line:
    """What stands in each column, or with each sign."""
    row = Row(width)
    if width < SIDE_BY_SIDE:
        half = max(8, width // 2 - 3)
        row.add(*_sign("left")).add(cut_middle(safe(str(old)), half), "strong").add("  ")
        return row.add(*_sign("right")).add(cut_middle(safe(str(new)), half), "strong").line()
    half = (width - 3) // 2
    row.add("  ").add(*_sign("left")).add(cut_middle(safe(str(old)), half - 4), "strong").to(half)
    row.add(" │   ", "edge_faint").add(*_sign("right"))
    return row.add(cut_middle(safe(str(new)), max(8, row.room)), "strong").line()


class DiffRows(Sequence[Shown]):
    """The lines of a difference; a change's first line can be gone to."""

    def __init__(self, difference: Difference, width: int, *, is_whole: bool, pan: int) -> None:
        pairs = difference.pairs if is_whole else difference.folded
        self._width, self._pan = width, pan
        last = max((max(pair.left_number, pair.right_number) for pair in pairs), default=0)
        self._digits = max(3, len(str(last)))
        self._is_beside = width >= SIDE_BY_SIDE
        self._rows: list[tuple[Pair, str, int]] = []
        change = 0
        before = "same"
        for pair in pairs:
            is_start = pair.kind not in ("same", "gap") and before in ("same", "gap")
            change += is_start
            self._rows += self._parts(pair, change if is_start else 0)
            before = pair.kind
        if not self._is_beside:
            self._rows = _grouped(self._rows)
        self.starts = [at for at, (_, _, start) in enumerate(self._rows) if start]
        """The rows at which changes start."""

    def _parts(self, pair: Pair, change: int) -> list[tuple[Pair, str, int]]:
        if self._is_beside or pair.kind in ("same", "gap"):
            return [(pair, "both", change)]
        if pair.kind == "changed":
            return [(pair, "left", change), (pair, "right", 0)]
        return [(pair, pair.kind, change)]

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> Shown: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Shown]: ...
    def __getitem__(self, at: int | slice) -> Shown | Sequence[Shown]:
        if isinstance(at, slice):
            return [self._drawn(row) for row in self._rows[at]]
        return self._drawn(self._rows[at])

    def _drawn(self, row: tuple[Pair, str, int]) -> Shown:
        pair, part, change = row
        if pair.kind == "gap":
            words = f"{' ' * self._digits} ⋯ {number(pair.skipped)} equal lines"
            return Shown(Row(self._width).add(words, "faint").line())
        opens = Opens("change", "", str(change)) if change else None
        if not self._is_beside:
            return Shown(self._unified(pair, part), opens)
        half = (self._width - 3) // 2
        left, right = self._half(pair, "left", half), self._half(pair, "right", half)
        whole = Row(self._width).extend(left).to(half).add(" │ ", "edge_faint").extend(right)
        return Shown(whole.line(), opens)

    def _unified(self, pair: Pair, part: str) -> Line:
        is_left = part == "left"
        row = Row(self._width)
        row.add(f"{pair.left_number if part != 'right' else pair.right_number:>{self._digits}} ", "faint")
        row.add(*_sign("same" if part == "both" else "left" if is_left else "right"))
        return row.extend(self._text(pair, "left" if part != "right" else "right", row.room)).line()

    def _half(self, pair: Pair, side: str, width: int) -> list[Piece]:
        count = pair.left_number if side == "left" else pair.right_number
        if not count:
            return []
        row = Row(width).add(f"{count:>{self._digits}} ", "faint")
        row.add(*_sign("same" if pair.kind == "same" else side))
        return list(row.extend(self._text(pair, side, row.room)).line())

    def _text(self, pair: Pair, side: str, room: int) -> list[Piece]:
        text = pair.left if side == "left" else pair.right
        if pair.kind == "same":
            return self._cut([(text, "dim")], room)
        ink: Ink = "bad" if side == "left" else "ok"
        if pair.kind != "changed":
            return self._cut([(text, ink)], room)
        start, left_end, right_end = spans(pair.left, pair.right)
        end = left_end if side == "left" else right_end
        return self._cut([(text[:start], "text"), (text[start:end], ink), (text[end:], "text")], room)

    def _cut(self, pieces: Sequence[Piece], room: int) -> list[Piece]:
        """From the panned column on; tabs are spaces, and of a very long line only what may be seen is looked at."""
        skip, left, at = self._pan, self._pan + room + 1, 0
        shown: list[Piece] = []
        for text, ink in pieces:
            text = safe(text[: max(0, left)].replace("\t", " " * _TAB))
            left -= len(text)
            kept = text[max(0, skip - at) :]
            at += len(text)
            if kept:
                shown.append((kept, ink))
        return shown


def _sign(side: str) -> Piece:
    if side == "same":
        return "  ", "text"
    return ("− ", "bad") if side == "left" else ("+ ", "ok")


def _grouped(rows: list[tuple[Pair, str, int]]) -> list[tuple[Pair, str, int]]:
    """Of a change, all lines of the left come before those of the right."""
    grouped: list[tuple[Pair, str, int]] = []
    block: list[tuple[Pair, str, int]] = []

    def close() -> None:
        start = next((change for _, _, change in block if change), 0)
        ordered = [row for row in block if row[1] == "left"] + [row for row in block if row[1] == "right"]
        grouped.extend((pair, part, start if at == 0 else 0) for at, (pair, part, _) in enumerate(ordered))
        block.clear()

    for row in rows:
        if row[1] == "both":
            close()
            grouped.append(row)
        else:
            block.append(row)
    close()
    return grouped
