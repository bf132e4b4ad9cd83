"""Brings blocks from one source to many targets: read once, kept in bounded memory, held up by nobody for long."""

from __future__ import annotations

import asyncio
import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Protocol

from dflash_console.copies import Entry
from dflash_console.errors import AgentFailed, CopyError, LinkError
from dflash_console.link import pack_data
from dflash_console.link.channel import TakeData

__all__ = ["END", "Feed", "Pump", "Sending", "Sink"]

HEADER = struct.Struct(">BIQI")
"""Of a block: codec, position in the order, offset in that file, bytes once unpacked."""
END = pack_data(HEADER.pack(255, 0, 0, 0))
"""The frame after the last block."""
BLOCK_LIMIT = 256 << 10
HELD = 16 << 20
"""Bytes that wait for all targets together."""
PATIENCE = 2.0
"""Seconds that targets which are ready wait for one that is not."""
GATHERING = 3.0
"""Seconds that the first target waits for the others before the source is read."""
SLOW = 8 << 20
"""Bytes a second below which a link gains by compression, about what zlib packs a second of in one thread on a busy
host."""
MEASURED = 0.5
"""Seconds over which a link is measured."""


class Sink(Protocol):
    """Where a target's frames go; both raise a LinkError when its link ends."""

    def write(self, frame: bytes, /) -> None: ...

    async def drain(self) -> None: ...


class Sending(Protocol):
    """The source's side."""

    async def send(self, files: Sequence[int], size: int, *, compress: bool, take: TakeData) -> None:
        """Has these files sent; `take` gets each block. Raises a LinkError or CopyError."""

    def pace(self, *, compress: bool) -> None:
        """Says whether the blocks from now on are compressed."""


class _Frame:
    """A block on its way; counts against the memory until the last target has it."""

    __slots__ = ("data", "holders")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.holders = 0


class Feed:
    """One target's share of what is read."""

    def __init__(self, sink: Sink, wanted: Iterable[int]) -> None:
        self.sink = sink
        self.wanted = frozenset(wanted)
        """Indexes into the entries; what is still missing before each pass."""
        self.is_left_behind = False
        """Whether it was too slow for the others in the last pass."""
        self.is_gone = False
        self.begun: asyncio.Event = asyncio.Event()
        """Set once a pass with this target begins; `order` is set then."""
        self.order: tuple[int, ...] = ()
        self.rate = 0.0
        """Bytes a second that its link took of late; 0 while it has not been kept busy."""
        self._queue: deque[_Frame] = deque()
        self._under_way: _Frame | None = None
        self._news = asyncio.Event()
        self._is_complete = False
        self._counts: list[int] = []

    @property
    def is_idle(self) -> bool:
        """Whether it waits for more."""
        return not self._queue and self._under_way is None

    @property
    def backlog(self) -> int:
        """Bytes that wait for it."""
        return sum(len(frame.data) for frame in self._queue)

    def begin(self, order: tuple[int, ...]) -> None:
        """Takes part in a pass over the files of this order."""
        self.order = order
        self.is_left_behind = self._is_complete = False
        self._counts = [0, *accumulate(index in self.wanted for index in order)]
        self.begun.set()

    def wants(self, first: int, last: int) -> bool:
        """Whether it wants one of the files from one position to another, both included."""
        return self._counts[last + 1] > self._counts[first]

    def put(self, frame: _Frame) -> None:
        frame.holders += 1
        self._queue.append(frame)
        self._news.set()

    def end(self) -> None:
        """Nothing more comes in this pass."""
        self._is_complete = True
        self._news.set()

    def drop(self) -> list[_Frame]:
        """Gives back what waits, for another pass."""
        dropped = [*self._queue]
        self._queue.clear()
        return dropped

    async def carry(self, taken: Callable[[_Frame], None]) -> None:
        """Brings the blocks of a pass to the target, and the end mark. Raises a LinkError."""
        now = asyncio.get_running_loop().time
        began, sent = now(), 0
        try:
            while True:
                while not self._queue:
                    if self._is_complete:
                        self.sink.write(END)
                        await self.sink.drain()
                        return
                    self._news.clear()
                    await self._news.wait()
                    began, sent = now(), 0
                frame = self._under_way = self._queue.popleft()
                self.sink.write(frame.data)
                await self.sink.drain()
                sent += len(frame.data)
                self._under_way = None
                taken(frame)
                if (passed := now() - began) >= MEASURED:
                    self.rate, began, sent = sent / passed, now(), 0
        finally:
            if self._under_way is not None:
                taken(self._under_way)
                self._under_way = None
            for frame in self.drop():
                taken(frame)


class Pump:
    """Serves feeds in passes, until none wants anything any more.

    A target that can't keep up with the others is left behind in a pass and gets one of its own afterwards. What a
    target's link raises is that target's matter alone; what the source's raises ends all.
    """

    def __init__(
        self, source: Sending, entries: Sequence[Entry], *, held: int = HELD, patience: float = PATIENCE
    ) -> None:
        self._source = source
        self._now = asyncio.get_running_loop().time
        self._sizes = [entry.size for entry in entries]
        self._awaited = 0
        self._waiting: list[Feed] = []
        self._limit = held
        self._patience = patience
        self._held = 0
        self._full_since: float | None = None
        self._room = asyncio.Event()
        self._news = asyncio.Event()
        self._active: list[Feed] = []
        self._ends: list[int] = []
        self._compress = False
        self._read, self._waited, self._source_rate = 0, 0.0, 0.0
        """Bytes that came while nothing was held up, the seconds that took, and both at the last measurement."""
        self._ready_at = 0.0
        self.failure: LinkError | CopyError | None = None
        """What ended the source."""
        self.is_over = False
        self.passes = 0
        """Times that the source was read."""

    # ---- the targets

    def announce(self) -> None:
        """Says that a target is about to `join`, or to be excused; the others wait for it a little."""
        self._awaited += 1

    def excuse(self) -> None:
        """Says that an announced target is ready, or will not come."""
        self._awaited -= 1
        self._news.set()

    def join(self, feed: Feed) -> None:
        """Has a target take part in the next pass; `feed.begun` is set then, or when the source has failed."""
        feed.begun.clear()
        self._waiting.append(feed)
        self._news.set()
        if self.failure is not None:
            feed.begun.set()

    def leave(self, feed: Feed) -> None:
        """Takes a target out, whatever it still lacks."""
        feed.is_gone = True
        if feed in self._waiting:
            self._waiting.remove(feed)
        for frame in feed.drop():
            self.taken(frame)
        self._news.set()

    # ---- the source

    async def run(self) -> None:
        """Reads the source for all targets until `close`. What ends the source is in `failure` afterwards, and every
        feed is woken."""
        try:
            while await self._gather():
                await self._pass()
        except (LinkError, CopyError) as error:
            self.fail(error)

    def fail(self, failure: LinkError | CopyError) -> None:
        """The source can't be read: tells all that wait for it."""
        self.failure = failure
        for feed in (*self._waiting, *self._active):
            feed.begun.set()
            feed.end()

    def close(self) -> bool:
        """No target needs anything any more: ends `run`, unless it is reading, when it has to be cancelled; whether it
        ends."""
        self.is_over = True
        self._news.set()
        return not self._active

    async def _gather(self) -> bool:
        """Waits for targets; False when no more will come."""
        while not self._waiting:
            if self.is_over:
                return False
            self._news.clear()
            await self._news.wait()
        try:
            async with asyncio.timeout(GATHERING):
                # Who is in a pass may have to come again: better together.
                while self._awaited > 0:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass
        return True

    async def _pass(self) -> None:
        self._active, self._waiting = self._waiting, []
        order = tuple(sorted(set[int]().union(*(feed.wanted for feed in self._active))))
        if not order:
            for feed in self._active:
                feed.begin(order)
                feed.end()
            self._active = []
            return
        self.passes += 1
        self._compress = self._is_slow()
        self._ready_at = self._now()
        self._ends = list(accumulate(self._sizes[index] for index in order))
        for feed in self._active:
            feed.begin(order)
        try:
            await self._source.send(order, self._ends[-1], compress=self._compress, take=self._take)
        finally:
            for feed in self._active:
                feed.end()
            self._active = []

    async def _take(self, block: bytes) -> None:
        """Routes a block to the targets that want one of its files; waits while too much waits for them."""
        self._mind_pace(block, self._now() - self._ready_at)
        first, last = self._files_in(block)
        frame = _Frame(pack_data(block))
        for feed in self._active:
            if not feed.is_gone and not feed.is_left_behind and feed.wants(first, last):
                feed.put(frame)
        if frame.holders:
            self._held += len(frame.data)
        while self._held > self._limit:
            # It is full from the first time on until there is plenty of room again: a slow link makes a little all
            # the time.
            if self._full_since is None:
                self._full_since = self._now()
            self._room.clear()
            try:
                async with asyncio.timeout_at(self._full_since + self._patience):
                    await self._room.wait()
            except TimeoutError:
                self._leave_behind()
                self._full_since = self._now()
        self._ready_at = self._now()

    def taken(self, frame: _Frame) -> None:
        """Says that a target has got a block, or does not want it any more."""
        frame.holders -= 1
        if frame.holders == 0:
            self._held -= len(frame.data)
            self._make_room()

    def _make_room(self) -> None:
        if self._held <= self._limit:
            self._room.set()
        if self._held <= self._limit // 2:
            self._full_since = None

    def _files_in(self, block: bytes) -> tuple[int, int]:
        """The first and last position whose file has bytes in a block."""
        try:
            codec, position, offset, length = HEADER.unpack_from(block)
            start = (self._ends[position - 1] if position else 0) + offset
            end = start + length
            if codec > 1 or length == 0 or length > BLOCK_LIMIT or end > self._ends[-1]:
                raise ValueError
        except (struct.error, ValueError, IndexError):
            raise AgentFailed("the source sent a block that fits no file it was asked for") from None
        return position, bisect_left(self._ends, end)

    def _leave_behind(self) -> None:
        """Goes on without the slowest target, if others wait for more."""
        active = [feed for feed in self._active if not feed.is_gone and not feed.is_left_behind]
        if any(feed.is_idle for feed in active):
            slowest = max(active, key=lambda feed: feed.backlog)
            slowest.is_left_behind = True
            slowest.end()
            for frame in slowest.drop():
                self.taken(frame)

    def _mind_pace(self, block: bytes, waited: float) -> None:
        """Has the source compress once a link proves to be slow: a target's, or the source's own."""
        self._read += len(block)
        self._waited += waited
        if self._waited >= MEASURED:
            self._source_rate = self._read / self._waited
            self._read, self._waited = 0, 0.0
        if not self._compress and self._is_slow():
            self._compress = True
            self._source.pace(compress=True)

    def _is_slow(self) -> bool:
        rates = [feed.rate for feed in self._active if not feed.is_gone and not feed.is_left_behind]
        return any(0 < rate < SLOW for rate in (*rates, self._source_rate))
