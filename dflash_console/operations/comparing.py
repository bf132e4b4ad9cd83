"""How two listings differ. Pure.

A listing may have 100,000 files, and there may be many targets: each one's is held against the source's as it
arrives, and only what is asked for is kept of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dflash_console.copies import Comparison, Difference, Entry, FolderCount

__all__ = ["FOLDERS", "FOLDER_DEPTH", "Known", "Matching", "difference", "folders_of"]

FOLDER_DEPTH = 3
"""Names of a path by which files are counted: `sglang/srt/layers`."""
FOLDERS = 200
"""That are kept of a difference, those with most files."""
_MISSING, _SAME, _OTHER = 0, 1, 2
_ADDED, _CHANGED, _REMOVED = 0, 1, 2


class Known:
    """A listing that others are held against."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self.places = {entry.path: at for at, entry in enumerate(entries)}
        """Where each path is among the entries."""


class Matching:
    """Another listing, held against a known one part by part; of a path that comes twice the first counts."""

    def __init__(self, known: Known, *, is_kept: bool = False) -> None:
        """`is_kept`: what is only in the other listing is kept, for `comparison`."""
        self._known = known
        self._states = bytearray(len(known.entries))
        self._removed: list[Entry] = []
        self._is_kept = is_kept
        self._folders = _Folders()
        self._told: tuple[Difference, int] | None = None

    def take(self, entries: Iterable[Entry]) -> None:
        """Takes the next entries of the other listing."""
        places, known, states = self._known.places, self._known.entries, self._states
        for entry in entries:
            at = places.get(entry.path)
            if at is None:
                self._folders.count(entry.path, _REMOVED)
                if self._is_kept:
                    self._removed.append(entry)
            elif not states[at]:
                states[at] = _SAME if _is_same(known[at], entry) else _OTHER

    def difference(self) -> tuple[Difference, int]:
        """What a copy to the other side does, and the bytes that have to be sent for it, once all was taken."""
        if self._told is None:
            self._told = self._summed()
        return self._told

    def _summed(self) -> tuple[Difference, int]:
        size = 0
        for entry, state in zip(self._known.entries, self._states, strict=True):
            if state != _SAME:
                self._folders.count(entry.path, _ADDED if state == _MISSING else _CHANGED)
                size += entry.size if entry.kind == "file" else 0
        folders = self._folders.ordered()
        more = max(0, len(folders) - FOLDERS)
        same = self._states.count(_SAME)
        added, changed, removed = self._folders.sums
        return Difference(added, changed, removed, same, folders[:FOLDERS], more), size

    def comparison(self) -> Comparison:
        """Which files differ, once all was taken."""
        pairs = list(zip(self._known.entries, self._states, strict=True))
        added = [entry for entry, state in pairs if state == _MISSING]
        changed = [entry for entry, state in pairs if state == _OTHER]
        same = self._states.count(_SAME)
        return Comparison(_sorted(added), _sorted(changed), _sorted(self._removed), same)


class _Folders:
    """Files that are added, changed and removed, counted by folder; deep ones count in the upper ones."""

    def __init__(self) -> None:
        self.sums = [0, 0, 0]
        self._counts: dict[str, list[int]] = {}

    def count(self, path: str, kind: int) -> None:
        folder = "/".join(path.split("/")[:-1][:FOLDER_DEPTH]) or "."
        self.sums[kind] += 1
        self._counts.setdefault(folder, [0, 0, 0])[kind] += 1

    def ordered(self) -> tuple[FolderCount, ...]:
        folders = [FolderCount(path, *counts) for path, counts in self._counts.items()]
        return tuple(sorted(folders, key=lambda folder: (-sum(folder[1:]), folder.path)))


def difference(left: Iterable[Entry], right: Iterable[Entry]) -> Comparison:
    """What a copy from `left` to `right` adds, changes and removes; by content, kind and mode, not by times."""
    matching = Matching(Known(tuple(left)), is_kept=True)
    matching.take(right)
    return matching.comparison()


def folders_of(comparison: Comparison) -> tuple[FolderCount, ...]:
    """How many files are added, changed and removed in each folder, those with most files first."""
    folders = _Folders()
    for kind, entries in (
        (_ADDED, comparison.added),
        (_CHANGED, comparison.changed),
        (_REMOVED, comparison.removed),
    ):
        for entry in entries:
            folders.count(entry.path, kind)
    return folders.ordered()


def _is_same(one: Entry, other: Entry) -> bool:
    # A target keeps only whether a file may be executed.
    return (one.kind, one.content, one.mode & 0o100) == (other.kind, other.content, other.mode & 0o100)


def _sorted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    found: Sequence[Entry] = sorted(entries, key=lambda entry: entry.path)
    return tuple(found)
