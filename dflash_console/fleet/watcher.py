"""The watcher of one host: reaches it, keeps what it tells, notices silence, and tries again for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from msgspec import UNSET

from dflash_console.config import HostConfig
from dflash_console.errors import AgentFailed, LinkError, Unreachable
from dflash_console.fleet.backoff import Pace, rest_before_try
from dflash_console.fleet.history import Rings
from dflash_console.fleet.merge import absorb, came_with, snapshot_of, unread_in
from dflash_console.fleet.opening import AgentSession, Opener
from dflash_console.fleet.spares import Spares
from dflash_console.fleet.view import HostView
from dflash_console.link import Channel, clean
from dflash_console.model import LinkState, LinkStatus, Missing, Note, Sample, WatchSpec

__all__ = ["Watcher"]


class Watcher:
    """Owns one host's view. `changed` is called with the watcher after every change; it must not block."""

    def __init__(
        self,
        host: HostConfig,
        spec: WatchSpec,
        opener: Opener,
        changed: Callable[[Watcher], None],
        *,
        pace: Pace,
        ssh_config: str | None = None,
        now: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = host.name
        self._spec = spec
        self._opener = opener
        self._changed = changed
        self._pace = pace
        self._now = now
        self._clock = clock
        self._known: Sample | None = None
        self._rings = Rings(spec.interval)
        self._wake = asyncio.Event()
        self._refresh = asyncio.Event()
        self._sampled = asyncio.Event()
        self._is_ending = False
        self._session: AgentSession | None = None
        """What requests go to; None while no agent answers."""
        self._spares = Spares()
        self.view = HostView(config=host, link=LinkStatus("connecting", since=clock()), ssh_config=ssh_config)

    # ---- what the fleet asks

    def retry(self) -> None:
        """Tries now instead of resting; nothing to do while a try or a link stands."""
        self._wake.set()

    def refresh(self) -> None:
        """Has the agent read its slow sections anew."""
        self._refresh.set()

    def share(self, shared: dict[str, tuple[str, ...]]) -> None:
        """Sets which other hosts show this one's cards."""
        if shared != self.view.shared:
            self._set(shared=shared)

    async def request(self, do: str, wait: float, **fields: object) -> msgspec.Raw:
        """What the agent answers within `wait` seconds. Raises a LinkError, also when the link ends meanwhile."""
        return await self._connected().request(do, wait, **fields)

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[Channel]:
        """A copy process on the host for the length of the block. Raises a LinkError."""
        session = self._connected()
        channel = self._spares.take() or await session.channel()
        try:
            yield channel
            if session is self._session and self._spares.keep(channel):
                return
        except BaseException:
            await channel.close()
            raise
        await channel.close()

    def _connected(self) -> AgentSession:
        if self._session is None:
            raise Unreachable(
                f"{self.name} is not connected: {self.view.link.detail or self.view.link.state}"
            )
        return self._session

    def end(self) -> None:
        """Says that `run` is about to be cancelled: an error in the same moment can take the place of the
        cancellation, which comes only once."""
        self._is_ending = True

    # ---- the loop

    async def run(self) -> None:
        """Watches until cancelled. Whatever ends a try is shown in the link's detail and tried again."""
        self._is_ending = False
        while True:
            try:
                await self._attend()
            except LinkError as error:
                failure = error
            except Exception as error:  # noqa: BLE001 - a fault on one host must not end the others
                what = clean(f"{type(error).__name__}: {error}", 300)
                failure = AgentFailed(f"a fault of the console itself: {what}")
            if self._is_ending:
                return
            await self._rest(failure)

    async def _attend(self) -> None:
        """One try, from connect to the end of the link; always raises."""
        session = await self._opener(self.view.config)
        why: LinkError | None = None
        try:
            # Before it watches: its first work would only show as a long latency.
            latency = await self._ping(session)
            await session.watch(self._spec)
            self._session = session
            self._set_link("up", latency=latency)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(session))
                tasks.create_task(self._beat(session))
                tasks.create_task(self._mind_silence())
                tasks.create_task(self._pass_refreshes(session))
                tasks.create_task(self._spares.mind())
        except BaseExceptionGroup as group:
            cause = first_cause(group)
            why = cause if isinstance(cause, LinkError) else None
            raise cause from None
        finally:
            self._session = None
            self._spares.forget()
            await self._close(session, why)

    async def _rest(self, failure: LinkError) -> None:
        failures = self.view.failures + 1
        delay = rest_before_try(failures, self._pace, is_lasting=failure.is_lasting)
        self._set(failures=failures)
        self._set_link(failure.state, str(failure), next_try=self._clock() + delay)
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._wake.wait()
        self._set_link(failure.state, str(failure))

    async def _close(self, session: AgentSession, why: LinkError | None) -> None:
        with suppress(TimeoutError, LinkError, OSError):
            async with asyncio.timeout(self._pace.closing):
                await session.close(why)

    # ---- while the link stands

    async def _read(self, session: AgentSession) -> None:
        async for message in session.messages():
            if isinstance(message, Note):
                if self.view.notes.get(message.section) != message.text:
                    self._set(notes={**self.view.notes, message.section: message.text})
            else:
                self._take(message)
        raise AgentFailed("the agent ended")

    async def _beat(self, session: AgentSession) -> None:
        opened_at = self._now()
        while True:
            await asyncio.sleep(self._pace.heartbeat)
            latency = await self._ping(session)
            self._set_link(self.view.link.state, self.view.link.detail, latency=latency)
            if self.view.failures and self._now() - opened_at >= self._pace.stable:
                self._set(failures=0)

    async def _ping(self, session: AgentSession) -> float:
        """The round trip to the agent in milliseconds."""
        began = self._now()
        await session.request("ping", self._pace.unanswered)
        return round((self._now() - began) * 1000, 1)

    async def _mind_silence(self) -> None:
        limit = self._pace.silence(self._spec.interval)
        last = self._now()
        while True:
            await asyncio.sleep(max(limit - (self._now() - last), 0.0))
            if self.view.heard is not None and self.view.heard > last:
                last = self.view.heard
                continue
            self._sampled.clear()
            link = self.view.link
            self._set_link("stale", f"no sample for more than {limit:.0f} s", latency=link.latency_ms)
            await self._sampled.wait()
            self._set_link("up", latency=self.view.link.latency_ms)
            last = self._now()

    async def _pass_refreshes(self, session: AgentSession) -> None:
        while True:
            await self._refresh.wait()
            self._refresh.clear()
            await session.request("refresh", self._pace.unanswered)

    # ---- what is known

    def _take(self, sample: Sample) -> None:
        known = absorb(self._known, sample)
        came = came_with(sample)
        changes: dict[str, Any] = {"heard": self._now()}
        if self.view.unread:
            changes["unread"] = unread_in(known)
        if self.view.notes:
            changes["notes"] = {name: text for name, text in self.view.notes.items() if name not in came}
        if known.gpu is not UNSET and sample.gpu is not UNSET:
            changes["utilization"] = self._rings.take(sample.at, known.gpu)
        if self._is_other_boot(sample):
            changes["rebooted_at"] = self._clock()
        self._known = known
        self._set(snapshot=snapshot_of(known), **changes)
        self._sampled.set()

    def _is_other_boot(self, sample: Sample) -> bool:
        """Whether the host section shows that the host was restarted since it was last seen."""
        if sample.host is UNSET or self._known is None or self._known.host is UNSET:
            return False
        before, after = self._known.host.boot_id, sample.host.boot_id
        return bool(before and after and before != after)

    def _set_link(
        self,
        state: LinkState,
        detail: str = "",
        *,
        next_try: float | None = None,
        latency: float | Missing | None = None,
    ) -> None:
        before = self.view.link
        link = LinkStatus(
            state=state,
            detail=detail,
            since=before.since if before.state == state else self._clock(),
            next_try=next_try,
        )
        if latency is not None:
            link = msgspec.structs.replace(link, latency_ms=latency)
        if link != before:
            self._set(link=link)

    def _set(self, **changes: Any) -> None:
        self.view = msgspec.structs.replace(self.view, revision=self.view.revision + 1, **changes)
        self._changed(self)


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended a group of tasks: a LinkError if there is one, else the first."""
    leaves: list[BaseException] = []
    queue: list[BaseException] = [group]
    while queue:
        error = queue.pop(0)
        if isinstance(error, BaseExceptionGroup):
            queue.extend(error.exceptions)
        else:
            leaves.append(error)
    return next((leaf for leaf in leaves if isinstance(leaf, LinkError)), leaves[0])
