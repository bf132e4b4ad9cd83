"""Files that the live tree has already are brought into the stage: as new inodes, and hashed on their way.

Never a hard link, and nothing that exists is opened for writing: a live file may be one with another environment's,
or with uv's cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import threading
from hashlib import sha256

from . import disk
from .place import Fault, fault, step, write_all
from .receive import create

__all__ = ["Reuse", "hashes_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .expected import Expected
    from .receive import Receiver

_FICLONE = 0x40049409


class Reuse:
    """A thread that brings files; what turns out to be another file is in `different` when it has ended."""

    def __init__(self, receiver: Receiver, site: int, indexes: list[int]) -> None:
        self.different: list[int] = []
        self._receiver = receiver
        self._site = site
        self._indexes = indexes
        self._can_clone = True
        self._problem: Fault | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until all are there. Raises Fault when the disk fails."""
        self._thread.join()
        if self._problem is not None:
            raise self._problem

    def stop(self) -> None:
        """Bring no more."""
        self._is_stopped = True
        self._thread.join()

    def _run(self) -> None:
        expected = self._receiver.expected
        for index in self._indexes:
            if self._is_stopped:
                return
            try:
                if not self._bring(expected, index):
                    self.different.append(index)
            except OSError as error:
                self._problem = fault(error, f"{expected.paths[index]} can't be copied into the stage")
                return
            except BaseException as error:  # noqa: BLE001 - told where it is waited for
                self._problem = Fault(f"{expected.paths[index]} can't be copied: {error}")
                return

    def _bring(self, expected: Expected, index: int) -> bool:
        path, stage = expected.paths[index], self._receiver.stage
        source = open_live(self._site, path)
        if source < 0:
            return False
        try:
            if os.fstat(source).st_size != expected.sizes[index]:
                return False
            step(f"reuse {path}")
            target = create(stage, path, self._receiver.modes.of(expected.modes[index]))
            try:
                is_same = self._copy(source, target) == expected.contents[index]
            finally:
                os.close(target)
        finally:
            os.close(source)
        if not is_same:
            os.unlink(path, dir_fd=stage)
        return is_same

    def _copy(self, source: int, target: int) -> str:
        """The sha256 of what was copied."""
        is_cloned = self._clone(source, target)
        hashed = sha256()
        while True:
            data = os.read(source, disk.BLOCK)
            if not data:
                return hashed.hexdigest()
            hashed.update(data)
            if not is_cloned:
                write_all(target, data)

    def _clone(self, source: int, target: int) -> bool:
        if self._can_clone:
            try:
                fcntl.ioctl(target, _FICLONE, source)
            except OSError:
                self._can_clone = False
        return self._can_clone


def open_live(site: int, path: str) -> int:
    """A live file for reading, through links; -1 when there is no regular file."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        if not stat.S_ISREG(os.stat(path, dir_fd=site).st_mode):
            return -1
        fd = os.open(path, flags, dir_fd=site)
    except OSError:
        return -1
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return -1
    return fd


def hashes_of(site: int, expected: Expected) -> dict[str, str]:
    """sha256 by path of the live files that have the size of an expected one."""
    found: dict[str, str] = {}

    def look(index: int) -> None:
        path = expected.paths[index]
        fd = open_live(site, path)
        if fd < 0:
            return
        try:
            if os.fstat(fd).st_size == expected.sizes[index]:
                with contextlib.suppress(OSError):
                    found[path] = disk.hash_of(fd)[0]
        finally:
            os.close(fd)

    disk.in_threads(look, expected.files)
    return found
