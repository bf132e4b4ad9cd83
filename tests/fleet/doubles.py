"""A link without a host behind it, told by the test what to do."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable

import msgspec

from dflash_console.config import Config, ConsoleConfig, HostConfig, PackageConfig
from dflash_console.errors import LinkError, Unreachable
from dflash_console.fleet import Fleet, HostView, Pace
from dflash_console.link import Channel
from dflash_console.model import GpuReport, Note, Sample, WatchSpec
from tests import pictures


class Agent:
    """A session with an agent that says what the test has it say."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Sample | Note | Exception] = asyncio.Queue()
        self.answers_pings = True
        self.is_closed = False
        self.told: LinkError | None = None
        """What requests that still wait are told."""
        self.requests: list[str] = []
        self.spec: WatchSpec | None = None
        self.at = 1_700_000_000.0

    async def watch(self, spec: WatchSpec) -> None:
        self.spec = spec

    async def request(self, do: str, timeout: float, **fields: object) -> msgspec.Raw:  # noqa: ASYNC109
        if do == "ping" and not self.answers_pings:
            await asyncio.sleep(timeout)
            raise Unreachable(f"no answer to `ping` in {timeout:.0f} s")
        if do == "ping":
            await asyncio.sleep(0.002)
        else:
            self.requests.append(do)
        return msgspec.Raw(b"null")

    async def messages(self) -> AsyncIterator[Sample | Note]:
        while True:
            message = await self.queue.get()
            if isinstance(message, Exception):
                raise message
            yield message

    async def channel(self) -> Channel:
        raise Unreachable("this agent starts no copies")

    async def close(self, why: LinkError | None = None) -> None:
        self.is_closed = True
        self.told = why

    def say(self, message: Sample | Note | Exception) -> None:
        self.queue.put_nowait(message)

    def tell_all(self) -> None:
        """A first sample with every section."""
        whole = pictures.snapshot()
        self.say(Sample(whole.at, whole.host, whole.gpu, whole.venvs, whole.units, whole.paths))

    def tick(self, report: GpuReport | None = None, after: float = 1.0) -> None:
        """The sample of one interval."""
        self.at += after
        self.say(Sample(at=self.at, gpu=report or pictures.report()))


class Network:
    """Opens agents. `down[name]` is the error that a host answers with; `stuck` hosts never answer."""

    def __init__(self) -> None:
        self.down: dict[str, Exception] = {}
        self.stuck: set[str] = set()
        self.agents: dict[str, list[Agent]] = defaultdict(list)
        self.tries: dict[str, list[float]] = defaultdict(list)

    async def open(self, host: HostConfig) -> Agent:
        self.tries[host.name].append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.1)
        if host.name in self.stuck:
            await asyncio.sleep(8.0)
            raise Unreachable("no answer in 8 s")
        if host.name in self.down:
            raise self.down[host.name]
        agent = Agent()
        self.agents[host.name].append(agent)
        return agent


def config(*names: str, interval: float = 1.0) -> Config:
    return Config(
        ConsoleConfig(interval=interval), PackageConfig(), {name: HostConfig(name) for name in names}
    )


class Scene:
    """A fleet on a network of doubles, inside a virtual loop."""

    def __init__(self, *names: str, pace: Pace | None = None, interval: float = 1.0) -> None:
        self.network = Network()
        self.wall = 1_800_000_000.0
        loop = asyncio.get_running_loop()
        self.fleet = Fleet(
            config(*names, interval=interval),
            pace=pace,
            opener=self.network.open,
            now=loop.time,
            clock=lambda: self.wall + loop.time(),
        )

    async def __aenter__(self) -> Scene:
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._running = self._tasks.create_task(self.fleet.run())
        return self

    async def __aexit__(self, *reason: object) -> None:
        self._running.cancel()
        await self._tasks.__aexit__(None, None, None)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def view(self, name: str) -> HostView:
        return next(view for view in self.fleet.views() if view.config.name == name)

    def agent(self, name: str) -> Agent:
        return self.network.agents[name][-1]

    async def until(self, name: str, claim: Callable[[HostView], bool]) -> HostView:
        """Waits, in virtual time, until the claim holds for the host's view."""
        async with asyncio.timeout(86_400):
            while not claim(self.view(name)):
                await self.fleet.changed()
        return self.view(name)

    async def until_up(self, name: str) -> HostView:
        return await self.until(name, lambda view: view.link.state == "up")

    async def until_state(self, name: str, state: str) -> HostView:
        return await self.until(name, lambda view: view.link.state == state)

    async def ticking(self, name: str, seconds: float) -> None:
        """Lets the host's agent tick once a second for some seconds."""
        for _ in range(round(seconds)):
            self.agent(name).tick()
            await asyncio.sleep(1.0)
