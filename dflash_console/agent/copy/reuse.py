"""Files that the live tree has already are brought into the stage: as new inodes, and hashed on their way.

Never a hard link, and nothing that exists is opened for writing: a live file may be one with another environment's,
or with uv's cache. Many files are brought by several children: threads would fight for the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import stat
import threading
import time
from hashlib import sha256

from ..child import OneShot
from . import disk
from .digests import FILE_COST, LITTLE, MOST_CHILDREN, STALL, digests
from .hashing import COARSE, FINE
from .place import Fault, fault, step, write_all
from .receive import create
from .survey import line_of

__all__ = ["Reuse", "hashes_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..child import Channel, Outcome
    from .expected import Expected
    from .receive import Modes, Receiver

_FICLONE = 0x40049409
TURN = 0.05
WORD = 1.0
"""Seconds between two words of a child."""
ENDING = 10.0
"""Seconds within which a killed child is gone, if the disk lives."""


class Reuse:
    """Brings files beside the caller; what turns out to be another file is in `different` when it has ended."""

    def __init__(self, receiver: Receiver, site: int, indexes: list[int]) -> None:
        self.different: list[int] = []
        self.lines: list[list[Any]] = []
        """The live files that were brought, as in a manifest."""
        expected = receiver.expected
        work = sum(expected.sizes[index] + FILE_COST for index in indexes)
        count = min(MOST_CHILDREN, len(os.sched_getaffinity(0)))
        where = [disk.path_of(fd) for fd in (site, receiver.stage)]
        if count < 2 or work <= LITTLE or not all(where):
            self._crew: _Thread | _Children = _Thread(
                Bringer(site, receiver.stage, expected, receiver.modes), indexes
            )
        else:
            self._crew = _Children(where, expected, receiver.modes, shares(indexes, expected, count))
        self._expected = expected

    def wait(self, mind: Callable[[], object] = lambda: None) -> None:
        """Until all are there; `mind` is called meanwhile and may raise. Raises Fault when the disk fails."""
        for index, seen in self._crew.wait(mind):
            if seen is None:
                self.different.append(index)
            elif seen:
                self.lines.append([self._expected.paths[index], *seen, self._expected.contents[index]])

    def stop(self) -> None:
        """Bring no more."""
        self._crew.stop()


def shares(indexes: list[int], expected: Expected, count: int) -> list[list[int]]:
    """About as much work for each, and a folder's files in one share: two writers wait for each other there."""
    costs = [expected.sizes[index] + FILE_COST for index in indexes]
    whole, done = sum(costs), 0
    found: list[list[int]] = [[] for _ in range(count)]
    for index, cost in zip(indexes, costs):
        found[done * count // whole].append(index)
        done += cost
    return [share for share in found if share]


class Bringer:
    """Brings one file after the other. `told` is called with every piece of one."""

    def __init__(
        self,
        site: int,
        stage: int,
        expected: Expected,
        modes: Modes,
        told: Callable[[], object] = lambda: None,
    ) -> None:
        self._told = told
        self._site, self._stage = site, stage
        self.expected, self._modes = expected, modes
        self._can_clone = True
        self._buffer = bytearray(disk.BLOCK)

    def bring(self, index: int) -> list[int] | None:
        """Of the live file what a manifest says between path and hash, empty if it may change without a sign.

        None if it is another one than expected. Raises OSError, and Fault in an operator's words.
        """
        expected = self.expected
        path = expected.paths[index]
        began = time.time_ns()
        source = open_live(self._site, path)
        if source < 0:
            return None
        try:
            before = os.fstat(source)
            if before.st_size != expected.sizes[index]:
                return None
            step(f"reuse {path}")
            target = create(self._stage, path, self._modes.of(expected.modes[index]))
            try:
                is_same = self._copy(source, target, before.st_size) == expected.contents[index]
            finally:
                os.close(target)
        finally:
            os.close(source)
        if not is_same:
            os.unlink(path, dir_fd=self._stage)
            return None
        grain = FINE if before.st_ctime_ns % 1_000_000_000 else COARSE
        return line_of(path, before, "")[1:-1] if before.st_ctime_ns + grain < began else []

    def _copy(self, source: int, target: int, size: int) -> str:
        """The sha256 of what was copied; of too much when the file has grown."""
        is_cloned = self._clone(source, target)
        hashed, view, done = sha256(), memoryview(self._buffer), 0
        while True:
            count = os.readv(source, [self._buffer])
            hashed.update(view[:count])
            done += count
            self._told()
            if count and not is_cloned:
                write_all(target, view[:count])
            if not count or (done == size and count < len(view)):
                return hashed.hexdigest()

    def _clone(self, source: int, target: int) -> bool:
        if self._can_clone:
            try:
                fcntl.ioctl(target, _FICLONE, source)
            except OSError:
                self._can_clone = False
        return self._can_clone


class _Thread:
    """A few files: no child is worth its start."""

    def __init__(self, bringer: Bringer, indexes: list[int]) -> None:
        self._bringer, self._indexes = bringer, indexes
        self._found: list[tuple[int, list[int] | None]] = []
        self._problem: Fault | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self, mind: Callable[[], object]) -> list[tuple[int, list[int] | None]]:
        """What was found since the last call. Raises Fault."""
        while self._thread.is_alive():
            self._thread.join(TURN)
            mind()
        if self._problem is not None:
            raise self._problem
        found, self._found = self._found, []
        return found

    def stop(self) -> None:
        """Returns when nothing is written any more."""
        self._is_stopped = True
        self._thread.join()

    def _run(self) -> None:
        for index in self._indexes:
            if self._is_stopped:
                return
            try:
                self._found.append((index, self._bringer.bring(index)))
            except BaseException as error:  # noqa: BLE001 - told where it is waited for
                self._problem = _problem(self._bringer.expected.paths[index], error)
                return


class _Children:
    """One for each share; each tells everything at its end, and before that only that it is alive: nobody has to
    listen."""

    def __init__(self, where: list[str], expected: Expected, modes: Modes, shares: list[list[int]]) -> None:
        self._shots = [OneShot(float("inf")) for _ in shares]
        for shot, share in zip(self._shots, shares):
            shot.start(_child(where, expected, modes, share), time.monotonic())

    def wait(self, mind: Callable[[], object]) -> list[tuple[int, list[int] | None]]:
        """What was found since the last call. Raises Fault, also when none of them says a word for long."""
        found: list[tuple[int, list[int] | None]] = []
        running, self._shots = self._shots, []
        heard = time.monotonic()
        try:
            while any(shot.is_busy for shot in running):
                fds = [fd for shot in running for fd in shot.fds()]
                ready = set(select.select(fds, [], [], TURN)[0]) if fds else set()
                now = time.monotonic()
                if ready:
                    heard = now
                elif now > heard + STALL:
                    words = f"no answer for {STALL:g} s, its filesystem may be dead"
                    raise Fault(f"unchanged files can't be copied into the stage: {words}")
                mind()
                for shot in running:
                    outcome = shot.ready(now) if ready.intersection(shot.fds()) else shot.tick(now)
                    if outcome is not None:
                        found += _told(outcome)
        finally:
            self._shots = running
            self.stop()
        return found

    def stop(self) -> None:
        """Returns when nothing is written any more."""
        shots, self._shots = self._shots, []
        for shot in shots:
            shot.close()
        until = time.monotonic() + ENDING
        while any(shot.is_busy for shot in shots) and time.monotonic() < until:
            time.sleep(0.002)


def _child(where: list[str], expected: Expected, modes: Modes, share: list[int]) -> Callable[[Channel], None]:
    def work(channel: Channel) -> None:
        folders = [os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) for path in where]
        due = time.monotonic() + WORD

        def tell() -> None:
            nonlocal due
            if time.monotonic() > due:
                channel.send({})
                due = time.monotonic() + WORD

        bringer = Bringer(folders[0], folders[1], expected, modes, tell)
        rows: list[tuple[int, list[int] | None]] = []
        for index in share:
            try:
                rows.append((index, bringer.bring(index)))
            except Exception as error:  # noqa: BLE001, PERF203 - told where it is waited for
                channel.send({"problem": str(_problem(expected.paths[index], error))})
                return
        channel.send({"rows": rows})

    return work


def _told(outcome: Outcome) -> list[tuple[int, list[int] | None]]:
    value = outcome.values[-1] if outcome.values else {}
    if "rows" in value:
        return [(index, seen) for index, seen in value["rows"]]
    why = (
        value.get("problem")
        or f"unchanged files can't be copied into the stage: {outcome.error or 'no words'}"
    )
    raise Fault(str(why))


def _problem(path: str, error: BaseException) -> Fault:
    if isinstance(error, OSError):
        return fault(error, f"{path} can't be copied into the stage")
    return Fault(f"{path} can't be copied: {error}")


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
    """sha256 by path of the live files that have the size of an expected one. Raises Fault and OSError."""
    same = []
    for index in expected.files:
        with contextlib.suppress(OSError):
            seen = os.stat(expected.paths[index], dir_fd=site)
            if stat.S_ISREG(seen.st_mode) and seen.st_size == expected.sizes[index]:
                same.append(index)
    home = os.fsencode(disk.path_of(site))
    paths = [home + b"/" + os.fsencode(expected.paths[index]) for index in same]
    found = digests(paths, [expected.sizes[index] for index in same])
    return {expected.paths[index]: digest.sha256 for index, digest in zip(same, found) if not digest.problem}
