"""A running agent on a host: requests and their answers, and the samples it sends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import count
from weakref import WeakSet

import msgspec

from dflash_console.bounds import Time
from dflash_console.config import HostConfig
from dflash_console.errors import AgentFailed, LinkError, Unreachable
from dflash_console.link.allowance import Allowance
from dflash_console.link.boot import boot, ending
from dflash_console.link.channel import Channel
from dflash_console.link.clean import clean, decode
from dflash_console.link.frames import MESSAGE, Splitter, pack
from dflash_console.link.inbox import Inbox, News
from dflash_console.link.process import Connection, Process
from dflash_console.model import PROTOCOL, Answer, FromAgent, Hello, WatchSpec

__all__ = ["Pong", "Session"]

BOOT_TIMEOUT = 20.0
"""Seconds. A login with pyenv shims takes 0.3, one with a home on a slow NFS several."""
ANSWER_TIMEOUT = 10.0
END_GRACE = 1.0
AT_ONCE, PER_SECOND = 10_000, 100
"""Messages that an agent may send. At the shortest interval a busy one sends some twenty a second."""


class Pong(msgspec.Struct, frozen=True):
    """The answer to a ping."""

    latency_ms: float
    """The round trip."""
    at: float
    """The host's clock."""


class Session:
    """An agent that has said hello. Owns the connection it was opened on.

    Everything arrives by callback and is decoded at once; there is no task of its own, and at most one switch
    of tasks for a sample: to the one that iterates over `messages`.
    """

    hello: Hello

    def __init__(self, connection: Connection, process: Process, host: HostConfig) -> None:
        self.connection = connection
        self._host = host
        self._process = process
        self._name = host.name
        self._splitter = Splitter()
        self._allowance = Allowance(AT_ONCE, PER_SECOND)
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._channels: WeakSet[Channel] = WeakSet()
        self._inbox = Inbox()
        self._news = asyncio.Event()
        self._greeting: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._failure: LinkError | None = None

    @classmethod
    async def open(
        cls,
        connection: Connection,
        host: HostConfig,
        *,
        timeout: float = BOOT_TIMEOUT,  # noqa: ASYNC109
    ) -> Session:
        """Starts the agent and checks its hello. Raises a LinkError, and leaves the connection open then."""
        process = await connection.start()
        try:
            first = await boot(process, host, timeout)
            session = cls(connection, process, host)
            session._received(first)
            process.deliver(session._received, session._ended)
            session.hello = await session._greeted(timeout)
        except BaseException:
            await process.close(0.0)
            raise
        return session

    async def watch(self, spec: WatchSpec) -> None:
        """Tells the agent what to watch; samples come from then on. Raises a LinkError."""
        fields = msgspec.to_builtins(spec)
        await self.request(fields.pop("do"), ANSWER_TIMEOUT, **fields)

    async def ping(self) -> Pong:
        """A round trip to the agent, which also keeps it alive. Raises a LinkError."""
        start = time.perf_counter()
        answer = await self.request("ping", ANSWER_TIMEOUT)
        latency = (time.perf_counter() - start) * 1000
        try:
            return Pong(latency, msgspec.json.decode(answer, type=_At).at)
        except msgspec.ValidationError as error:
            raise AgentFailed(f"the agent answered a ping with nonsense: {clean(str(error), 200)}") from None

    async def request(self, do: str, timeout: float, **fields: object) -> msgspec.Raw:  # noqa: ASYNC109
        """What the agent answers, as JSON whose strings are clean.

        Raises Unreachable when no answer comes in `timeout` seconds, AgentFailed when the agent refuses, and
        whatever ended the link.
        """
        self._raise_failure()
        number = next(self._numbers)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self._process.write(pack({"do": do, "id": number, **fields}))
            async with asyncio.timeout(timeout):
                got = await answer
        except TimeoutError:
            raise Unreachable(
                f"{self._name}: no answer to `{do}` in {timeout:.0f} s; network, host or agent hangs"
            ) from None
        finally:
            del self._asked[number]
        if got.error is not None:
            raise AgentFailed(f"the agent on {self._name} refused `{do}`: {got.error}")
        return got.ok

    async def messages(self) -> AsyncIterator[News]:
        """Samples and notes as they come, until the link or the agent ends, which raises a LinkError.

        For one consumer. What a slow one has not taken yet is merged: it sees fewer samples, never old ones.
        """
        while True:
            while self._inbox:
                yield self._inbox.take()
            self._raise_failure()
            self._news.clear()
            await self._news.wait()

    async def channel(self) -> Channel:
        """A copy process on the same connection, which ends with it; whoever asks closes it. Raises a LinkError."""
        self._raise_failure()
        channel = await Channel.open(self.connection, self._host)
        self._channels.add(channel)
        return channel

    async def close(self, why: LinkError | None = None) -> None:
        """Ends the agent (it gets a second to do so by itself), then the connection. Never raises.

        `why` is what requests that still wait are told, those of its channels too.
        """
        self._fail(why or Unreachable(f"the session with {self._name} was closed"))
        try:
            await self._process.close(END_GRACE)
        finally:
            for channel in self._channels:
                channel.blame(why)
            await self.connection.close()

    # ---- what arrives; called back, must not raise

    def _received(self, data: bytes) -> None:
        if self._failure is not None:
            return
        try:
            frames = self._splitter.feed(data)
            if not self._allowance.covers(len(frames)):
                raise AgentFailed(
                    f"the agent's messages have no end: more than {AT_ONCE} at once and {PER_SECOND} a second"
                )
            for kind, payload in frames:
                if kind != MESSAGE:
                    raise AgentFailed("the agent sent raw data where only messages may come")
                self._take(decode(payload, self._asked))
        except AgentFailed as error:
            self._fail(AgentFailed(f"{self._name}: {error}"))
            self._process.kill()

    def _take(self, message: FromAgent) -> None:
        if not self._greeting.done():
            self._greet(message)
        elif isinstance(message, Answer):
            asked = self._asked.get(message.id)
            # An answer that nobody waits for any more came too late.
            if asked is not None and not asked.done():
                asked.set_result(message)
        elif isinstance(message, Hello):
            raise AgentFailed("the agent said hello twice")
        else:
            self._inbox.put(message)
            self._news.set()

    def _greet(self, message: FromAgent) -> None:
        if not isinstance(message, Hello):
            raise AgentFailed(f"the agent began with {type(message).__name__.lower()}, not with hello")
        if message.protocol != PROTOCOL:
            raise AgentFailed(
                f"the agent speaks protocol {message.protocol}, this console {PROTOCOL}: is another version "
                "of the console half installed?"
            )
        self._greeting.set_result(message)

    def _ended(self) -> None:
        self._fail(ending(self._process, self._name))

    # ----

    async def _greeted(self, limit: float) -> Hello:
        try:
            async with asyncio.timeout(limit):
                return await self._greeting
        except TimeoutError:
            raise AgentFailed(
                f"the agent on {self._name} started and did not say hello in {limit:.0f} s"
            ) from None

    def _fail(self, failure: LinkError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._news.set()
        if not self._greeting.done():
            self._greeting.set_exception(_again(failure))
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(_again(failure))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise _again(self._failure)


class _At(msgspec.Struct):
    at: Time


def _again(failure: LinkError) -> LinkError:
    """A copy to raise: one exception raised in several tasks would gather all their tracebacks."""
    return type(failure)(*failure.args)
