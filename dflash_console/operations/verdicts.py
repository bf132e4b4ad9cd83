"""The verdicts that are kept, each with its time: asked for by a key, filled in while it is watched, and marked as
stale when what it stands on changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from dflash_console.config import Config
from dflash_console.fleet import HostView
from dflash_console.model import Unit, Venv
from dflash_console.operations.orders import environments, order
from dflash_console.operations.verify import FAULT_LENGTH, Asking, Turns, fingerprint_of, prove
from dflash_console.verdict import Check, Verdict, in_order

__all__ = ["Verdicts"]

RECHECK = 30.0
"""Seconds between two looks at the files of what was proved."""
UNSEEN = 15.0
"""Seconds within which a host's picture shows what was changed there."""
AT_ONCE = 64
"""Environments that are proved side by side; the agents do the work."""


class Watched(Asking, Protocol):
    """What is needed of the fleet."""

    def views(self) -> Sequence[HostView]:
        """Every host, in the config's order."""
        ...


class Verdicts:
    """What was proved of each environment. Belongs to one event loop."""

    def __init__(
        self,
        fleet: Watched,
        config: Config,
        *,
        clock: Callable[[], float] = time.time,
        recheck: float = RECHECK,
    ) -> None:
        """`recheck`: seconds between two looks at the files of what was proved."""
        self._fleet = fleet
        self._config = config
        self._clock = clock
        self._recheck_pace = recheck
        self._kept: dict[str, dict[str, Verdict]] = {}
        """By host, then by environment."""
        self._bases: dict[tuple[str, str], tuple[object, ...]] = {}
        """What a verdict stands on, of the host's picture at its time."""
        self._unseen: dict[tuple[str, str], tuple[float, object]] = {}
        """Environments whose change the host's picture does not show yet: until when to wait for that, and as they
        are shown now."""
        self._asked: asyncio.Queue[tuple[str, str, bool]] = asyncio.Queue()
        self._running: set[tuple[str, str]] = set()
        self._turns = Turns()

    def of(self, host: str) -> tuple[Verdict, ...]:
        """The verdicts on a host's environments, in the order in which they were first asked for."""
        return tuple(self._kept.get(host, {}).values())

    def ask(self, host: str, venv: str | None = None, *, is_deep: bool = False) -> str:
        """Has an environment proved, or all that a verification of the host is about; gives back why it can't be,
        empty when it will be. Returns at once."""
        view = self._view(host)
        if view is None or view.link.state != "up":
            why = "" if view is None else f": {view.link.detail or view.link.state}"
            return f"{host} is not connected{why}"
        chosen = (venv,) if venv is not None else environments(view)
        if not chosen:
            return f"{host} has no environment to verify"
        fresh = [path for path in chosen if (host, path) not in self._running]
        if not fresh:
            return f"{host} is being verified already"
        for path in fresh:
            self._running.add((host, path))
            self._asked.put_nowait((host, path, is_deep))
        return ""

    def take(self, verdict: Verdict) -> None:
        """Keeps a verdict that was come to elsewhere: after a copy, whose change the host's picture shows a little
        later."""
        view, key = self._view(verdict.host), (verdict.host, verdict.venv)
        self._bases.pop(key, None)
        self._keep(verdict)
        if view is not None:
            self._unseen[key] = (self._clock() + UNSEEN, _base(view, verdict.venv)[0])

    async def run(self) -> None:
        """Proves what is asked for, and looks after what was proved, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._recheck())
            limit = asyncio.Semaphore(AT_ONCE)
            while True:
                host, venv, is_deep = await self._asked.get()
                tasks.create_task(self._prove(limit, host, venv, is_deep))

    def refresh(self) -> None:
        """Marks as stale what no longer stands on what it was proved with; cheap, for every tick."""
        for view in self._fleet.views():
            if view.link.state != "up":
                continue
            for verdict in self.of(view.config.name):
                self._await_change(view, verdict.venv)
                before = self._bases.get((verdict.host, verdict.venv))
                if verdict.waiting or verdict.stale or before is None:
                    continue
                now = _base(view, verdict.venv)
                if now != before:
                    self._keep(msgspec.structs.replace(verdict, stale=_difference(before, now)))

    def _await_change(self, view: HostView, venv: str) -> None:
        key = (view.config.name, venv)
        if key in self._unseen:
            until, before = self._unseen[key]
            base = _base(view, venv)
            if base[0] != before or self._clock() > until:
                del self._unseen[key]
                self._bases[key] = base

    async def _prove(self, limit: asyncio.Semaphore, host: str, venv: str, is_deep: bool) -> None:
        key = (host, venv)
        try:
            async with limit:
                view = self._view(host)
                if view is None:
                    return
                self._bases.pop(key, None)
                self._unseen.pop(key, None)
                what = order(view, self._config, venv, self._fleet.views(), is_deep=is_deep)
                await prove(self._fleet, what, self._keep, turns=self._turns, clock=self._clock)
                # As the agent saw it by now: what changed on the way was seen by some part or will be found stale.
                if (seen := self._view(host)) is not None:
                    self._bases[key] = _base(seen, venv)
        except Exception as error:  # noqa: BLE001 - a fault on one environment must not end the others
            self._give_up(
                host, venv, f"a fault of the console itself: {type(error).__name__}: {error}", is_deep
            )
        finally:
            self._running.discard(key)

    def _give_up(self, host: str, venv: str, why: str, is_deep: bool) -> None:
        verdict = self._kept.get(host, {}).get(venv) or Verdict(host, venv, is_deep=is_deep)
        parts = verdict.waiting or ("files",)
        checks = (*verdict.checks, *(Check(part, "unknown", why[:FAULT_LENGTH]) for part in parts))
        self._keep(msgspec.structs.replace(verdict, checks=in_order(checks), waiting=(), at=self._clock()))

    def _keep(self, verdict: Verdict) -> None:
        self._kept.setdefault(verdict.host, {})[verdict.venv] = verdict

    async def _recheck(self) -> None:
        while True:
            await asyncio.sleep(self._recheck_pace)
            # Side by side: a host that does not answer holds up no other.
            async with asyncio.TaskGroup() as tasks:
                for view in self._fleet.views():
                    for verdict in self.of(view.config.name) if view.link.state == "up" else ():
                        if verdict.fingerprint and not verdict.stale and not verdict.waiting:
                            tasks.create_task(self._recheck_one(verdict))

    async def _recheck_one(self, verdict: Verdict) -> None:
        package = self._config.package.name
        now = await fingerprint_of(self._fleet, verdict.host, verdict.venv, package)
        if now and now != verdict.fingerprint and self._kept[verdict.host][verdict.venv] is verdict:
            self._keep(msgspec.structs.replace(verdict, stale="files of the package changed"))

    def _view(self, host: str) -> HostView | None:
        return next((view for view in self._fleet.views() if view.config.name == host), None)


def _base(view: HostView, venv: str) -> tuple[Venv | None, tuple[tuple[object, ...], ...]]:
    """What of a host's picture a verdict stands on: the environment, and the units as they are installed."""
    snapshot = view.snapshot
    if snapshot is None:
        return None, ()
    there = next((candidate for candidate in snapshot.venvs if candidate.path == venv), None)
    return there, tuple(_standing(unit) for unit in snapshot.units)


def _standing(unit: Unit) -> tuple[object, ...]:
    """Not whether it is running just now, but what it would run, and since when it does."""
    return (
        unit.name,
        unit.load,
        unit.fragment,
        unit.needs_reload,
        str(unit.interpreter),
        unit.venv,
        unit.invocation_id,
    )


def _difference(before: tuple[object, ...], now: tuple[object, ...]) -> str:
    return "the environment changed" if before[0] != now[0] else "a unit changed"
