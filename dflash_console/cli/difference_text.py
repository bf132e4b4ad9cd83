"""Which files differ, in lines: counts, by folder, the first files by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dflash_console.copies import Comparison, Entry, FolderCount, Look
from dflash_console.ui.drawing.line import Ink, Line, Row
from dflash_console.ui.drawing.words import plural, size

__all__ = ["counts", "file_lines", "folder_lines", "look_words"]

MOST_FOLDERS, MOST_NAMES = 12, 12
"""Lines; all files are in the JSON."""


def look_words(look: Look | None, package: str) -> str:
    """What is at one end: `sglang 0.5.23, 6396 files, 80.1M`."""
    if look is None:
        return "not known"
    if look.state == "absent":
        return f"no {package}"
    words = f"{package} {look.version}".rstrip()
    if look.state != "whole":
        return f"{words}, {look.state}: {look.problem}"
    return f"{words}, {plural(look.files, 'file')}, {size(look.size)}"


def counts(added: int, changed: int, removed: int) -> str:
    """`12 added, 3 changed, 1 removed`; `no difference`."""
    parts = [
        f"{count} {word}"
        for count, word in ((added, "added"), (changed, "changed"), (removed, "removed"))
        if count
    ]
    return ", ".join(parts) or "no difference"


def folder_lines(folders: Sequence[FolderCount], width: int, indent: int, more: int = 0) -> Iterable[Line]:
    """A line a folder, and how many others there are, `more` of which are not among these."""
    shown = folders[:MOST_FOLDERS]
    longest = max((len(folder.path) for folder in shown), default=0)
    for folder in shown:
        line = Row(width).add(" " * indent)
        line.field(folder.path, min(longest, max(12, width - indent - 40)), "label")
        yield line.add("  ").add(counts(*folder[1:])).line()
    if more := more + len(folders) - len(shown):
        yield Row(width).add(" " * indent).add(f"{more} more folders", "faint").line()


def file_lines(difference: Comparison, width: int, indent: int) -> Iterable[Line]:
    """The first files of each kind: `+` added, `~` changed, `-` removed."""
    marks: dict[str, tuple[str, Ink]] = {
        "added": ("+", "ok"),
        "changed": ("~", "warn"),
        "removed": ("-", "bad"),
    }
    for word, entries in _parts(difference):
        mark, ink = marks[word]
        for entry in entries[:MOST_NAMES]:
            yield Row(width).add(" " * indent).add(f"{mark} ", ink).add(entry.path).line()
        if len(entries) > MOST_NAMES:
            more = f"  {len(entries) - MOST_NAMES} more {word}"
            yield Row(width).add(" " * indent).add(more, "faint").line()


def _parts(difference: Comparison) -> tuple[tuple[str, Sequence[Entry]], ...]:
    return ("added", difference.added), ("changed", difference.changed), ("removed", difference.removed)
