"""The console's own fleet over real hosts, with a record of what it saw and when."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import tomli_w

from dflash_console.config import Config, load
from dflash_console.fleet import Fleet as ConsoleFleet
from dflash_console.fleet import HostView, Pace
from dflash_console.model import Gpu, GpuReport, LinkState, Missing, Unit, Venv
from tests.hosts.fleet import Fleet
from tests.waiting import until

__all__ = ["PACE", "Seen", "Watching", "config_file", "is_reason", "watching"]

T = TypeVar("T")

PACE = Pace(
    connect=8.0,
    unanswered=6.0,
    heartbeat=1.0,
    stale_floor=4.0,
    fast=(0.5, 2.0),
    slow=(1.0, 3.0),
    opening=30.0,
)
"""As in the console, but that it tries again sooner: the tests wait for real recoveries."""

TIMEOUT = 60.0
"""Seconds for anything that must happen; tells a hang from a slow machine."""


def config_file(folder: Path, fleet: Fleet, hosts: dict[str, dict[str, object]], **console: object) -> Path:
    """Writes a config.toml for the named hosts of a fleet; each name's table as given."""
    tables = {
        "console": {"ssh_config": str(fleet.ssh_config), **console},
        "hosts": {name: dict(table) for name, table in hosts.items()},
    }
    path = folder / "config.toml"
    path.write_text(tomli_w.dumps(tables))
    return path


@dataclass(frozen=True)
class Seen(Generic[T]):
    """How long a change took to show."""

    value: T
    samples: int
    seconds: float


class Watching:
    """A running console fleet, and what it has shown so far."""

    def __init__(self, fleet: ConsoleFleet) -> None:
        self.fleet = fleet
        self.samples: Counter[str] = Counter()
        """Host to the number of GPU reports, of which one comes with each tick."""
        self.links: defaultdict[str, list[LinkState]] = defaultdict(list)
        """Host to the link states that it went through."""
        self._reports: dict[str, GpuReport] = {}

    async def record(self) -> None:
        """Takes down every change until cancelled."""
        while True:
            for view in self.fleet.views():
                name = view.config.name
                if not self.links[name] or self.links[name][-1] != view.link.state:
                    self.links[name].append(view.link.state)
                if view.snapshot and view.snapshot.gpu is not self._reports.get(name):
                    self._reports[name] = view.snapshot.gpu
                    self.samples[name] += 1
            await self.fleet.changed()

    # ---- looking

    def view(self, host: str) -> HostView:
        """What is known of a host."""
        return next(view for view in self.fleet.views() if view.config.name == host)

    def link(self, host: str) -> LinkState:
        """The state of a host's link."""
        return self.view(host).link.state

    def report(self, host: str) -> GpuReport:
        """A host's GPUs; fails while there is no report."""
        snapshot = self.view(host).snapshot
        assert snapshot is not None
        assert "gpu" not in self.view(host).unread, "no GPU report yet"
        return snapshot.gpu

    def gpu(self, host: str, index: int) -> Gpu:
        """One GPU's row; fails while it is not there."""
        rows = [gpu for gpu in self.report(host).gpus if gpu.index == index]
        assert rows, f"no GPU {index}: {self.report(host)}"
        return rows[0]

    def venv(self, host: str, path: str) -> Venv:
        """One venv's row; fails while it is not there."""
        snapshot = self.view(host).snapshot
        assert snapshot is not None
        rows = {venv.path: venv for venv in snapshot.venvs}
        assert path in rows, f"no venv {path}, only {list(rows)}"
        return rows[path]

    def unit(self, host: str, name: str) -> Unit:
        """One unit's row; fails while it is not there."""
        snapshot = self.view(host).snapshot
        assert snapshot is not None
        rows = {unit.name: unit for unit in snapshot.units}
        assert name in rows, f"no unit {name}, only {list(rows)}"
        return rows[name]

    # ---- waiting

    async def until(self, look: Callable[[], T | None], what: str, within: float = TIMEOUT) -> T:
        """Waits for a look to give a true value."""
        return await until(look, within, what)

    async def until_link(self, host: str, *states: LinkState) -> str:
        """Waits for a link to reach one of the states; gives back its detail."""

        def look() -> str | None:
            link = self.view(host).link
            assert link.state in states, f"{link.state}: {link.detail}"
            return link.detail or link.state

        return await self.until(look, f"the link to {host} is {' or '.join(states)}")

    async def until_whole(self, *hosts: str) -> None:
        """Waits until every section of the hosts came."""

        def look() -> bool:
            unread = {host: sorted(self.view(host).unread) for host in hosts}
            assert not any(unread.values()), f"unread: {unread}, links: {[self.view(h).link for h in hosts]}"
            return True

        await self.until(look, f"every section of {', '.join(hosts)} came")

    async def until_sampled(self, host: str, more: int = 2) -> None:
        """Waits for so many further samples of a host."""
        goal = self.samples[host] + more
        await self.until(lambda: self.samples[host] >= goal, f"{more} more samples of {host}")

    @asynccontextmanager
    async def undisturbed(self, *hosts: str) -> AsyncIterator[None]:
        """The named hosts must stay up and go on being sampled during the block."""
        states = {host: len(self.links[host]) for host in hosts}
        samples = {host: self.samples[host] for host in hosts}
        yield
        for host in hosts:
            assert self.links[host][states[host] :] == [], f"{host} went through {self.links[host]}"
            assert self.link(host) == "up"
            await self.until(lambda host=host: self.samples[host] > samples[host], f"{host} goes on")  # type: ignore[misc]

    async def seen(
        self, host: str, look: Callable[[], T | None], what: str, within: float = TIMEOUT
    ) -> Seen[T]:
        """Waits for a change that was just made; tells after how many samples and seconds it showed."""
        samples, began = self.samples[host], time.monotonic()
        value = await self.until(look, what, within)
        return Seen(value, self.samples[host] - samples, time.monotonic() - began)


def is_reason(value: object, reason: str) -> bool:
    """Whether a cell holds that reason instead of a value."""
    return isinstance(value, Missing) and value.missing == reason


@asynccontextmanager
async def watching(config: Config | Path, pace: Pace = PACE) -> AsyncIterator[Watching]:
    """Runs the console's fleet for the length of the block."""
    fleet = ConsoleFleet(load(config, {}) if isinstance(config, Path) else config, pace=pace)
    watch = Watching(fleet)
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(fleet.run()), tasks.create_task(watch.record())]
            try:
                yield watch
            finally:
                for task in running:
                    task.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:  # a test's own failure, said plainly
            raise group.exceptions[0] from None
        raise
