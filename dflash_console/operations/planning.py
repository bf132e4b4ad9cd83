"""What a copy would do, and how two packages differ: looks at hosts and changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from dflash_console.config import Config
from dflash_console.copies import Comparison, CopyPlan, Entry, Look, Side, TargetPlan
from dflash_console.errors import CopyError, LinkError
from dflash_console.link import clean
from dflash_console.link.channel import TakeEntries
from dflash_console.operations import remote
from dflash_console.operations.comparing import Known, Matching
from dflash_console.operations.ground import counted, few
from dflash_console.operations.judging import of_package
from dflash_console.operations.orders import at_home, order
from dflash_console.operations.pins import Requirements, ask_pins, requirements_of
from dflash_console.operations.preflight import Question, beside, needs_of, preflight, roll_back_checks
from dflash_console.operations.reaching import MOST_ON_A_HOST, Reaching
from dflash_console.operations.sides import units_of
from dflash_console.operations.verify import fingerprint_of, prove
from dflash_console.verdict import Check, Verdict

__all__ = [
    "Planned",
    "compare",
    "make_plan",
    "plan_roll_back",
    "planning",
    "read_text",
]

Told = Callable[[str], None]


def _silent(words: str) -> None:
    pass


async def make_plan(
    fleet: Reaching,
    config: Config,
    source: Side,
    targets: Sequence[Side],
    *,
    told: Told = _silent,
    known: Callable[[Side], Verdict | None] = lambda side: None,
) -> CopyPlan:
    """The plan for a copy; reads on all hosts side by side, and writes nothing.

    `told` gets a line for each step. A verdict that is `known` is taken for the source's as long as its files are as
    they were then. Never raises a LinkError: what could not be had is a `problem` of the plan or of
    one of its targets.
    """
    async with planning(fleet, config, source, targets, told=told, known=known) as planned:
        return await planned.whole()


@asynccontextmanager
async def planning(
    fleet: Reaching,
    config: Config,
    source: Side,
    targets: Sequence[Side],
    *,
    told: Told = _silent,
    known: Callable[[Side], Verdict | None] = lambda side: None,
) -> AsyncIterator[Planned]:
    """As `make_plan`, but given when all was looked at, and the source may still be verified: that takes an import of
    the package. It is given up at the end of the block."""
    planner = _Planner(fleet, config, told)
    source = planner.at_home(source)
    sides = tuple(dict.fromkeys(planner.at_home(side) for side in targets))
    failure: Exception | None = None
    async with asyncio.TaskGroup() as proving:
        # Before the looks: it takes the longest.
        verdict = proving.create_task(planner.verify(source, known(source)))
        try:
            yield Planned(await planner.looked(source, sides), verdict)
        except Exception as error:  # noqa: BLE001 - raised below, where no group wraps it
            failure = error
        finally:
            verdict.cancel()
    if failure is not None:
        raise failure


class Planned:
    """A plan, and the one that it becomes when the source is verified."""

    def __init__(
        self, make: Callable[[Verdict | None, bool], CopyPlan], verdict: asyncio.Task[Verdict | None]
    ) -> None:
        self._make = make
        self._verdict = verdict
        self.plan = self._made()
        """What is known by now; `is_proving` while the source is verified."""

    async def whole(self) -> CopyPlan:
        """The plan with the source's verdict; waits for it."""
        await asyncio.wait([self._verdict])
        self.plan = self._made()
        return self.plan

    def _made(self) -> CopyPlan:
        is_proving = not self._verdict.done()
        return self._make(None if is_proving else self._verdict.result(), is_proving)


async def compare(
    fleet: Reaching, config: Config, left: Side, right: Side
) -> tuple[Look | None, Look | None, Comparison | None, str]:
    """Both sides' looks, which files differ (`added`: only on the left), and why that can't be told, or not of all that
    is there; empty when it can. Never raises a LinkError."""
    planner = _Planner(fleet, config, _silent)
    async with asyncio.TaskGroup() as tasks:
        ours = tasks.create_task(planner.listing(planner.at_home(left)))
        theirs = tasks.create_task(planner.matched(planner.at_home(right), ours, is_kept=True))
    one, (other, matching) = ours.result().seen, theirs.result()
    problem = "; ".join(filter(None, (one.problem, other.problem)))
    if one.look is None or other.look is None:
        return one.look, other.look, None, problem
    for side, look in ((left, one.look), (right, other.look)):
        if look.state == "broken":
            problem = "; ".join(filter(None, (problem, f"{side}: {look.problem or 'no environment'}")))
    if problem:
        return one.look, other.look, None, problem
    unlisted = "; ".join(
        f"{side} holds what can't be compared: {few(look.strange)}"
        for side, look in ((left, one.look), (right, other.look))
        if look.strange
    )
    return one.look, other.look, matching.comparison(), unlisted


async def read_text(fleet: Reaching, config: Config, side: Side, path: str) -> str:
    """The text of one file of a listing, cleaned line by line, at most 2 MiB of it; a cut one says so in its last
    line.

    Raises CopyError when it is no text or can't be read, LinkError when the host can't be asked.
    """
    side = _Planner(fleet, config, _silent).at_home(side)
    async with fleet.channel(side.host) as channel:
        data, is_cut = await remote.read(channel, side, config.package.name, path)
    if b"\0" in data:
        raise CopyError(f"{side}: {clean(path)} is no text")
    lines = data.decode("utf-8", "replace").split("\n")
    # A tab is shown as the blanks that an editor would show.
    pieces = (line.removesuffix("\r").split("\t") for line in lines)
    text = "\n".join("\t".join(clean(piece) for piece in line).expandtabs(8) for line in pieces)
    return f"{text}\n… only the beginning: the file is longer" if is_cut else text


async def plan_roll_back(fleet: Reaching, config: Config, side: Side, backup: str = "") -> TargetPlan:
    """What stands for and against putting a backup back (its id; empty for the newest that a copy replaced): the look
    with its backups, checks and needs. Reads only, and never raises a LinkError."""
    planner = _Planner(fleet, config, _silent)
    side = planner.at_home(side)
    seen = await planner.look(side)
    if seen.look is None:
        return TargetPlan(side, problem=seen.problem, is_unreachable=seen.is_unreachable)
    host = config.hosts[side.host]
    checks = roll_back_checks(side, host, seen.look, planner.units(side, seen.look), backup)
    needs = needs_of(side, host, seen.look, checks, verdict=None, source=None)
    return TargetPlan(side, look=seen.look, checks=checks, needs=needs)


class _Seen(NamedTuple):
    look: Look | None
    problem: str = ""
    is_unreachable: bool = False


class _Listed(NamedTuple):
    """The first side, of which all is kept."""

    seen: _Seen
    known: Known


class _Matched(NamedTuple):
    """Another side, of which only what differs from the first one is kept."""

    seen: _Seen
    matching: Matching


class _Planner:
    """The questions of one plan. Never raises a LinkError."""

    def __init__(self, fleet: Reaching, config: Config, told: Told) -> None:
        self._fleet = fleet
        self._config = config
        self._told = told
        self._views = {view.config.name: view for view in fleet.views()}
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(MOST_ON_A_HOST)
        )

    def at_home(self, side: Side) -> Side:
        """The same with the login user's home for `~/`."""
        view = self._views.get(side.host)
        return side if view is None else Side(side.host, at_home(view, side.venv))

    def units(self, side: Side, look: Look) -> tuple[str, ...]:
        return units_of(self._views.get(side.host), side.venv, look)

    async def listing(self, side: Side) -> _Listed:
        entries: list[Entry] = []

        async def keep(part: Sequence[Entry]) -> None:
            entries.extend(part)

        seen = await self.look(side, keep)
        return _Listed(seen, Known(tuple(entries)))

    async def matched(self, side: Side, first: asyncio.Task[_Listed], *, is_kept: bool = False) -> _Matched:
        """Another side, held against the first one part by part; its host is held up until that one is listed."""
        matching: Matching | None = None

        async def take(part: Sequence[Entry]) -> None:
            nonlocal matching
            if matching is None:
                matching = Matching((await first).known, is_kept=is_kept)
            matching.take(part)

        seen = await self.look(side, take)
        return _Matched(seen, matching or Matching((await first).known))

    async def look(self, side: Side, give: TakeEntries | None = None) -> _Seen:
        """What is there; `give` gets its entries, which are not asked for without."""
        if side.host not in self._config.hosts:
            return _Seen(None, problem=f"{side.host} is not a host of the config")
        self._told(f"looking at {side}")
        try:
            async with self._turns[side.host], self._fleet.channel(side.host) as channel:
                look, _ = await remote.look(
                    channel, side.venv, self._config.package.name, entries=give is not None, give=give
                )
        except (LinkError, CopyError) as error:
            return _Seen(None, problem=str(error), is_unreachable=isinstance(error, LinkError))
        what = look.problem or "no environment" if look.state == "broken" else look.version or look.state
        self._told(f"{side}: {what}" + (f", {counted(look.files, 'file')}" if look.state != "broken" else ""))
        return _Seen(look)

    async def verify(self, side: Side, known: Verdict | None) -> Verdict | None:
        view = self._views.get(side.host)
        if view is None or view.snapshot is None:
            return None
        if known is not None and await self._holds(known):
            return of_package(known)
        self._told(f"verifying {side}")
        what = order(view, self._config, side.venv, tuple(self._views.values()), is_deep=False)
        verdict = of_package(await prove(self._fleet, what, lambda verdict: None))
        self._told(f"{side} is {'ready' if verdict.is_ready else 'not ready'}")
        return verdict

    async def _holds(self, verdict: Verdict) -> bool:
        if not of_package(verdict).is_ready or verdict.stale or not verdict.fingerprint:
            return False
        now = await fingerprint_of(self._fleet, verdict.host, verdict.venv, self._config.package.name)
        return now == verdict.fingerprint

    async def requirements(self, source: Side) -> Requirements:
        return await requirements_of(self._fleet, self._config, self._views.get(source.host), source)

    async def pins(self, requirements: asyncio.Task[Requirements], source: Side, side: Side) -> Check | None:
        view = self._views.get(side.host)
        return await ask_pins(self._fleet, self._config, view, await requirements, source, side)

    async def looked(self, source: Side, sides: Sequence[Side]) -> Callable[[Verdict | None, bool], CopyPlan]:
        """Looks at all; makes the plan from that, the source's verdict, and whether that is still to come."""
        others = [side for side in sides if side != source]
        async with asyncio.TaskGroup() as tasks:
            # Before the targets': theirs are held up until it is there, also where they take turns on its own host.
            seen = tasks.create_task(self.listing(source))
            requirements = tasks.create_task(self.requirements(source))
            looks = {side: tasks.create_task(self.matched(side, seen)) for side in others}
            pins = {side: tasks.create_task(self.pins(requirements, source, side)) for side in others}
        ours = seen.result()

        def plan_of(side: Side, verdict: Verdict | None, is_proving: bool) -> TargetPlan:
            if side == source:
                return TargetPlan(side, problem=f"{side} is the source itself")
            look, pin = looks[side].result(), pins[side].result()
            return self.target(source, ours, verdict, side, look, pin, is_proving=is_proving)

        def make(verdict: Verdict | None, is_proving: bool) -> CopyPlan:
            return CopyPlan(
                source,
                tuple(plan_of(side, verdict, is_proving) for side in sides),
                look=ours.seen.look,
                entries=ours.known.entries,
                verdict=verdict,
                is_proving=is_proving,
                problem=ours.seen.problem or _why_no_source(source, ours.seen.look),
                is_unreachable=ours.seen.is_unreachable,
                at=time.time(),
            )

        return make

    def target(
        self,
        source: Side,
        ours: _Listed,
        verdict: Verdict | None,
        side: Side,
        theirs: _Matched,
        pins: Check | None,
        *,
        is_proving: bool,
    ) -> TargetPlan:
        """The plan for one target from all that was seen."""
        source_look, (look, problem, is_unreachable) = ours.seen.look, theirs.seen
        if look is None:
            return TargetPlan(side, problem=problem, is_unreachable=is_unreachable)
        if source_look is None:
            return TargetPlan(side, look=look)
        host = self._config.hosts[side.host]
        differs, size = theirs.matching.difference()
        question = Question(
            source,
            source_look,
            ours.known.entries,
            verdict,
            side,
            look,
            host,
            units=self.units(side, look),
            pins=pins,
            package=self._config.package.name,
            is_proving=is_proving,
        )
        checks = preflight(question)
        return TargetPlan(
            side,
            look=look,
            difference=differs,
            bytes=size,
            checks=checks,
            needs=needs_of(side, host, look, checks, verdict=verdict, source=source),
            beside=beside(question),
        )


def _why_no_source(side: Side, look: Look | None) -> str:
    if look is None or look.state == "whole":
        return ""
    if look.state == "absent":
        return f"{side} has no package to copy"
    return (
        f"{side} can't be copied from ({look.state}): {look.problem or 'it holds no ordinary package folder'}"
    )
