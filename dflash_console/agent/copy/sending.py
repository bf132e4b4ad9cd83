"""The source's side of a transfer: the content of files, as the last look has them, or not at all."""

from __future__ import annotations

import os
import struct
import zlib

from .digests import open_regular
from .place import Fault

__all__ = ["read", "send"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .listing import Listing
    from .looking import Seen
    from .pipe import Pipe
    from .walking import Item

BLOCK = 1 << 18
"""Bytes of a block, before compression."""
PLAIN, ZLIB = 0, 1
BLOCK_HEADER = struct.Struct(">BIQI")
"""Codec, position in the order, offset in that file, length before compression."""
READ_LIMIT = 2 << 20
"""Bytes of a file that are shown."""


def send(listing: Listing, files: list[int], compress: bool, pipe: Pipe) -> dict[str, int]:
    """Send the content of the listing's entries with these indexes, in this order, as blocks; how much it was.

    Blocks are full, but for the last: several small files go into one. Raises Fault with a path when a file is not
    as the listing has it.
    """
    sender = _Sender(pipe, compress)
    for position, index in enumerate(files):
        if not (isinstance(index, int) and 0 <= index < len(listing.items)):
            raise Fault(f"the look has no entry {index!r}")
        item = listing.items[index]
        if item.link is not None:
            raise Fault(f"{item.path} is a link, not a file")
        _send_file(listing, item, position, sender)
    sender.flush()
    return {"blocks": sender.blocks, "bytes": sender.bytes, "raw": sender.raw}


def read(seen: Seen, path: str, limit: int, pipe: Pipe) -> dict[str, Any]:
    """Send the first bytes of a file of the look in raw frames; its size, and whether it is longer than what was
    sent."""
    item = next((item for item in seen.listing.items if item.path == path), None)
    if item is None:
        raise Fault(f"{path} is not among the package's files")
    if item.link is not None:
        raise Fault(f"{path} is a link to {item.link}")
    fd = open_regular(seen.listing.walked.real(path))
    if fd is None:
        raise Fault(f"{path} is no file any more")
    try:
        left = min(max(limit, 0), READ_LIMIT)
        while left > 0:
            data = os.read(fd, min(left, BLOCK))
            if not data:
                break
            pipe.send(data)
            left -= len(data)
        is_cut = left == 0 and bool(os.read(fd, 1))
        return {"size": os.fstat(fd).st_size, "is_cut": is_cut}
    finally:
        os.close(fd)


class _Sender:
    """The block that is being filled."""

    def __init__(self, pipe: Pipe, compress: bool) -> None:
        self.blocks = self.bytes = self.raw = 0
        self._pipe = pipe
        pipe.compress = compress
        self._buffer = bytearray(BLOCK)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._start = (0, 0)

    def room(self, position: int, offset: int) -> memoryview:
        """Where the next bytes go, which are those of this file from this offset on."""
        if self._filled == 0:
            self._start = (position, offset)
        return self._view[self._filled :]

    def took(self, count: int) -> None:
        """So many bytes were put there."""
        self._filled += count
        if self._filled == BLOCK:
            self.flush()

    def flush(self) -> None:
        """Send what there is."""
        if not self._filled:
            return
        self._pipe.mind()
        data, codec = self._view[: self._filled], PLAIN
        if self._pipe.compress:
            packed = zlib.compress(data, 1)
            if len(packed) < self._filled:
                data, codec = memoryview(packed), ZLIB
        self._pipe.send(BLOCK_HEADER.pack(codec, *self._start, self._filled), data)
        self.blocks += 1
        self.raw += self._filled
        self.bytes += len(data)
        self._filled = 0


def _send_file(listing: Listing, item: Item, position: int, sender: _Sender) -> None:
    fd = open_regular(listing.walked.real(item.path))
    if fd is None:
        raise Fault(f"{item.path} is no file any more")
    try:
        _check(item, fd)
        offset, size = 0, item.size
        while offset < size:
            room = sender.room(position, offset)
            count = _next(item, fd, offset, room[: size - offset])
            if not count:
                break
            offset += count
            sender.took(count)
        _check(item, fd)
        if offset < size:
            raise _changed(item)
    finally:
        os.close(fd)


def _next(item: Item, fd: int, offset: int, room: memoryview) -> int:
    """Put the next bytes of what travels into some room; how many."""
    if item.text is None:
        return os.readv(fd, [room])
    data = item.text[offset : offset + len(room)]
    room[: len(data)] = data
    return len(data)


def _check(item: Item, fd: int) -> None:
    """Raises Fault when an open file is not the one that was listed, or not as it was."""
    seen, now = item.status, os.fstat(fd)
    is_same = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns) == (
        now.st_dev,
        now.st_ino,
        now.st_size,
        now.st_mtime_ns,
    )
    # A new name elsewhere (uv makes one for each environment) changes the ctime and nothing else; without any name
    # the file has been removed or replaced.
    may_be_linked = now.st_nlink > 0 and (seen.st_nlink > 1 or now.st_nlink > 1)
    if not is_same or (seen.st_ctime_ns != now.st_ctime_ns and not may_be_linked):
        raise _changed(item)


def _changed(item: Item) -> Fault:
    return Fault(f"{item.path} changed while it was read: look again")
