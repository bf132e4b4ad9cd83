"""A program that runs on a host, seen from here: the same whatever carries its bytes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from dflash_console.errors import AgentFailed, LinkError
from dflash_console.link.allowance import Allowance

__all__ = ["Connection", "Pipe", "Process"]

STDERR_KEPT = 8 << 10
BACKLOG = 256 << 10
"""Bytes of stdout that wait for a reader before the sender is held up."""
AT_ONCE, PER_SECOND = 16 << 20, 4 << 20
"""Bytes that a program may send, on stdout and stderr together. The largest first picture of a host is about one
MiB, and a host of 16 busy GPUs sends less than one a second at the shortest interval."""
LAST_WORDS = 1.0
"""Seconds that an ended program's output may still take: a child of it could hold it open for ever."""


class Pipe(Protocol):
    """What a transport does for a Process. Nothing blocks; what can't be done any more is left undone."""

    def write(self, data: bytes) -> None: ...

    def write_eof(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def kill(self) -> None:
        """Ends the program by force, with its children where that is possible."""

    def close(self) -> None:
        """Gives up what carries the bytes."""


class Connection(Protocol):
    """A way to a host, over which programs are started."""

    async def start(self) -> Process:
        """Runs the bootstrap line on a channel of its own. Raises a LinkError."""

    async def close(self) -> None:
        """Ends everything on it; never raises and takes a few seconds at most."""


class Process:
    """A program on a host: its stdin, stdout, the tail of its stderr, and how it ended.

    The methods `got_*` and `lost` are for the transport.
    """

    def __init__(self, pipe: Pipe) -> None:
        self.exit_status: int | None = None
        """None while it runs, and when a signal or the loss of the link ended it."""
        self.exit_signal = ""
        """Such as `KILL`."""
        self.failure: LinkError | None = None
        """Why the link was lost, if that is how it ended."""
        self.has_ended = False
        self._pipe = pipe
        self._allowance = Allowance(AT_ONCE, PER_SECOND)
        self._loop = asyncio.get_running_loop()
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._is_held_up = False
        self._at_eof = False
        self._stderr = bytearray()
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._end = asyncio.Event()
        self._last_words: asyncio.TimerHandle | None = None
        self._receive: Callable[[bytes], None] | None = None
        self._finish: Callable[[], None] | None = None

    # ---- for those who use the program

    @property
    def stderr(self) -> bytes:
        """The last 8 KiB of it."""
        return bytes(self._stderr)

    def write(self, data: bytes) -> None:
        """Sends to stdin; dropped when the program has ended."""
        if not self.has_ended:
            self._pipe.write(data)

    async def drain(self) -> None:
        """Waits until stdin takes more, or the program has ended."""
        await self._writable.wait()

    def write_eof(self) -> None:
        """Closes stdin."""
        if not self.has_ended:
            self._pipe.write_eof()

    async def read(self, limit: int = 1 << 16) -> bytes:
        """The next bytes of stdout, at most `limit`; empty when no more will come. One reader at a time."""
        while not self._chunks:
            if self._at_eof:
                return b""
            self._news.clear()
            await self._news.wait()
        chunk = self._chunks.popleft()
        if len(chunk) > limit:
            self._chunks.appendleft(chunk[limit:])
            chunk = chunk[:limit]
        self._size -= len(chunk)
        if self._is_held_up and self._size < BACKLOG // 2:
            self._is_held_up = False
            self._pipe.resume_reading()
        return chunk

    def deliver(self, receive: Callable[[bytes], None], finish: Callable[[], None]) -> None:
        """From now on hands every piece of stdout to `receive` as it comes, in place of `read`.

        `finish` is called once, when no more will come and the end is known. Neither may raise or block. This
        saves a task switch for each piece.
        """
        self._receive, self._finish = receive, finish
        waiting, self._size = b"".join(self._chunks), 0
        self._chunks.clear()
        if waiting:
            receive(waiting)
        if self._is_held_up:
            self._is_held_up = False
            self._pipe.resume_reading()
        if self.has_ended:
            finish()

    def grant(self, count: int) -> None:
        """Lets the program send `count` bytes more than any program may: they were asked for."""
        self._allowance.grant(count)

    def revoke(self) -> None:
        """Ends all grants."""
        self._allowance.revoke()

    async def wait(self) -> None:
        """Waits until the program has ended and its output is complete."""
        await self._end.wait()

    def kill(self) -> None:
        """Ends the program by force."""
        if not self.has_ended:
            self._pipe.kill()

    async def close(self, grace: float = 2.0) -> None:
        """Closes stdin, waits `grace` seconds for the program to end by itself, then ends it by force."""
        self.write_eof()
        # What still comes would hold up a program that is about to end.
        self._receive = self._receive or _ignore
        if self._is_held_up:
            self._is_held_up = False
            self._pipe.resume_reading()
        try:
            async with asyncio.timeout(grace):
                await self._end.wait()
        except TimeoutError:
            pass
        finally:
            self.kill()
            self._pipe.close()
            await self._see_the_end(self._loop.time() + LAST_WORDS / 2)

    async def _see_the_end(self, until: float) -> None:
        """Waits for it up to a point of the loop's time, also when cancelled meanwhile: an end that nobody waits for
        may come when its loop is closed already."""
        cancelled = None
        while not self.has_ended and self._loop.time() < until:
            try:
                async with asyncio.timeout_at(until):
                    await self._end.wait()
            except TimeoutError:
                break
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    # ---- for the transport

    def got_output(self, data: bytes) -> None:
        if not self._may_send(len(data)):
            return
        if self._receive is not None:
            self._receive(data)
            return
        self._chunks.append(data)
        self._size += len(data)
        self._news.set()
        if self._size > BACKLOG and not self._is_held_up:
            self._is_held_up = True
            self._pipe.pause_reading()

    def got_stderr(self, data: bytes) -> None:
        if not self._may_send(len(data)):
            return
        self._stderr += data[-STDERR_KEPT:]
        del self._stderr[:-STDERR_KEPT]

    def _may_send(self, count: int) -> bool:
        """Whether to take what came. A program that floods is ended at once, and nothing more of it is taken."""
        if self.failure is None and not self._allowance.covers(count):
            self.failure = AgentFailed(
                f"what the host sends has no end: more than {AT_ONCE >> 20} MiB at once and "
                f"{PER_SECOND >> 20} MiB a second"
            )
            self._pipe.close()
            self._give_last_words()
        return self.failure is None

    def _give_last_words(self) -> None:
        if not self.has_ended and self._last_words is None:
            self._last_words = self._loop.call_later(LAST_WORDS, self.lost)

    def got_eof(self) -> None:
        """stdout is closed; the program may still run."""
        self._at_eof = True
        self._news.set()

    def got_exit(self, status: int | None, signal: str = "") -> None:
        self.exit_status, self.exit_signal = status, signal
        self._give_last_words()

    def got_writable(self, is_writable: bool) -> None:
        if is_writable:
            self._writable.set()
        else:
            self._writable.clear()

    def lost(self, failure: LinkError | None = None) -> None:
        """The channel is gone: nothing more will come."""
        if self.has_ended:
            return
        self.has_ended = True
        self.failure = self.failure or failure
        if self._last_words is not None:
            self._last_words.cancel()
        self._writable.set()
        self.got_eof()
        self._end.set()
        if self._finish is not None:
            self._finish()


def _ignore(_: bytes) -> None:
    pass
