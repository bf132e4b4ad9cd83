"""What a copy would take along, with hashes: the entries that go over the wire, one hash over all, and a stamp."""

from __future__ import annotations

import os
from hashlib import sha256

from .digests import open_regular
from .hashing import Cache, Hashes
from .record import RECORD_LIMIT, is_record, shortened_record
from .walking import Item, Walk, unlike, walk

__all__ = ["Listing", "list_files", "stamp_of", "tree_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .pipe import Pipe

TRIES = 3


class Listing:
    """The files of a package as they were found in one state."""

    def __init__(self, walked: Walk, digests: dict[str, str]) -> None:
        self.walked = walked
        self.items = [item for item in walked.items if item.link is not None or item.path in digests]
        self.entries = [_entry(item, digests) for item in self.items]
        """As copies.Entry, each as a list; sorted by path."""
        self.tree = tree_of(self.entries)
        self.stamp = stamp_of(walked)

    @property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(entry[2] for entry in self.entries if entry[1] == "file")


def list_files(site: str, names: list[str], cache: Cache, pipe: Pipe) -> Listing:
    """List the files below some names of a folder. Raises Fault when there are too many.

    What changes while it is read is read again; what then still changes, or can't be read, is among the strange.
    """
    restless: set[str] = set()
    for _ in range(TRIES):
        walked = walk(site, names, pipe.mind)
        hashes = Hashes(walked, cache)
        is_quick = not hashes.waiting
        hashes.run(pipe.progress)
        _shorten_records(walked, names, hashes.digests)
        if is_quick:
            break
        again = walk(site, names, pipe.mind)
        if stamp_of(again) == stamp_of(walked):
            break
        restless |= unlike(walked, again)
    walked.note_restless(restless)
    for path, why in sorted(hashes.failed.items()):
        walked.note_strange(path.encode("utf-8"), why or "it changes while it is read")
    cache.keep(walked)
    return Listing(walked, hashes.digests)


def tree_of(entries: list[list[Any]]) -> str:
    """One hash over paths, kinds, modes and content: equal for equal trees, on whatever host."""
    hashed = sha256()
    for path, kind, size, mode, content in sorted(entries):
        hashed.update(f"{path}\0{kind}\0{size}\0{mode:o}\0{content}\n".encode())
    return hashed.hexdigest()


def stamp_of(walked: Walk) -> str:
    """What is another one when a file here is, or has come or gone."""
    hashed = sha256()
    for item in walked.items:
        hashed.update(repr((item.path, item.link, item.mark)).encode("utf-8"))
    hashed.update(repr((walked.site, walked.strange, walked.followed)).encode("utf-8"))
    return hashed.hexdigest()[:32]


def _shorten_records(walked: Walk, names: list[str], digests: dict[str, str]) -> None:
    for item in walked.items:
        if item.path not in digests or not is_record(item.path) or item.status.st_size > RECORD_LIMIT:
            continue
        fd = open_regular(walked.real(item.path))
        if fd is None:
            continue
        with os.fdopen(fd, "rb") as file:
            data = file.read(RECORD_LIMIT + 1)
        text = shortened_record(data, names)
        if text != data and sha256(data).hexdigest() == digests[item.path]:
            item.text, digests[item.path] = text, sha256(text).hexdigest()


def _entry(item: Item, digests: dict[str, str]) -> list[Any]:
    if item.link is not None:
        return [item.path, "link", item.size, item.mode, item.link]
    return [item.path, "file", item.size, item.mode, digests[item.path]]
