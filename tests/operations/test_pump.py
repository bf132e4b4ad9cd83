"""One source, many targets: read once, bounded memory, nobody held up for long. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest

from dflash_console.copies import Entry
from dflash_console.errors import AgentFailed, CopyError, LinkError, Unreachable
from dflash_console.link.frames import Splitter
from dflash_console.operations.pump import BLOCK_LIMIT, HEADER, HELD, Feed, Pump
from tests.fleet.virtual import run_virtual
from tests.operations.copies import entry

MIB = 1 << 20


class Source:
    """Sends the files that are asked for as blocks, as fast as they are taken or at a rate."""

    def __init__(self, entries: Sequence[Entry], rate: float = 0.0) -> None:
        self.entries = entries
        self.rate = rate
        self.asked: list[tuple[int, ...]] = []
        self.compress: list[bool] = []
        self.fails_after: tuple[int, Exception] | None = None
        self.spoil: Callable[[bytes], bytes] = lambda block: block

    async def send(
        self, files: Sequence[int], size: int, *, compress: bool, take: Callable[[bytes], Awaitable[None]]
    ) -> None:
        self.asked.append(tuple(files))
        self.compress.append(compress)
        sizes = [self.entries[index].size for index in files]
        assert size == sum(sizes)
        position = offset = sent = 0
        while position < len(sizes):
            if offset == sizes[position]:
                position, offset = position + 1, 0
                continue
            start, length, at, rest = (position, offset), 0, position, sizes[position] - offset
            while length < BLOCK_LIMIT:
                step = min(rest, BLOCK_LIMIT - length)
                length, rest = length + step, rest - step
                if rest == 0:
                    if at + 1 == len(sizes):
                        break
                    at, rest = at + 1, sizes[at + 1]
            position, offset = at, sizes[at] - rest
            if self.fails_after is not None and sent >= self.fails_after[0]:
                raise self.fails_after[1]
            sent += length
            await asyncio.sleep(length / self.rate if self.rate else 0)
            await take(self.spoil(HEADER.pack(0, *start, length) + bytes(length)))

    def pace(self, *, compress: bool) -> None:
        self.compress.append(compress)


class Target:
    """A link that takes so many bytes a second, and a receiver that notes which files came whole."""

    def __init__(
        self, pump: Pump, entries: Sequence[Entry], wanted: Sequence[int], rate: float = 0.0
    ) -> None:
        self.feed = Feed(self, wanted)
        self.rate = rate
        self.got: dict[int, int] = {}
        self.frames = 0
        self.passes = 0
        self.was_left_behind = False
        self.done_at = 0.0
        self.lost: LinkError | None = None
        self.frozen = asyncio.Event()
        self.frozen.set()
        self._pump = pump
        self._entries = entries
        self._splitter = Splitter()
        self._pending = 0

    def write(self, frame: bytes) -> None:
        if self.lost is not None:
            raise self.lost
        self._pending += len(frame)
        ((_, block),) = self._splitter.feed(frame)
        codec, position, offset, length = HEADER.unpack_from(block)
        if codec == 255:
            return
        self.frames += 1
        while length:
            index = self.feed.order[position]
            step = min(length, self._entries[index].size - offset)
            if index in self.feed.wanted:
                self.got[index] = self.got.get(index, 0) + step
            position, offset, length = position + 1, 0, length - step

    async def drain(self) -> None:
        await self.frozen.wait()
        if self.rate:
            await asyncio.sleep(self._pending / self.rate)
        self._pending = 0

    async def receive(self) -> None:
        """All passes, up to the end."""
        try:
            while self.feed.wanted:
                self._pump.join(self.feed)
                if self.passes == 0:
                    self._pump.excuse()
                await self.feed.begun.wait()
                if self._pump.failure is not None:
                    raise self._pump.failure
                self.passes += 1
                self.got = {
                    index: size for index, size in self.got.items() if size == self._entries[index].size
                }
                await self.feed.carry(self._pump.taken)
                self.was_left_behind |= self.feed.is_left_behind
                self.feed.wanted = frozenset(
                    index for index in self.feed.wanted if self.got.get(index, 0) != self._entries[index].size
                )
                if self.feed.wanted and self._pump.failure is not None:
                    raise self._pump.failure
        finally:
            self._pump.leave(self.feed)
            self.done_at = asyncio.get_running_loop().time()


class World:
    """A pump over one source with some targets."""

    def __init__(self, sizes: Sequence[int], *, rate: float = 0.0, held: int = HELD) -> None:
        self.entries = [entry(f"sglang/{number}.py", size=size) for number, size in enumerate(sizes)]
        self.source = Source(self.entries, rate)
        self.pump = Pump(self.source, self.entries, held=held)
        self.targets: list[Target] = []
        self.most_held = 0

    def target(self, wanted: Sequence[int] | None = None, rate: float = 0.0) -> Target:
        target = Target(self.pump, self.entries, range(len(self.entries)) if wanted is None else wanted, rate)
        self.targets.append(target)
        self.pump.announce()
        return target

    async def run(self) -> list[BaseException | None]:
        """All to their end; how each target ended."""
        async with asyncio.TaskGroup() as tasks:
            pumping = tasks.create_task(self.pump.run())
            watching = tasks.create_task(self._watch())
            ended = await asyncio.gather(
                *(target.receive() for target in self.targets), return_exceptions=True
            )
            if not self.pump.close():
                pumping.cancel()
            watching.cancel()
        return ended

    async def _watch(self) -> None:
        while True:
            self.most_held = max(self.most_held, self.pump._held)
            await asyncio.sleep(0.01)


def story(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(work())


def complete(world: World, target: Target) -> bool:
    return all(target.got.get(index, 0) == each.size for index, each in enumerate(world.entries))


SIZES = [0, 10, 300, BLOCK_LIMIT, 0, BLOCK_LIMIT + 1, 7, *([5000] * 400), 3 * MIB, 0, 1]


def test_every_target_gets_what_it_wants_in_one_reading() -> None:
    async def work() -> None:
        world = World(SIZES)
        every, some, last = world.target(), world.target([2, 5, 50, 51]), world.target([len(SIZES) - 1])
        assert await world.run() == [None] * 3
        assert complete(world, every)
        assert some.got == {index: SIZES[index] for index in (2, 5, 50, 51)}
        assert last.got == {len(SIZES) - 1: 1}
        assert last.frames == 1, "blocks without its file were brought to it"
        assert world.source.asked == [tuple(range(len(SIZES)))]

    story(work)


def test_only_what_somebody_wants_is_read() -> None:
    async def work() -> None:
        world = World([10] * 10)
        world.target([7, 1])
        world.target([4, 1])
        await world.run()
        assert world.source.asked == [(1, 4, 7)]

    story(work)


def test_no_more_waits_in_memory_than_allowed_however_slow_the_only_link() -> None:
    async def work() -> None:
        world = World([MIB] * 100, held=4 * MIB)
        slow = world.target(rate=0.5 * MIB)
        assert await world.run() == [None]
        assert complete(world, slow)
        assert world.most_held <= 4 * MIB + 2 * BLOCK_LIMIT
        assert not slow.was_left_behind, "nobody waited for it"
        assert world.pump.passes == 1

    story(work)


def test_a_slow_target_is_left_behind_and_gets_a_pass_of_its_own() -> None:
    async def work() -> None:
        world = World([MIB] * 100, held=8 * MIB)
        fast = [world.target(rate=100 * MIB) for _ in range(3)]
        slow = world.target(rate=1 * MIB)
        began = asyncio.get_running_loop().time()
        assert await world.run() == [None] * 4
        assert all(complete(world, target) for target in (*fast, slow))
        assert slow.was_left_behind
        assert not any(target.was_left_behind for target in fast)
        for target in fast:
            assert target.done_at - began < 15, "the slow one held it up"
        assert world.pump.passes == 2
        assert world.most_held <= 8 * MIB + 2 * BLOCK_LIMIT

    story(work)


def test_a_frozen_target_holds_nobody_up_and_its_loss_is_its_own() -> None:
    async def work() -> None:
        world = World([MIB] * 64, held=4 * MIB)
        well, frozen = world.target(rate=50 * MIB), world.target()
        frozen.frozen.clear()

        async def lose() -> None:
            await asyncio.sleep(20)
            frozen.lost = Unreachable("no answer")
            frozen.frozen.set()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(lose())
            ended = await world.run()
        assert ended[0] is None
        assert complete(world, well)
        assert isinstance(ended[1], Unreachable)
        assert well.done_at < frozen.done_at

    story(work)


def test_a_target_that_fails_frees_what_waited_for_it() -> None:
    async def work() -> None:
        world = World([MIB] * 64, held=4 * MIB)
        world.target(rate=50 * MIB)
        broken = world.target(rate=50 * MIB)

        async def lose() -> None:
            await asyncio.sleep(0.2)
            broken.lost = Unreachable("gone")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(lose())
            ended = await world.run()
        assert ended[0] is None
        assert isinstance(ended[1], Unreachable)
        assert world.pump._held == 0

    story(work)


@pytest.mark.parametrize("error", [Unreachable("ct129 is gone"), CopyError("x.py changed while it was read")])
def test_the_end_of_the_source_ends_every_target_in_its_words(error: Exception) -> None:
    async def work() -> None:
        world = World([MIB] * 20)
        world.source.fails_after = (5 * MIB, error)
        world.target()
        world.target([19])
        assert await world.run() == [error, error]

    story(work)


def test_a_target_that_has_all_before_the_source_fails_is_well() -> None:
    async def work() -> None:
        world = World([MIB] * 20)
        world.source.fails_after = (5 * MIB, Unreachable("ct129 is gone"))
        world.target([0, 1])
        assert await world.run() == [None]

    story(work)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda block: block[:5],
        lambda block: HEADER.pack(0, 99, 0, 10) + bytes(10),
        lambda block: HEADER.pack(9, 0, 0, 10) + bytes(10),
        lambda block: HEADER.pack(0, 0, 1 << 60, 10) + bytes(10),
        lambda block: HEADER.pack(0, 0, 0, 1 << 31) + bytes(10),
        lambda block: HEADER.pack(0, 0, 0, 0),
    ],
)
def test_a_block_that_fits_no_file_ends_the_source(spoil: Callable[[bytes], bytes]) -> None:
    async def work() -> None:
        world = World([MIB] * 3)
        world.source.spoil = spoil
        world.target()
        (error,) = await world.run()
        assert isinstance(error, AgentFailed)

    story(work)


@pytest.mark.parametrize(
    ("source", "link", "compressed"),
    [
        (0.0, 100 * MIB, False),
        (0.0, 1 * MIB, True),
        (1 * MIB, 100 * MIB, True),
        (100 * MIB, 100 * MIB, False),
    ],
)
def test_blocks_are_compressed_where_a_link_is_slow(source: float, link: float, compressed: bool) -> None:
    async def work() -> None:
        world = World([MIB] * 60, rate=source, held=4 * MIB)
        world.target(rate=link)
        await world.run()
        assert world.source.compress == [False, *([True] if compressed else [])]

    story(work)


def test_targets_that_are_ready_wait_for_the_others_only_a_little() -> None:
    async def work() -> None:
        world = World([MIB] * 10)
        early, late = world.target(), world.target()

        async def hesitate() -> None:
            await asyncio.sleep(30)

        receive = late.receive

        async def receive_late() -> None:
            await hesitate()
            await receive()

        late.receive = receive_late  # type: ignore[method-assign]
        began = asyncio.get_running_loop().time()
        assert await world.run() == [None, None]
        assert early.done_at - began < 10
        assert world.pump.passes == 2

    story(work)
