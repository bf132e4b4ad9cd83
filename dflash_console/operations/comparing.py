"""How two listings differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dflash_console.copies import Comparison, Entry

__all__ = ["difference", "size_of"]


def difference(left: Iterable[Entry], right: Iterable[Entry]) -> Comparison:
    """What a copy from `left` to `right` adds, changes and removes; by content, kind and mode, not by times."""
    there = {entry.path: entry for entry in right}
    added, changed, same = [], [], 0
    for entry in left:
        other = there.pop(entry.path, None)
        if other is None:
            added.append(entry)
        elif _is_same(entry, other):
            same += 1
        else:
            changed.append(entry)
    return Comparison(_sorted(added), _sorted(changed), _sorted(there.values()), same)


def size_of(comparison: Comparison) -> int:
    """Bytes that have to be sent for it."""
    return sum(entry.size for entry in (*comparison.added, *comparison.changed) if entry.kind == "file")


def _is_same(one: Entry, other: Entry) -> bool:
    # A target keeps only whether a file may be executed.
    return (one.kind, one.content, one.mode & 0o100) == (other.kind, other.content, other.mode & 0o100)


def _sorted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    found: Sequence[Entry] = sorted(entries, key=lambda entry: entry.path)
    return tuple(found)
