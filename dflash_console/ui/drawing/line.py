"""Lines of styled pieces, measured in terminal cells, with every remote character made harmless."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, TypeAlias

from rich.cells import cell_len

__all__ = [
    "Ink",
    "Line",
    "Piece",
    "Row",
    "columns",
    "cut",
    "cut_left",
    "cut_middle",
    "fade",
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

_FADED: dict[Ink, Ink] = {"strong": "dim", "label": "dim", "title": "dim", "text": "dim"}
_KEPT: frozenset[Ink] = frozenset({"title_on", "edge", "edge_on", "edge_warn", "edge_bad", "edge_faint"})


_SELECTORS = re.compile("[\ufe00-\ufe0f]")
"""Variation selectors: terminals do not agree on the width of what they follow."""


def columns(text: str) -> int:
    """How many terminal cells `text` takes: wide characters count two, combining marks none."""
    return len(text) if text.isascii() else cell_len(text)


def safe(text: str) -> str:
    """`text` with everything that a terminal could act on, or that has no settled width, shown as `·`.

    Remote text is cleaned where it arrives; this is the last door before the terminal.
    """
    if text.isprintable() and (text.isascii() or not _SELECTORS.search(text)):
        return text
    shown = [character if character.isprintable() else "·" for character in text]
    return _SELECTORS.sub("·", "".join(shown))


def _fitting(text: str, cells: int) -> int:
    """How many leading characters of `text` fit into `cells`."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if columns(text[:middle]) <= cells:
            low = middle
        else:
            high = middle - 1
    return low


def cut(text: str, cells: int) -> str:
    """`text` in at most `cells`, its end replaced by `…` when it is longer."""
    if columns(text) <= cells:
        return text
    if cells < 1:
        return ""
    return text[: _fitting(text, cells - 1)] + "…"


def cut_left(text: str, cells: int) -> str:
    """`text` in at most `cells`, its beginning replaced by `…`: for paths, whose end tells more."""
    if columns(text) <= cells:
        return text
    if cells < 1:
        return ""
    start = len(text) - min(len(text), cells - 1)
    while columns(text[start:]) > cells - 1:
        start += 1
    return "…" + text[start:]


def cut_middle(text: str, cells: int) -> str:
    """`text` in at most `cells`, with `…` in the middle when it is longer."""
    if columns(text) <= cells:
        return text
    if cells < 5:
        return cut(text, cells)
    head = _fitting(text, (cells - 1) // 2)
    return text[:head] + cut_left(text[head:], cells - columns(text[:head]))


def plain(line: Line) -> str:
    """The bare text of a line."""
    return "".join(text for text, _ in line)


def fade(line: Line) -> Line:
    """The same words without their colours: for a picture that is no longer fresh."""
    return tuple((text, ink if ink in _KEPT else _FADED.get(ink, "faint")) for text, ink in line)


def wrap(text: str, cells: int, first: int | None = None) -> list[str]:
    """`text` in lines of at most `cells`, the first one of at most `first`; its own line breaks are kept.

    Lines are broken at spaces, a path that is longer than a line behind a `/`, and other words where it must be.
    """
    lines: list[str] = []
    for paragraph in text.splitlines():
        rest = safe(paragraph).strip()
        while columns(rest) > (room := cells if lines or first is None else first):
            split = _split(rest, room)
            lines.append(rest[:split].rstrip())
            rest = rest[split:].lstrip()
        lines.append(rest)
    return lines or [""]


def _split(text: str, cells: int) -> int:
    """Where to break a text that is longer than `cells`."""
    fitting = max(1, _fitting(text, cells))
    at_space = text.rfind(" ", 1, fitting + 1)
    if at_space > 0:
        return at_space
    at_slash = text.rfind("/", 1, fitting)
    return at_slash + 1 if at_slash > 0 else fitting


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
        if text.isascii() and text.isprintable():
            cells = len(text)
        else:
            text = safe(text)
            cells = columns(text)
        if cells > room:
            text = cut(text, room)
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
        if self.used + gap + columns(text) > self.limit:
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
        if align == "right":
            return self.add(padding).add(text, ink)
        return self.add(text, ink).add(padding)

    def right(self, *pieces: Piece, gap: int = 2) -> bool:
        """Puts `pieces` at the right end if there is room for them; says whether there was."""
        cells = sum(columns(safe(text)) for text, _ in pieces)
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
