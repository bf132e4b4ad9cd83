"""The hashes of many files at once, by child processes.

Threads would make it slower than one alone: of a small file hardly anything can be done without the interpreter's
lock. What hangs at a dead mount hangs in a child.
"""

from __future__ import annotations

import os
import select
import stat
import time
from hashlib import sha256

from ..child import OneShot
from .place import Fault

__all__ = ["Digest", "digests", "key_of", "open_regular"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, Sequence

    from ..child import Channel

    Rows = list[tuple[int, "Digest"]]

MOST_CHILDREN = 4
FILE_COST = 1 << 15
"""Bytes that are hashed in the time in which a file is opened and closed."""
LITTLE = 32 << 20
"""Bytes, with those of FILE_COST for each file, up to which no child is worth its start: 20 ms."""
PIECE = 1 << 20
WORD = 0.1
"""Seconds between two words of a child."""
STALL = 120.0
"""Seconds without a word from any child, after which the filesystem counts as dead."""
TURN = 0.05


class Digest:
    """What became of one file."""

    __slots__ = ("began", "key", "problem", "sha256")

    def __init__(self, sha256: str, key: tuple[int, ...], began: int, problem: str | None = None) -> None:
        self.sha256 = sha256
        self.key = key
        """As `key_of` the file, the same before and after it was read."""
        self.began = began
        """When at the earliest the reading began, in nanoseconds since 1970."""
        self.problem = problem
        """Why there is no hash; empty when it is gone, no regular file, or changed while it was read."""


def digests(
    paths: Sequence[bytes],
    sizes: Sequence[int],
    told: Callable[[int, int], object] = lambda files, size: None,
) -> list[Digest]:
    """One for each path, in order; `sizes` are what they are expected to be, to share the work.

    `told` gets files and bytes done, every now and then, and may raise. Raises Fault when the children fail.
    """
    count = min(MOST_CHILDREN, len(os.sched_getaffinity(0)))
    order = sorted(range(len(paths)), key=lambda index: -sizes[index])
    if count < 2 or sum(sizes) + FILE_COST * len(paths) <= LITTLE:
        return _alone(paths, told)
    found: list[Digest | None] = [None] * len(paths)
    work = _Work([order[number::count] for number in range(count)], paths)
    try:
        for rows in work.rows(told):
            for index, digest in rows:
                found[index] = digest
    finally:
        work.close()
    return [digest for digest in found if digest is not None]


def key_of(status: os.stat_result) -> tuple[int, ...]:
    """What tells a file from what it was: device, inode, size, mtime, ctime."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def open_regular(path: bytes) -> int | None:
    """A regular file, opened for reading; None for what is none, or gone. Raises OSError for what may not be read.

    A pipe or device that has taken a file's place is not waited for.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def _alone(paths: Sequence[bytes], told: Callable[[int, int], object]) -> list[Digest]:
    buffer, size = bytearray(PIECE), 0
    found = []
    for number, path in enumerate(paths):
        began = time.time_ns()
        for digest, read in _read(path, buffer, began):
            size += read
            told(number, size)
            if digest is not None:
                found.append(digest)
    return found


class _Work:
    """The children and what they say."""

    def __init__(self, shares: list[list[int]], paths: Sequence[bytes]) -> None:
        self._left = sum(map(len, shares))
        self._shots = [OneShot(float("inf")) for _ in shares]
        self._taken = [0] * len(shares)
        self._files = self._bytes = 0
        for shot, share in zip(self._shots, shares):
            shot.start(_child(share, paths), time.monotonic())

    def rows(self, told: Callable[[int, int], object]) -> Iterator[Rows]:
        """The digests with their indexes, as they come."""
        heard = time.monotonic()
        while self._left:
            fds = [fd for shot in self._shots for fd in shot.fds()]
            ready = set(select.select(fds, [], [], TURN)[0]) if fds else set()
            now = time.monotonic()
            if ready:
                heard = now
            elif now > heard + STALL:
                words = f"no answer for {STALL:g} s, their filesystem may be dead"
                raise Fault(f"the files can't be read: {words}")
            for number, shot in enumerate(self._shots):
                outcome = shot.ready(now) if ready.intersection(shot.fds()) else shot.tick(now)
                new, self._taken[number] = shot.values[self._taken[number] :], len(shot.values)
                for began, size, rows in new:
                    self._bytes += size
                    self._files += len(rows)
                    self._left -= len(rows)
                    yield [(row[0], Digest(row[1], tuple(row[3:]), began, row[2])) for row in rows]
                if outcome is not None and outcome.error:
                    raise Fault(f"the files can't be read: {outcome.error}")
            told(self._files, self._bytes)

    def close(self) -> None:
        """End the children."""
        for shot in self._shots:
            shot.close()


def _child(share: list[int], paths: Sequence[bytes]) -> Callable[[Channel], None]:
    def work(channel: Channel) -> None:
        buffer = bytearray(PIECE)
        began, size, due = time.time_ns(), 0, time.monotonic() + WORD
        rows: list[list[object]] = []
        for index in share:
            for digest, read in _read(paths[index], buffer, began):
                size += read
                if digest is not None:
                    rows.append([index, digest.sha256, digest.problem, *digest.key])
                if time.monotonic() > due:
                    channel.send([began, size, rows])
                    # A file that is under way was begun before.
                    began = time.time_ns() if digest is not None else began
                    size, due, rows = 0, time.monotonic() + WORD, []
        channel.send([began, size, rows])

    return work


def _read(path: bytes, buffer: bytearray, began: int) -> Iterator[tuple[Digest | None, int]]:
    """The bytes that were read, piece by piece, and at the end the digest."""
    try:
        fd = open_regular(path)
        if fd is None:
            yield Digest("", (), began, ""), 0
            return
        try:
            before = key_of(os.fstat(fd))
            hashed, size, view = sha256(), 0, memoryview(buffer)
            while size <= before[2]:
                count = os.readv(fd, [buffer])
                if not count:
                    break
                hashed.update(view[:count])
                size += count
                # Of the last piece together with the digest.
                if size < before[2]:
                    yield None, count
            after = key_of(os.fstat(fd))
        finally:
            os.close(fd)
    except OSError as error:
        yield Digest("", (), began, str(error.strerror)), 0
        return
    if before != after or size != before[2]:
        yield Digest("", (), began, ""), 0
    else:
        yield Digest(hashed.hexdigest(), after, began), min(size, size % PIECE or PIECE)
