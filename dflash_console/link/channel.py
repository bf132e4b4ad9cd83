"""A copy process on a host: requests one after another, their parts, their progress, and raw data both ways."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

import msgspec

from dflash_console.bounds import Bytes, Count
from dflash_console.config import HostConfig
from dflash_console.copies import LISTED_AT_ONCE, MOST_FILES, Entry
from dflash_console.errors import AgentFailed, CopyError, LinkError, Unreachable
from dflash_console.harmless import is_harmless
from dflash_console.link.boot import boot, ending
from dflash_console.link.clean import clean, decode
from dflash_console.link.frames import MESSAGE, Splitter, pack
from dflash_console.link.process import Connection, Process
from dflash_console.model import PROTOCOL, Answer, Hello

__all__ = ["Channel", "Listed", "Progress"]

BOOT_TIMEOUT = 20.0
END_GRACE = 1.0
TIDY_GRACE = 20.0
"""Seconds in which an agent that has begun a copy removes its stage."""
PING_PAUSE = 10.0
"""Seconds without a word of ours after which the agent is told that the console is still there."""
ANSWER_LIMIT = 2 * MOST_FILES
"""Values in an answer: `want` tells a number for each file."""
LISTING_LIMIT = 64 << 20
"""Bytes of all parts of a listing."""

Progress = Callable[[int, int], None]
"""Told files and bytes so far."""
TakeData = Callable[[bytes], Awaitable[None]]
TakeEntries = Callable[[Sequence[Entry]], Awaitable[None]]


class _Kind(msgspec.Struct, gc=False):
    type: str
    id: Count = 0


class _Progress(msgspec.Struct, gc=False):
    files: Count = 0
    bytes: Bytes = 0


class _Entries(msgspec.Struct, gc=False):
    entries: list[Entry]


_kind = msgspec.json.Decoder(_Kind)
_progress = msgspec.json.Decoder(_Progress)
_entries = msgspec.json.Decoder(_Entries)


class Listed:
    """What an answer's parts brought: entries whose names can be trusted on a screen and in a comparison."""

    def __init__(self, give: TakeEntries | None = None) -> None:
        """`give` gets the entries of each part, and they are not kept; while it waits, nothing more is read and the
        host is held up."""
        self.entries: list[Entry] = []
        self.strange: list[str] = []
        """Names, made harmless, that hold characters which can't be seen or which a terminal acts on: such an entry is
        not among the others, since what is shown would not be what is meant."""
        self.count = 0
        """Entries that came, strange ones too."""
        self._give = give
        self._size = 0

    def take(self, payload: bytes) -> None:
        """Takes the entries of a part. Raises AgentFailed."""
        self._size += len(payload)
        try:
            entries = _entries.decode(payload).entries
        except (ValueError, msgspec.MsgspecError) as error:
            raise AgentFailed(
                f"the agent sent a listing that does not fit: {clean(str(error), 200)}"
            ) from None
        if (
            len(entries) > LISTED_AT_ONCE
            or self.count + len(entries) > MOST_FILES
            or self._size > LISTING_LIMIT
        ):
            raise AgentFailed(
                f"the agent's listing has no end: more than {MOST_FILES} files, or {LISTING_LIMIT >> 20} MiB of names"
            )
        self.count += len(entries)
        # All that can do harm is escaped in the agent's JSON, so that most parts need no look at each name.
        if b"\\" in payload or b"\x7f" in payload or not payload.isascii():
            strange = [e for e in entries if not (is_harmless(e.path) and is_harmless(e.content))]
            self.strange += [clean(entry.path) for entry in strange]
            entries = [e for e in entries if is_harmless(e.path) and is_harmless(e.content)]
        self.entries += entries

    async def hand_on(self) -> None:
        """Gives away what came, if somebody takes it."""
        if self._give is not None and self.entries:
            entries, self.entries = self.entries, []
            await self._give(entries)


class Channel:
    """A copy process that has said hello; it ends with the connection, or when this is closed.

    Its requests are answered in their order, so that several may be asked before the first answer is waited for. One
    task waits for an answer at a time; others may write meanwhile.
    """

    def __init__(self, process: Process, name: str) -> None:
        self.name = name
        self.hello: Hello
        self.sent = 0
        """Bytes written to the process."""
        self.received = 0
        self.is_used_up = False
        """Whether it did something that the next user must not find: it is then closed, not kept for another one."""
        self._process = process
        self._splitter = Splitter()
        self._frames: deque[tuple[int, bytes]] = deque()
        self._numbers = count(1)
        self._loop = asyncio.get_running_loop()
        self._wrote = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._failure: LinkError | None = None
        self._pings: set[int] = set()
        """Numbers of those that were not answered yet."""
        self._far = (0, 0)
        """The most files and bytes that were told of the request that is waited for."""

    @classmethod
    async def open(
        cls,
        connection: Connection,
        host: HostConfig,
        *,
        timeout: float = BOOT_TIMEOUT,  # noqa: ASYNC109
    ) -> Channel:
        """Starts the copy process on a connection that stands. Raises a LinkError."""
        process = await connection.start()
        channel = cls(process, host.name)
        try:
            channel._feed(await boot(process, host, timeout, "copy"))
            channel._greet(await channel._frame(channel._loop.time() + timeout, timeout))
        except BaseException:
            await process.close(0.0)
            raise
        channel._wrote = channel._loop.time()
        channel._keep_alive()
        return channel

    @property
    def has_failed(self) -> bool:
        """Whether it can't be used any more."""
        return self._failure is not None or self._process.has_ended

    # ---- requests

    def ask(self, do: str, /, **fields: object) -> int:
        """Sends a request; gives back its number, for `answer`."""
        number = next(self._numbers)
        self.write(pack({"do": do, "id": number, **fields}))
        return number

    async def answer(
        self,
        number: int,
        silence: float,
        *,
        listed: Listed | None = None,
        progress: Progress | None = None,
        data: TakeData | None = None,
        whole: float = math.inf,
    ) -> msgspec.Raw:
        """The answer to a request, as JSON whose strings are clean.

        `data` gets each raw frame that comes before it; while it waits, nothing more is read and the host is held up.
        Raises CopyError when the agent says no, Unreachable when it gets no further for `silence` seconds or the answer
        does not come within `whole` ones, and whatever ended the link.
        """
        end, self._far = self._loop.time() + whole, (0, 0)
        until = self._loop.time() + silence
        while True:
            kind, payload = await self._frame(min(until, end), whole if end < until else silence)
            if kind != MESSAGE:
                if data is None:
                    raise self._fail(
                        AgentFailed(f"{self.name}: the agent sent raw data that nobody asked for")
                    )
                await data(payload)
                until = self._loop.time() + silence
                continue
            try:
                answer, is_word = self._understood(payload, number, listed, progress)
            except AgentFailed as error:
                raise self._fail(AgentFailed(f"{self.name}: {error}")) from None
            if listed is not None:
                began = self._loop.time()
                await listed.hand_on()
                # What we have held up ourselves is not the host's time.
                held = self._loop.time() - began
                until, end = until + held, end + held
            if answer is None:
                # Who only repeats what is known is as good as silent.
                until = self._loop.time() + silence if is_word else until
                if self._loop.time() >= min(until, end):
                    raise self._late(whole if end < until else silence)
                continue
            if answer.error is not None:
                raise CopyError(f"{self.name}: {answer.error}")
            return answer.ok

    async def request(
        self,
        do: str,
        silence: float,
        /,
        *,
        listed: Listed | None = None,
        progress: Progress | None = None,
        data: TakeData | None = None,
        whole: float = math.inf,
        **fields: object,
    ) -> msgspec.Raw:
        """Asks, and waits for the answer; as `answer`."""
        number = self.ask(do, **fields)
        return await self.answer(number, silence, listed=listed, progress=progress, data=data, whole=whole)

    def _understood(
        self, payload: bytes, number: int, listed: Listed | None, progress: Progress | None
    ) -> tuple[Answer | None, bool]:
        """The answer to that request, None for any other message, which has been dealt with; and whether it says
        that the work goes on."""
        try:
            kind = _kind.decode(payload)
            if kind.type == "progress":
                return None, kind.id == number and self._is_further(_progress.decode(payload), progress)
        except (ValueError, msgspec.MsgspecError) as error:
            raise AgentFailed(f"the agent sent no message of ours: {clean(str(error), 200)}") from None
        if kind.type == "part":
            before = listed.count if listed is not None else 0
            if listed is not None and kind.id == number:
                listed.take(payload)
            return None, listed is not None and listed.count > before
        message = decode(payload, {number}, limit=ANSWER_LIMIT)
        if not isinstance(message, Answer):
            raise AgentFailed(f"a copy's agent sends no {type(message).__name__.lower()}")
        if message.id == number:
            return message, True
        # As many as we asked for, and no more: an agent that waits for others' blocks has nothing else to say.
        is_pong = message.id in self._pings
        self._pings.discard(message.id)
        return None, is_pong

    def _is_further(self, told: _Progress, progress: Progress | None) -> bool:
        if progress is not None:
            progress(told.files, told.bytes)
        far = (told.files, told.bytes)
        is_further = far[0] > self._far[0] or far[1] > self._far[1]
        self._far = (max(far[0], self._far[0]), max(far[1], self._far[1]))
        return is_further

    # ---- bytes

    def grant(self, count: int) -> None:
        """Lets the host send `count` bytes more than any may: they are about to be asked for."""
        self._process.grant(count)

    def revoke(self) -> None:
        """Ends all grants: what was asked for has come."""
        self._process.revoke()

    def write(self, frame: bytes) -> None:
        """Sends a whole frame; `drain` says when the link takes more."""
        self.sent += len(frame)
        self._wrote = self._loop.time()
        self._process.write(frame)

    async def drain(self) -> None:
        """Waits until the link takes more. Raises what ended the link."""
        await self._process.drain()
        if self._process.has_ended:
            raise self._fail(ending(self._process, self.name))

    def blame(self, why: LinkError | None) -> None:
        """Says what its link is about to be ended for; otherwise it looks as if the host had closed it."""
        self._process.failure = self._process.failure or why

    async def close(self) -> None:
        """Ends the copy process; it gets time to leave its host tidy. Never raises."""
        if self._timer is not None:
            self._timer.cancel()
        await self._process.close(TIDY_GRACE if self.is_used_up else END_GRACE)

    async def _frame(self, until: float, seconds: float) -> tuple[int, bytes]:
        """The next frame, which has to come up to a point of the loop's time, `seconds` from when it was begun to be
        waited for."""
        if self._frames:
            return self._frames.popleft()
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args)
        try:
            async with asyncio.timeout_at(until):
                while not self._frames:
                    piece = await self._process.read()
                    if not piece:
                        await self._process.wait()
                        raise self._fail(ending(self._process, self.name))
                    self._feed(piece)
        except TimeoutError:
            raise self._late(seconds) from None
        return self._frames.popleft()

    def _late(self, seconds: float) -> LinkError:
        words = f"{self.name}: the copy got no further for {seconds:.0f} s; its disk or the host hangs"
        return self._fail(Unreachable(words))

    def _feed(self, piece: bytes) -> None:
        self.received += len(piece)
        try:
            self._frames.extend(self._splitter.feed(piece))
        except AgentFailed as error:
            raise self._fail(AgentFailed(f"{self.name}: {error}")) from None

    # ----

    def _greet(self, frame: tuple[int, bytes]) -> None:
        try:
            hello = decode(frame[1], ()) if frame[0] == MESSAGE else None
        except AgentFailed as error:
            raise AgentFailed(f"{self.name}: {error}") from None
        if not isinstance(hello, Hello):
            raise AgentFailed(f"{self.name}: the copy's agent did not begin with hello")
        if hello.protocol != PROTOCOL:
            raise AgentFailed(
                f"{self.name}: the copy's agent speaks protocol {hello.protocol}, this console {PROTOCOL}: is another "
                "version of the console half installed?"
            )
        self.hello = hello

    def _keep_alive(self) -> None:
        if self.has_failed:
            return
        if self._loop.time() - self._wrote >= PING_PAUSE:
            self._pings.add(self.ask("ping"))
        rest = PING_PAUSE - (self._loop.time() - self._wrote)
        self._timer = self._loop.call_later(max(rest, 0.1), self._keep_alive)

    def _fail(self, failure: LinkError) -> LinkError:
        """Notes why it can't be used any more; an agent that does not keep to the protocol is ended."""
        if self._failure is None:
            self._failure = failure
            if isinstance(failure, AgentFailed):
                self._process.kill()
        return failure
