"""What a copy would do, and how two packages differ: looks at hosts and changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dflash_console.config import Config
from dflash_console.copies import Comparison, CopyPlan, Entry, Look, Side, TargetPlan
from dflash_console.errors import CopyError, LinkError
from dflash_console.fleet import HostView
from dflash_console.link import clean
from dflash_console.model import Missing
from dflash_console.operations import remote
from dflash_console.operations.comparing import difference, size_of
from dflash_console.operations.ground import counted
from dflash_console.operations.judging import of_package
from dflash_console.operations.orders import at_home, order
from dflash_console.operations.pins import Requirements, ask_pins, requirements_of
from dflash_console.operations.preflight import Question, beside, needs_of, preflight, roll_back_checks
from dflash_console.operations.reaching import MOST_ON_A_HOST, Reaching
from dflash_console.operations.verify import fingerprint_of, prove
from dflash_console.verdict import Check, Verdict

__all__ = ["compare", "make_plan", "plan_roll_back", "read_text", "side_of", "units_of"]

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
    planner = _Planner(fleet, config, told)
    source = planner.at_home(source)
    sides = tuple(dict.fromkeys(planner.at_home(side) for side in targets))
    async with asyncio.TaskGroup() as tasks:
        seen = tasks.create_task(planner.look(source))
        verdict = tasks.create_task(planner.verify(source, known(source)))
        requirements = tasks.create_task(planner.requirements(source))
        looks = [tasks.create_task(planner.look(side)) if side != source else None for side in sides]
        pins = [
            tasks.create_task(planner.pins(requirements, source, side)) for side in sides if side != source
        ]
    told_pins = iter(pins)
    ours = seen.result()
    plans = []
    for side, look in zip(sides, looks, strict=True):
        if look is None:
            plans.append(TargetPlan(side, problem=f"{side} is the source itself"))
        else:
            plan = planner.target(
                source, ours, verdict.result(), side, look.result(), next(told_pins).result()
            )
            plans.append(plan)
    return CopyPlan(
        source,
        tuple(plans),
        look=ours.look,
        entries=tuple(ours.entries),
        verdict=verdict.result(),
        problem=ours.problem or _why_no_source(source, ours.look),
        is_unreachable=ours.is_unreachable,
        at=time.time(),
    )


async def compare(
    fleet: Reaching, config: Config, left: Side, right: Side
) -> tuple[Look | None, Look | None, Comparison | None, str]:
    """Both sides' looks, which files differ (`added`: only on the left), and why that can't be told; empty when it
    can. Never raises a LinkError."""
    planner = _Planner(fleet, config, _silent)
    async with asyncio.TaskGroup() as tasks:
        ours = tasks.create_task(planner.look(planner.at_home(left)))
        theirs = tasks.create_task(planner.look(planner.at_home(right)))
    one, other = ours.result(), theirs.result()
    problem = "; ".join(filter(None, (one.problem, other.problem)))
    if one.look is None or other.look is None:
        return one.look, other.look, None, problem
    for side, look in ((left, one.look), (right, other.look)):
        if look.state == "broken":
            problem = "; ".join(filter(None, (problem, f"{side}: {look.problem or 'no environment'}")))
    return one.look, other.look, None if problem else difference(one.entries, other.entries), problem


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
    seen = await planner.look(side, entries=False)
    if seen.look is None:
        return TargetPlan(side, problem=seen.problem, is_unreachable=seen.is_unreachable)
    host = config.hosts[side.host]
    checks = roll_back_checks(side, host, seen.look, planner.units(side), backup)
    needs = needs_of(side, host, seen.look, checks, verdict=None, source=None)
    return TargetPlan(side, look=seen.look, checks=checks, needs=needs)


def side_of(view: HostView, config: Config, venv: str | None) -> Side | str:
    """The end of a copy on a host, or why it can't be told.

    The environment that is named; else `package_venv`, the only one of the config, the only one found that holds the
    package, or the only one found.
    """
    name, host = view.config.name, view.config
    if venv is None:
        venv = host.package_venv
    if venv is not None:
        return Side(name, at_home(view, venv))
    named = host.venvs or []
    found = view.snapshot.venvs if view.snapshot is not None else []
    holding = [each.path for each in found if not isinstance(each.package, Missing)]
    places = (named, holding, [each.path for each in found])
    for candidates in places:
        if len(candidates) == 1:
            return Side(name, at_home(view, candidates[0]))
    if several := next(filter(None, (holding, *places)), None):
        shown = ", ".join(several[:4]) + (", ..." if len(several) > 4 else "")
        return f"{name} has several environments ({shown}): name one as {name}:PATH, or package_venv in the config"
    if view.snapshot is None:
        return f"{name} is not connected: {view.link.detail or view.link.state}"
    return f"no environment was found on {name}: name one as {name}:PATH, or package_venv in the config"


def units_of(view: HostView | None, venv: str) -> tuple[str, ...]:
    """The active units of a host that run from an environment."""
    units = view.snapshot.units if view is not None and view.snapshot is not None else []
    return tuple(
        unit.name
        for unit in units
        if unit.venv == venv and unit.active in ("active", "activating", "reloading", "deactivating")
    )


class _Seen(NamedTuple):
    look: Look | None
    entries: Sequence[Entry] = ()
    problem: str = ""
    is_unreachable: bool = False


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

    def units(self, side: Side) -> tuple[str, ...]:
        return units_of(self._views.get(side.host), side.venv)

    async def look(self, side: Side, *, entries: bool = True) -> _Seen:
        if side.host not in self._config.hosts:
            return _Seen(None, problem=f"{side.host} is not a host of the config")
        self._told(f"looking at {side}")
        try:
            async with self._turns[side.host], self._fleet.channel(side.host) as channel:
                look, found = await remote.look(
                    channel, side.venv, self._config.package.name, entries=entries
                )
        except (LinkError, CopyError) as error:
            return _Seen(None, problem=str(error), is_unreachable=isinstance(error, LinkError))
        self._told(f"{side}: {look.version or look.state}, {counted(look.files, 'file')}")
        return _Seen(look, found)

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

    def target(
        self,
        source: Side,
        ours: _Seen,
        verdict: Verdict | None,
        side: Side,
        theirs: _Seen,
        pins: Check | None,
    ) -> TargetPlan:
        """The plan for one target from all that was seen."""
        if theirs.look is None:
            return TargetPlan(side, problem=theirs.problem, is_unreachable=theirs.is_unreachable)
        if ours.look is None:
            return TargetPlan(side, look=theirs.look)
        host = self._config.hosts[side.host]
        differs = difference(ours.entries, theirs.entries)
        question = Question(
            source,
            ours.look,
            ours.entries,
            verdict,
            side,
            theirs.look,
            host,
            differs,
            units=self.units(side),
            pins=pins,
            package=self._config.package.name,
        )
        checks = preflight(question)
        return TargetPlan(
            side,
            look=theirs.look,
            difference=differs,
            bytes=size_of(differs),
            checks=checks,
            needs=needs_of(side, host, theirs.look, checks, verdict=verdict, source=source),
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
