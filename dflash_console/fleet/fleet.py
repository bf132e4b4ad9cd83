"""All hosts of the config, each with a watcher of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec

from dflash_console.config import Config
from dflash_console.fleet.backoff import Pace
from dflash_console.fleet.opening import Opener, link_opener, watch_spec
from dflash_console.fleet.sharing import Sharing, uuids_in
from dflash_console.fleet.view import HostView
from dflash_console.fleet.watcher import Watcher
from dflash_console.link import Channel
from dflash_console.model import GpuReport

__all__ = ["Fleet"]


class Fleet:
    """What is known of every host, kept fresh while `run` runs. Belongs to one event loop."""

    def __init__(
        self,
        config: Config,
        *,
        pace: Pace | None = None,
        opener: Opener | None = None,
        now: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`now` is the clock of durations, `clock` that of points in time; tests bring their own opener."""
        pace = pace or Pace()
        opener = opener or link_opener(config, pace)
        self._watchers = {
            name: Watcher(
                host,
                watch_spec(config, host),
                opener,
                self._note,
                pace=pace,
                ssh_config=config.console.ssh_config,
                now=now,
                clock=clock,
            )
            for name, host in config.hosts.items()
        }
        self._sharing = Sharing(list(self._watchers))
        self._reports: dict[str, GpuReport] = {}
        self._views: tuple[HostView, ...] | None = None
        self._change = asyncio.Event()

    async def run(self) -> None:
        """Watches every host until cancelled, then ends every link."""
        async with asyncio.TaskGroup() as tasks:
            for watcher in self._watchers.values():
                tasks.create_task(watcher.run(), name=f"watch {watcher.name}")
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                for watcher in self._watchers.values():
                    watcher.end()

    def views(self) -> tuple[HostView, ...]:
        """Every host in the config's order; the same objects while nothing changed."""
        if self._views is None:
            self._views = tuple(watcher.view for watcher in self._watchers.values())
        return self._views

    async def changed(self) -> None:
        """Returns at the next change of any host."""
        await self._change.wait()

    def retry(self, name: str) -> None:
        """Tries a host now instead of at its next time. KeyError for a name that is not in the config."""
        self._watchers[name].retry()

    def refresh(self, name: str) -> None:
        """Has a host read its slow sections anew, now or as soon as it is reached. KeyError as in `retry`."""
        self._watchers[name].refresh()

    async def request(self, name: str, do: str, wait: float, /, **fields: object) -> msgspec.Raw:
        """What the agent of a host answers within `wait` seconds, as JSON whose strings are clean.

        Raises a LinkError, also when the host is not connected; KeyError as in `retry`.
        """
        return await self._watchers[name].request(do, wait, **fields)

    def channel(self, name: str, /) -> AbstractAsyncContextManager[Channel]:
        """A copy process of its own on a host, over the host's connection, for the length of the block.

        Entering it raises a LinkError, also when the host is not connected; KeyError as in `retry`.
        """
        return self._watchers[name].channel()

    def _note(self, watcher: Watcher) -> None:
        self._views = None
        self._change.set()
        self._change = asyncio.Event()
        snapshot = watcher.view.snapshot
        if snapshot is None or self._reports.get(watcher.name) is snapshot.gpu:
            return
        self._reports[watcher.name] = snapshot.gpu
        for name in self._sharing.show(watcher.name, uuids_in(snapshot.gpu)):
            self._watchers[name].share(self._sharing.others(name))
