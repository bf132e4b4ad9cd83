"""Lines of styled pieces, measured in terminal cells, with every remote character made harmless."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from rich.cells import cell_len

from dflash_console.harmless import made_harmless

__all__ = [
    "MOST_LINES",
    "Ink",
    "Line",
    "Piece",
    "Row",
    "cells_of",
    "columns",
    "cut",
    "cut_left",
    "cut_middle",
    "fade",
    "fits",
    "flow",
    "plain",
    "safe",
    "wrap",
]

Ink = Literal[
    "text",
    "strong",
    "dim",
    "faint",
    "accent",
    "label",
    "title",
    "title_on",
    "ok",
    "warn",
    "bad",
    "alarm",
    "note",
    "bar",
    "history",
    "track",
    "edge",
    "edge_on",
    "edge_warn",
    "edge_bad",
    "edge_faint",
    "badge",
    "flag",
]
"""What a piece of text means. `alarm` is a bold `bad`; `flag` and `badge` stand on a coloured ground."""

Piece: TypeAlias = tuple[str, Ink]
Line: TypeAlias = tuple[Piece, ...]

MOST_LINES = 200
"""Of one wrapped text: as many as all of the longest value takes on a narrow screen."""

_FADED: dict[Ink, Ink] = {"strong": "dim", "label": "dim", "title": "dim", "text": "dim"}
_KEPT: frozenset[Ink] = frozenset({"title_on", "edge", "edge_on", "edge_warn", "edge_bad", "edge_faint"})


def columns(text: str) -> int:
    """How many terminal cells `text` takes: wide characters count two, combining marks none."""
    return len(text) if text.isascii() else cell_len(text)


def safe(text: str) -> str:
    """`text` with everything that a terminal could act on, or that can't be seen, shown as `·`.

    Remote text is cleaned where it arrives; this is the last door before the terminal.
    """
    return made_harmless(text, lambda _: "·")


def fits(text: str, cells: int) -> bool:
    """Whether `text` takes at most so many cells; of a much longer one only the beginning is looked at."""
    if text.isascii() or len(text) <= 4 * cells:
        return columns(text) <= cells
    return _fitting(text, cells) == len(text)


def _fitting(text: str, cells: int, start: int = 0) -> int:
    """How many characters of `text` from `start` on fit into `cells`."""
    if text.isascii():
        return max(0, min(cells, len(text) - start))
    left = cells
    for at in range(start, len(text)):
        left -= columns(text[at])
        if left < 0:
            return at - start
    return len(text) - start


def cut(text: str, cells: int) -> str:
    """`text` in at most `cells`, its end replaced by `…` when it is longer."""
    if fits(text, cells):
        return text
    return text[: _fitting(text, cells - 1)] + "…" if cells > 0 else ""


def cut_left(text: str, cells: int) -> str:
    """`text` in at most `cells`, its beginning replaced by `…`: for paths, whose end tells more."""
    if fits(text, cells):
        return text
    if cells < 1:
        return ""
    start = len(text) - min(len(text), cells - 1)
    over = columns(text[start:]) - (cells - 1)
    while over > 0:
        over -= columns(text[start])
        start += 1
    return "…" + text[start:]


def cut_middle(text: str, cells: int) -> str:
    """`text` in at most `cells`, with `…` in the middle when it is longer."""
    if fits(text, cells):
        return text
    if cells < 5:
        return cut(text, cells)
    head = _fitting(text, (cells - 1) // 2)
    return text[:head] + cut_left(text[head:], cells - columns(text[:head]))


def plain(line: Line) -> str:
    """The bare text of a line."""
    return "".join(text for text, _ in line)


def cells_of(line: Line) -> int:
    """How many terminal cells a line takes."""
    return sum([len(text) if text.isascii() else cell_len(text) for text, _ in line])


def fade(line: Line) -> Line:
    """The same words without their colours: for a picture that is no longer fresh."""
    return tuple((text, ink if ink in _KEPT else _FADED.get(ink, "faint")) for text, ink in line)


def wrap(text: str, cells: int, first: int | None = None, most: int = MOST_LINES) -> list[str]:
    """`text` in lines of at most `cells`, the first one of at most `first`; its own line breaks are kept.

    Lines are broken at spaces, a path that is longer than a line behind a `/`, and other words where it must be.
    Of a text that takes more than `most` lines the last one ends in `…`.
    """
    lines: list[str] = []
    for paragraph in text.splitlines():
        rest, start = safe(paragraph).strip(), 0
        while True:
            room = cells if lines or first is None else first
            fitting = _fitting(rest, room, start)
            if len(lines) == most:
                last = cells if most > 1 or first is None else first
                lines[-1] = lines[-1][: _fitting(lines[-1], last - 1)] + "…"
                return lines
            if start + fitting >= len(rest):
                lines.append(rest[start:])
                break
            end = _split(rest, start, max(1, fitting))
            lines.append(rest[start:end].rstrip())
            start = end
            while rest[start] == " ":
                start += 1
    return lines or [""]


def _split(text: str, start: int, fitting: int) -> int:
    """Where to break a text of which, from `start` on, only so many characters fit."""
    at_space = text.rfind(" ", start + 1, start + fitting + 1)
    if at_space > 0:
        return at_space
    at_slash = text.rfind("/", start + 1, start + fitting)
    return at_slash + 1 if at_slash > 0 else start + fitting


class Row:
    """Builds one line of at most `limit` cells; what does not fit is cut with `…`."""

    __slots__ = ("_pieces", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._pieces: list[Piece] = []

    @property
    def room(self) -> int:
        """Cells that are left."""
        return self.limit - self.used

    def add(self, text: str, ink: Ink = "text") -> Row:
        """Puts `text` at the end."""
        room = self.limit - self.used
        if not text or room <= 0:
            return self
        if text.isascii() and text.isprintable() and len(text) <= room:
            cells = len(text)
        else:
            text = cut(safe(text), room)
            cells = columns(text)
        self._pieces.append((text, ink))
        self.used += cells
        return self

    def extend(self, pieces: Iterable[Piece]) -> Row:
        """Puts several pieces at the end."""
        for text, ink in pieces:
            self.add(text, ink)
        return self

    def item(self, text: str, ink: Ink = "text", gap: int = 2) -> bool:
        """Puts `text` after a gap if all of it fits; says whether it did."""
        if not text:
            return True
        text = safe(text)
        if not fits(text, self.limit - self.used - gap):
            return False
        self.add(" " * gap)
        self.add(text, ink)
        return True

    def to(self, column: int) -> Row:
        """Fills with spaces up to `column`."""
        if column > self.used:
            self.add(" " * (column - self.used))
        return self

    def field(
        self, text: str, cells: int, ink: Ink = "text", align: Literal["left", "right"] = "left"
    ) -> Row:
        """Puts `text` into exactly `cells`, cut or padded."""
        text = cut(safe(text), cells)
        padding = " " * (cells - columns(text))
        return self.add(padding + text if align == "right" else text + padding, ink)

    def right(self, *pieces: Piece, gap: int = 2) -> bool:
        """Puts `pieces` at the right end if there is room for them; says whether there was."""
        cells = sum(columns(safe(text[: self.limit + 1])) for text, _ in pieces)
        if self.used + gap + cells > self.limit:
            return False
        self.to(self.limit - cells).extend(pieces)
        return True

    def line(self) -> Line:
        """The line as built so far."""
        return tuple(self._pieces)


def flow(first: Row, items: Iterable[Piece], indent: int, gap: int = 2) -> list[Row]:
    """The rows of `first` with every item behind it; one that does not fit starts a new row, indented."""
    rows = [first]
    for text, ink in items:
        if not text or rows[-1].item(text, ink, gap):
            continue
        if rows[-1].used > indent:
            rows.append(Row(first.limit).add(" " * indent))
        rows[-1].add(text, ink)
    return rows
