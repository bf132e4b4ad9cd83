"""`copy`: brings the package from one environment to others, after a plan and a yes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from dflash_console.cli.changing import carried_out, exit_code, given_up
from dflash_console.cli.consent import Given, agree, in_options
from dflash_console.cli.copy_json import Result, results_json
from dflash_console.cli.copy_text import plan_text, results_text, summary
from dflash_console.cli.ends import End, Place, Unreached, end_of, may_be_changed, places, refuse_twice
from dflash_console.cli.interruption import Interruption, cancels
from dflash_console.cli.progress import Progress
from dflash_console.cli.reach import with_fleet
from dflash_console.cli.status_text import terminal, words_terminal
from dflash_console.cli.streams import complain, emit, harmless_json, say
from dflash_console.config import Config
from dflash_console.copies import CopyPlan, Side, TargetPlan, TargetRun
from dflash_console.fleet import Fleet
from dflash_console.operations.copying import copy
from dflash_console.operations.gate import refusal
from dflash_console.operations.operator import operator
from dflash_console.operations.planning import Planned, planning

__all__ = ["run_copy"]


def run_copy(
    config: Config, source: str, targets: Sequence[str], given: Given, *, is_dry_run: bool, as_json: bool
) -> int:
    """Prints the plan and what came of it; gives back the exit code. Raises ConfigError."""
    origin = end_of(config, source)
    aims = [may_be_changed(config, end_of(config, target)) for target in targets]
    refuse_twice(origin, aims)
    command = _Copy(config, origin, aims, given, is_dry_run=is_dry_run, as_json=as_json)
    try:
        asyncio.run(command.run())
    except (Exception, KeyboardInterrupt) as error:
        # A script that reads stdout is told all the same what became of its targets.
        if as_json:
            emit(harmless_json(results_json(command.given_up(error), command.plan)) + b"\n")
        raise
    results = command.results
    if as_json:
        emit(harmless_json(results_json(results, command.plan)) + b"\n")
    elif not is_dry_run or command.interruption.signal:
        emit(results_text(results, terminal()).encode(errors="replace"))
    return exit_code(results, command.interruption)


class _Copy:
    """One run of the command: what is known so far stands in its fields, whenever it is cancelled."""

    def __init__(
        self,
        config: Config,
        source: End,
        targets: Sequence[End],
        given: Given,
        *,
        is_dry_run: bool,
        as_json: bool,
    ) -> None:
        self._config = config
        self._source = source
        self._targets = targets
        self._given = given
        self._is_dry_run = is_dry_run
        self._as_json = as_json
        self.interruption = Interruption()
        self.plan = CopyPlan(_side(source), tuple(TargetPlan(_side(target)) for target in targets))
        self._runs: dict[Side, TargetRun] = {}

    async def run(self) -> None:
        """Goes as far as it may."""
        task = asyncio.current_task()
        assert task is not None
        names = dict.fromkeys(end.host for end in (self._source, *self._targets))
        with cancels(task) as self.interruption:
            try:
                await with_fleet(self._config, names, self._on)
            except asyncio.CancelledError:
                if not self._runs:
                    complain("cancelled before anything was changed")

    @property
    def results(self) -> list[Result]:
        """What became of each target."""
        is_cut = bool(self.interruption.signal)
        results = []
        for target in self.plan.targets:
            run = self._runs.get(target.side)
            if run is None and is_cut:
                run = TargetRun(target.side, "cancelled", "it was not begun: nothing was changed")
            results.append(Result(target, run))
        return results

    def given_up(self, error: BaseException) -> list[Result]:
        """What became of each target when an error ended the command."""
        return [
            Result(target, given_up(self._runs.get(target.side) or TargetRun(target.side), error))
            for target in self.plan.targets
        ]

    async def _on(self, fleet: Fleet) -> None:
        source, *targets = await places(fleet, self._config, (self._source, *self._targets))
        refuse_twice(_side_at(source), [_side_at(target) for target in targets])
        sides = [_side_at(place) for place in targets]
        gone = {
            _side_at(place): TargetPlan(_side_at(place), problem=place.why, is_unreachable=True)
            for place in targets
            if isinstance(place, Unreached)
        }
        reached = [place for place in targets if not isinstance(place, Unreached)]
        if isinstance(source, Unreached):
            why = f"{source.end.host} was not reached: {source.why}"
            self._take_plan(CopyPlan(_side_at(source), (), problem=why, is_unreachable=True), sides, gone)
            await self._go_on(fleet)
        elif not reached:
            self._take_plan(CopyPlan(source, ()), sides, gone)
            await self._go_on(fleet)
        else:
            async with planning(fleet, self._config, source, reached, told=complain) as planned:
                if not self._given.yes or self._is_dry_run:
                    await planned.whole()
                # Who has said yes to all does not wait for the source's verdict: the gate will, before the swap.
                self._take_plan(planned.plan, sides, gone)
                await self._go_on(fleet, planned)
                self._take_plan(planned.plan, sides, gone)

    def _take_plan(self, plan: CopyPlan, sides: Sequence[Side], gone: dict[Side, TargetPlan]) -> None:
        """The plan, with the targets that were not reached in their places."""
        found = {target.side: target for target in plan.targets} | gone
        whole = tuple(found.get(side) or TargetPlan(side) for side in sides)
        self.plan = msgspec.structs.replace(plan, targets=whole)

    async def _go_on(self, fleet: Fleet, planned: Planned | None = None) -> None:
        self._show_plan()
        if self.plan.problem:
            self._take(self._without_source(target) for target in self.plan.targets)
        elif self._is_dry_run:
            self._take(run for target in self.plan.targets if (run := self._in_the_way(target)))
        else:
            await self._carry_out(fleet, planned)

    def _show_plan(self) -> None:
        """In full where it is read: as the answer of a dry run, else among the words; in short beside JSON."""
        package = self._config.package.name
        if self._as_json:
            for target in self.plan.targets:
                complain(summary(target))
        elif self._is_dry_run:
            emit(plan_text(self.plan, package, terminal()).encode(errors="replace"))
        else:
            say(plan_text(self.plan, package, words_terminal()))

    def _without_source(self, target: TargetPlan) -> TargetRun:
        is_gone = self.plan.is_unreachable or target.is_unreachable
        why = target.problem or self.plan.problem
        return TargetRun(target.side, "unreachable" if is_gone else "refused", why)

    def _in_the_way(self, target: TargetPlan) -> TargetRun | None:
        """What would keep an operator from it who says yes to all that is asked."""
        if target.is_unreachable:
            return TargetRun(target.side, "unreachable", target.problem)
        why = refusal(target, self._given.all_for(target), read_only=False)
        return TargetRun(target.side, "refused", why) if why else None

    async def _carry_out(self, fleet: Fleet, planned: Planned | None) -> None:
        agreed = await agree(self.plan.targets, self._given, f"Copy from {self.plan.source} onto")
        self._take(agreed.refused)
        for run in agreed.refused:
            complain(
                f"{run.side}: {run.state}: {run.detail}"
                if run.state == "refused"
                else f"{run.side}: {run.detail}"
            )
        if not agreed.targets:
            return
        plan = msgspec.structs.replace(self.plan, targets=agreed.targets)
        runs = await carried_out(
            lambda changed: copy(
                fleet,
                self._config,
                plan,
                agreed.consent,
                changed,
                read_only=self._given.read_only,
                by=operator(),
                whole=planned.whole if planned is not None else None,
            ),
            [target.side for target in agreed.targets],
            Progress(),
            lambda run: self._take([run]),
        )
        known = {target.side: target for target in planned.plan.targets} if planned is not None else {}
        self._take(in_options(run, known.get(run.side), self._given, agreed.consent) for run in runs)

    def _take(self, runs: Iterable[TargetRun]) -> None:
        self._runs.update({run.side: run for run in runs})


def _side(end: End) -> Side:
    return Side(end.host, end.venv or "")


def _side_at(place: Place) -> Side:
    return _side(place.end) if isinstance(place, Unreached) else place
