"""Files that come as blocks, written into the stage and hashed as they arrive.

A block is a header, `>BIQI` (codec, position in the order, offset in that file, raw length), and its bytes: those of
that file from the offset on, then of the files after it in the order, by their sizes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import zlib

from . import disk
from .expected import Expected
from .place import Fault, fault, step, write_all

__all__ = ["END", "HEADER", "Modes", "Receiver"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEADER = struct.Struct(">BIQI")
PLAIN, ZLIB, END = 0, 1, 255
RAW_LIMIT = 1 << 18
"""Bytes of a block before compression."""
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Modes:
    """What files and folders of the stage may be to others, after the tree that they replace."""

    def __init__(self, file: int, folder: int) -> None:
        self.file = file
        self.folder = folder

    def of(self, mode: int) -> int:
        """For a file that is sent with 644 or 755."""
        return self.file | (self.file & 0o444) >> 2 if mode & 0o100 else self.file


class Receiver:
    """The stage's files as they come; the stage holds no link while files are written into it."""

    def __init__(self, expected: Expected, stage: int, modes: Modes) -> None:
        self.expected = expected
        self.stage = stage
        self.modes = modes
        self.wanted: set[int] = set()
        self.files = 0
        self.bytes = 0
        self.problem: Fault | None = None
        self._order: list[int] = []
        self._open: _File | None = None

    def begin(self, order: object) -> None:
        """Blocks follow for these entries. Raises Fault for an order that can't be."""
        all_files = len(self.expected.paths)
        if not isinstance(order, list) or len(order) > all_files or len(set(order)) != len(order):
            raise Fault("the order of what is sent is no list of files, or has one twice")
        for index in order:
            if type(index) is not int or not 0 <= index < all_files or index in self.expected.links:
                raise Fault("the order of what is sent names what is no file")
        self._order = order
        self.problem = None

    def feed(self, block: bytes) -> bool:
        """Take a block; True for the end mark. Raises nothing; see `problem`."""
        if len(block) < HEADER.size:
            self._fail(Fault("a block without a header came"))
            return False
        codec, position, offset, length = HEADER.unpack_from(block)
        if codec == END:
            return True
        if self.problem is None:
            try:
                self._take(position, offset, _unpacked(block, codec, length))
            except Fault as problem:
                self._fail(problem)
            except OSError as error:
                path = error.filename if isinstance(error.filename, str) else "a file"
                self._fail(fault(error, f"{path} can't be written into the stage"))
        return False

    def end(self) -> None:
        """No more blocks come. Raises the Fault that was met."""
        self._give_up()
        if self.problem is not None:
            raise self.problem

    def write(self, index: int, data: bytes) -> None:
        """A whole file at once, which is not hashed. Raises OSError."""
        fd = create(self.stage, self.expected.paths[index], self.modes.of(self.expected.modes[index]))
        try:
            write_all(fd, data)
        finally:
            os.close(fd)

    def _fail(self, problem: Fault) -> None:
        if self.problem is None:
            self.problem = problem
        self._give_up()

    def _give_up(self) -> None:
        """Leave nothing of a file that came in part: it may be sent again."""
        if self._open is not None:
            self._open.close()
            with contextlib.suppress(OSError):
                os.unlink(self.expected.paths[self._open.index], dir_fd=self.stage)
            self._open = None

    def _take(self, position: int, offset: int, data: memoryview) -> None:
        sizes, order = self.expected.sizes, self._order
        while data:
            if position >= len(order):
                raise Fault("a block came with more bytes than the files have")
            index = order[position]
            rest = sizes[index] - offset
            if rest < 0:
                raise Fault(f"{self.expected.paths[index]}: a block came from beyond its end")
            if rest:
                if index in self.wanted:
                    self._add(index, offset, data[:rest])
                data = data[rest:]
            position, offset = position + 1, 0

    def _add(self, index: int, offset: int, data: memoryview) -> None:
        path, size = self.expected.paths[index], self.expected.sizes[index]
        file = self._open
        if file is None or file.index != index:
            self._give_up()
            if offset:
                raise Fault(f"{path}: its beginning did not come")
            step(f"create {path}")
            fd = create(self.stage, path, self.modes.of(self.expected.modes[index]))
            file = self._open = _File(index, fd)
        elif file.size != offset:
            raise Fault(f"{path}: a part of it is missing, at byte {file.size:,}")
        file.hash.update(data)
        file.size += len(data)
        write_all(file.fd, data)
        self.bytes += len(data)
        if file.size == size:
            if file.hash.hexdigest() != self.expected.contents[index]:
                raise Fault(
                    f"{path} came with a wrong sha256: it was changed on its way or while it was read"
                )
            file.close()
            self._open = None
            self.wanted.discard(index)
            self.files += 1


class _File:
    """The one that is being written."""

    def __init__(self, index: int, fd: int) -> None:
        self.index, self.fd = index, fd
        self.size = 0
        self.hash: Any = hashlib.sha256()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


def create(stage: int, path: str, mode: int) -> int:
    """A new file in the stage, opened for writing, with the mode whatever the umask is. Raises OSError."""
    try:
        fd = os.open(path, CREATE, mode, dir_fd=stage)
    except OSError as error:
        error.filename = path
        raise
    # To give a mode that is there already writes to the filesystem's journal all the same.
    if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
        os.fchmod(fd, mode)
    return fd


def make_folders(stage: int, expected: Expected, modes: Modes) -> None:
    """All folders of the tree, empty. Raises OSError."""
    step("make folders")
    for folder in expected.folders:
        os.mkdir(folder, 0o700, dir_fd=stage)
        fd = disk.open_folder(folder, stage)
        try:
            os.fchmod(fd, modes.folder)
        finally:
            os.close(fd)


def _unpacked(block: bytes, codec: int, length: int) -> memoryview:
    data = memoryview(block)[HEADER.size :]
    if length > RAW_LIMIT:
        raise Fault(f"a block of {length:,} bytes came: more than {RAW_LIMIT:,}")
    if codec == ZLIB:
        unpacker = zlib.decompressobj()
        try:
            data = memoryview(unpacker.decompress(data, length + 1))
        except zlib.error:
            raise Fault("a compressed block came that can't be unpacked: it was changed on its way") from None
    elif codec != PLAIN:
        raise Fault(f"a block came in an unknown form ({codec})")
    if len(data) != length:
        raise Fault("a block came that has not the length it tells: it was changed on its way")
    return data
