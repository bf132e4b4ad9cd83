"""Reading the operator's own files: known_hosts, keys, certificates, the ssh config.

ssh reads whatever it is pointed at to its end: it waits for ever for the writer of a FIFO, and /dev/zero fills its
memory. There, someone sits at the keyboard and presses Ctrl-C. Here nobody does, and many hosts share the process:
so only regular files of a sane size are read, for a limited time, and an error names the file.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

from dflash_console.errors import LinkError, Unreachable
from dflash_console.link.threads import start_thread

__all__ = ["MOST_OF_A_KEY", "MOST_OF_A_LIST", "Files", "LocalFile", "Unfit", "look"]

T = TypeVar("T")

LOOK_TIMEOUT = 5.0
"""Seconds for a few small files; only a mount whose server is away takes as long."""
MOST_OF_A_KEY = 1 << 20
"""Bytes of a key, a certificate or a config, of which real ones have a few thousand."""
MOST_OF_A_LIST = 64 << 20
"""Bytes of a known_hosts file: 100,000 lines with RSA keys."""
PIECE = 1 << 20

KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class Unfit(OSError):
    """A file that ssh would read, or wait for, without end; `strerror` says what it is."""


class LocalFile(NamedTuple):
    """A file that was read."""

    data: bytes
    mode: int = 0o600
    """Its permissions."""
    is_mine: bool = True


class Files:
    """Looks at files one by one, in a thread; blocks. Knows at which, for those who wait."""

    def __init__(self) -> None:
        self.at = ""
        """The file that is looked at now, or was last."""

    def exists(self, path: str) -> bool:
        """As os.path.exists."""
        self.at = path
        return os.path.exists(path)

    def check(self, path: str, most: int) -> None:
        """Raises Unfit for what `read` would not read; nothing if the file is not there or not for us."""
        self.at = path
        try:
            _check(os.stat(path), path, most)
        except Unfit:
            raise
        except OSError:
            return

    def read_all(self, paths: Iterable[str], most: int) -> dict[str, LocalFile | OSError]:
        """Each file, or why it can't be read."""
        found: dict[str, LocalFile | OSError] = {}
        for path in paths:
            try:
                found[path] = self.read(path, most)
            except OSError as error:
                found[path] = error
        return found

    def read(self, path: str, most: int) -> LocalFile:
        """The file, of at most `most` bytes. /dev/null is empty. Raises OSError, and Unfit in particular."""
        self.at = path
        # Looked at before it is opened: to open a device can do something.
        if not _check(os.stat(path), path, most):
            return LocalFile(b"")
        # O_NONBLOCK: it may have become a FIFO since.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            state = os.fstat(file)
            if not _check(state, path, most):
                return LocalFile(b"")
            data = bytearray()
            while piece := os.read(file, PIECE):
                data += piece
                if len(data) > most:
                    raise _too_large(path, most)
        finally:
            os.close(file)
        return LocalFile(bytes(data), stat.S_IMODE(state.st_mode), state.st_uid == os.getuid())


async def look(work: Callable[[Files], T], *, key: Hashable) -> T:
    """What `work` makes of some files, in a thread. Raises Unreachable, which names the file, when that takes long.

    Those who look for the same `key` at the same time share one thread: a dead mount then holds one thread,
    however many hosts are tried how often.
    """
    flights = _flights.setdefault(asyncio.get_running_loop(), {})
    flight = flights.get(key)
    if flight is None:
        files = Files()
        answer: asyncio.Future[object] = start_thread(lambda: work(files))
        flight = flights[key] = (files, answer)
        answer.add_done_callback(lambda done: _land(flights, key, done))
    try:
        async with asyncio.timeout(LOOK_TIMEOUT):
            return cast(T, await asyncio.shield(flight[1]))
    except TimeoutError:
        raise Unreachable(
            f"{flight[0].at} could not be read in {LOOK_TIMEOUT:.0f} s: does it lie on a mount whose server is away?"
        ) from None
    except LinkError as error:
        # A copy for each: one exception raised in several tasks would gather all their tracebacks.
        raise type(error)(*error.args) from None


_Flights = dict[Hashable, tuple[Files, "asyncio.Future[object]"]]
_flights: WeakKeyDictionary[asyncio.AbstractEventLoop, _Flights] = WeakKeyDictionary()


def _land(flights: _Flights, key: Hashable, done: asyncio.Future[object]) -> None:
    flights.pop(key, None)
    if not done.cancelled():
        # It was raised for those who waited, if any still did.
        done.exception()


def _check(state: os.stat_result, path: str, most: int) -> bool:
    """Whether there may be something to read."""
    kind = stat.S_IFMT(state.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if kind == stat.S_IFCHR and state.st_rdev == os.stat(os.devnull).st_rdev:
        return False
    if kind != stat.S_IFREG:
        raise Unfit(errno.EINVAL, f"it is {KINDS.get(kind, 'no file')}, not a regular file", path)
    if state.st_size > most:
        raise _too_large(path, most)
    return True


def _too_large(path: str, most: int) -> Unfit:
    return Unfit(errno.EFBIG, f"it is larger than {most >> 20} MiB", path)
