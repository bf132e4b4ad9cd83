"""Hashes of a walk's files: what was hashed before and is the same file still is not read again."""

from __future__ import annotations

from .digests import digests, key_of

__all__ = ["FINE", "Cache", "Hashes"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Callable

    from .walking import Item, Walk

FINE, COARSE = 50_000_000, 2_100_000_000
"""Nanoseconds within which a second change may bear the time of the first: by the kernel's tick, or on a filesystem
that keeps whole seconds (ext3, FAT: two)."""


class Cache:
    """Hashes by what tells a file from what it was: device, inode, size, times."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], str] = {}

    def get(self, status: os.stat_result) -> str | None:
        """The hash of a file that is still what it was."""
        return self._known.get(key_of(status))

    def put(self, status: os.stat_result, digest: str, began: int) -> None:
        """Keep the hash of a file that was read from `began` on (nanoseconds since 1970): unless it may change once
        more without a sign of it."""
        grain = FINE if status.st_ctime_ns % 1_000_000_000 else COARSE
        if status.st_ctime_ns + grain < began:
            self._known[key_of(status)] = digest

    def know(self, key: tuple[int, ...], digest: str) -> None:
        """Take what a manifest says: device, inode, size, mtime and ctime, the hash."""
        self._known.setdefault(key, digest)

    def keep(self, walked: Walk) -> None:
        """Forget all but the files of a walk."""
        keys = {key_of(item.status) for item in walked.items}
        self._known = {key: digest for key, digest in self._known.items() if key in keys}


class Hashes:
    """The hashes of a walk's files, by path."""

    def __init__(self, walked: Walk, cache: Cache) -> None:
        self.digests: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        """Why a file could not be read; empty when it was another one than the walk had seen."""
        self.waiting: list[Item] = []
        """Those that are to be read."""
        self._walked = walked
        self._cache = cache
        for item in walked.items:
            if item.link is None:
                known = cache.get(item.status)
                if known is None:
                    self.waiting.append(item)
                else:
                    self.digests[item.path] = known

    def run(self, told: Callable[[int, int], object]) -> None:
        """Read all that is not known; `told` gets files and bytes done, every now and then, and may raise. Raises
        Fault when the filesystem does not answer."""
        if not self.waiting:
            return
        paths = [self._walked.real(item.path) for item in self.waiting]
        found = digests(paths, [item.status.st_size for item in self.waiting], told)
        for item, digest in zip(self.waiting, found):
            if digest.problem is not None or digest.key != key_of(item.status):
                self.failed[item.path] = digest.problem or ""
            else:
                self.digests[item.path] = digest.sha256
                self._cache.put(item.status, digest.sha256, digest.began)
