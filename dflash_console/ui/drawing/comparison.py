"""Which files of two packages differ, folder by folder; drawn line by line as it comes into sight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, overload

from dflash_console.copies import Comparison, Entry, Look, Side
from dflash_console.ui.drawing.copy_plan import look_words
from dflash_console.ui.drawing.copying import counts, number
from dflash_console.ui.drawing.line import Ink, Line, Row, columns, cut, cut_left, cut_middle, flow, safe
from dflash_console.ui.drawing.words import size
from dflash_console.ui.opened import Opens, Shown

__all__ = ["FileChange", "FileRows", "changes_of", "draw_sides", "matching_changes", "tally"]

Mark = Literal["+", "~", "−"]
_INKS: dict[Mark, Ink] = {"+": "ok", "~": "warn", "−": "bad"}
_WIDEST = 92
"""Cells of a file's line: what stands at its end must not be too far from its name."""


class FileChange(NamedTuple):
    """A file that differs."""

    mark: Mark
    entry: Entry
    """Of the left side, if the file is there."""

    @property
    def folder(self) -> str:
        """Where it is."""
        return self.entry.path.rpartition("/")[0]


def changes_of(comparison: Comparison) -> tuple[FileChange, ...]:
    """All files that differ, by their paths, those of a folder together."""
    changes = [
        *(FileChange("+", entry) for entry in comparison.added),
        *(FileChange("~", entry) for entry in comparison.changed),
        *(FileChange("−", entry) for entry in comparison.removed),
    ]
    return tuple(sorted(changes, key=lambda change: (change.folder, change.entry.path)))


def matching_changes(changes: Sequence[FileChange], filter_text: str) -> tuple[FileChange, ...]:
    """Those whose path has every word of the filter."""
    words = filter_text.casefold().split()
    return tuple(change for change in changes if all(word in change.entry.path.casefold() for word in words))


def draw_sides(
    left: tuple[Side, Look | None], right: tuple[Side, Look | None], width: int, package: str
) -> list[Shown]:
    """What is compared: a line for each side, with the mark of what is only there."""
    lines: list[Shown] = []
    sides: tuple[tuple[Mark, tuple[Side, Look | None]], ...] = (("+", left), ("−", right))
    for mark, (side, look) in sides:
        row = Row(width).add(f"{mark} ", _INKS[mark])
        row.add(cut_middle(safe(str(side)), max(10, width // 2)), "strong")
        facts = look_words(look, package) if look is not None else []
        lines += [Shown(part.line()) for part in flow(row, facts, 4)]
    return lines


class _Folder(NamedTuple):
    path: str
    added: int
    changed: int
    removed: int


class FileRows(Sequence[Shown]):
    """A heading for each folder, and below it a line a file. Of 100,000 files only those in sight are ever drawn."""

    def __init__(
        self, changes: Sequence[FileChange], sides: tuple[str, str], width: int, above: Sequence[Shown] = ()
    ) -> None:
        """`sides` are what to call the left and the right."""
        self._width = min(width, _WIDEST)
        self._words: dict[Mark, str] = {"+": f"only {sides[0]}", "~": "differs", "−": f"only {sides[1]}"}
        self._rows: list[Shown | FileChange | _Folder] = [*above]
        start = 0
        for at in range(1, len(changes) + 1):
            if at == len(changes) or changes[at].folder != changes[start].folder:
                part = changes[start:at]
                marks = [change.mark for change in part]
                self._rows.append(
                    _Folder(part[0].folder, marks.count("+"), marks.count("~"), marks.count("−"))
                )
                self._rows += part
                start = at

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

    def _drawn(self, row: Shown | FileChange | _Folder) -> Shown:
        if isinstance(row, Shown):
            return row
        if isinstance(row, FileChange):
            return Shown(self._file_line(row), Opens("file", "", row.entry.path, row))
        head = Row(self._width).add(cut_left(safe(row.path or "."), max(8, self._width - 24)), "label")
        for text, ink in counts(row.added, row.changed, row.removed):
            head.item(text, ink)
        return Shown(head.line())

    def _file_line(self, change: FileChange) -> Line:
        entry = change.entry
        row = Row(self._width).add(f"  {change.mark} ", _INKS[change.mark])
        facts = f"{cut(safe(self._words[change.mark]), 24)}  {'link' if entry.kind == 'link' else size(entry.size):>6}"
        name = entry.path.rpartition("/")[2]
        row.add(cut_left(safe(name), max(8, row.room - columns(facts) - 2)), "text")
        row.right((facts, "dim"))
        return row.line()


def tally(comparison: Comparison) -> str:
    """How many files are the same."""
    return f"{number(comparison.same)} files are the same"
