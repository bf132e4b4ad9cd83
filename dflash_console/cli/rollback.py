"""`rollback`: puts a package that was replaced back into its environment, or lists those that are kept."""

from __future__ import annotations

import asyncio

from dflash_console.cli.changing import carried_out, exit_code, failure_words, given_up
from dflash_console.cli.consent import Given, agree
from dflash_console.cli.copy_json import Result, backups_json, results_json
from dflash_console.cli.copy_text import backups_text, results_text, rollback_text
from dflash_console.cli.ends import End, Unreached, end_of, may_be_changed, places
from dflash_console.cli.interruption import Interruption, cancels
from dflash_console.cli.progress import Progress
from dflash_console.cli.reach import with_fleet
from dflash_console.cli.status_text import terminal, words_terminal
from dflash_console.cli.streams import complain, emit, harmless_json, say
from dflash_console.config import Config
from dflash_console.copies import Backup, Side, TargetPlan, TargetRun
from dflash_console.fleet import Fleet
from dflash_console.operations.copying import roll_back
from dflash_console.operations.operator import operator
from dflash_console.operations.planning import plan_roll_back

__all__ = ["run_list", "run_rollback"]


def run_rollback(config: Config, word: str, backup: str, given: Given, *, as_json: bool) -> int:
    """Puts a backup back, by its id or the newest that a copy replaced; gives back the exit code. Raises
    ConfigError."""
    command = _Rollback(config, may_be_changed(config, end_of(config, word)), backup, given, as_json=as_json)
    try:
        asyncio.run(command.run())
    except (Exception, KeyboardInterrupt) as error:
        # A script that reads stdout is told all the same what became of its target.
        if as_json:
            emit(harmless_json(results_json([command.given_up(error)])) + b"\n")
        raise
    result = command.result
    if as_json:
        emit(harmless_json(results_json([result])) + b"\n")
    else:
        emit(results_text([result], terminal()).encode(errors="replace"))
    return exit_code([result], command.interruption)


def run_list(config: Config, word: str, *, as_json: bool) -> int:
    """Prints the backups of an environment; gives back the exit code. Raises ConfigError."""
    end = end_of(config, word)
    try:
        plan = asyncio.run(with_fleet(config, [end.host], lambda fleet: _planned(fleet, config, end)))
    except (Exception, KeyboardInterrupt) as error:
        if as_json:
            side = Side(end.host, end.venv or "")
            emit(harmless_json(backups_json(side, (), failure_words(error))) + b"\n")
        raise
    backups = plan.look.backups if plan.look is not None else ()
    if as_json:
        emit(harmless_json(backups_json(plan.side, backups, plan.problem)) + b"\n")
    elif plan.look is not None:
        emit(backups_text(plan.look, config.package.name, terminal()).encode(errors="replace"))
    if not backups:
        complain(f"{plan.side}: {plan.problem or 'no backup is kept there'}")
    return 3 if plan.is_unreachable else 1 if plan.look is None else 0


async def _planned(fleet: Fleet, config: Config, end: End, backup: str = "") -> TargetPlan:
    (place,) = await places(fleet, config, [end])
    if isinstance(place, Unreached):
        return TargetPlan(Side(end.host, end.venv or ""), problem=place.why, is_unreachable=True)
    return await plan_roll_back(fleet, config, place, backup)


class _Rollback:
    """One run of the command, as that of `copy`."""

    def __init__(self, config: Config, end: End, backup: str, given: Given, *, as_json: bool) -> None:
        self._config = config
        self._end = end
        self._backup = backup
        self._given = given
        self._as_json = as_json
        self.interruption = Interruption()
        self._plan = TargetPlan(Side(end.host, end.venv or ""))
        self._run: TargetRun | None = None

    @property
    def result(self) -> Result:
        """What became of it."""
        run = self._run or TargetRun(self._plan.side, "cancelled", "it was not begun: nothing was changed")
        return Result(self._plan, run)

    def given_up(self, error: BaseException) -> Result:
        """What became of it when an error ended the command."""
        return Result(self._plan, given_up(self._run or TargetRun(self._plan.side), error))

    async def run(self) -> None:
        """Goes as far as it may."""
        task = asyncio.current_task()
        assert task is not None
        with cancels(task) as self.interruption:
            try:
                await with_fleet(self._config, [self._end.host], self._on)
            except asyncio.CancelledError:
                if self._run is None:
                    complain("cancelled before anything was changed")

    async def _on(self, fleet: Fleet) -> None:
        self._plan = plan = await _planned(fleet, self._config, self._end, self._backup)
        backup = _meant(plan, self._backup)
        if why := _not_there(plan, self._backup, backup):
            self._run = TargetRun(plan.side, "failed", why)
            return
        if self._as_json:
            complain(_summary(plan, backup))
        else:
            say(rollback_text(plan, backup, self._config.package.name, words_terminal()))
        agreed = await agree([plan], self._given, "Put it back into")
        if agreed.refused:
            (self._run,) = agreed.refused
            complain(f"{plan.side}: {self._run.state}: {self._run.detail}")
            return
        (self._run,) = await carried_out(
            lambda changed: roll_back(
                fleet,
                self._config,
                plan.side,
                # What was shown, also if another copy adds a newer one meanwhile.
                backup.id if backup is not None else "",
                agreed.consent,
                changed,
                read_only=self._given.read_only,
                by=operator(),
                look=plan.look,
            ),
            [plan.side],
            Progress(),
            self._take,
        )

    def _take(self, run: TargetRun) -> None:
        self._run = run


def _meant(plan: TargetPlan, asked: str) -> Backup | None:
    """The backup that is named, else the newest that a copy replaced; None where there is none."""
    backups = plan.look.backups if plan.look is not None else ()
    if asked:
        return next((backup for backup in backups if backup.id == asked), None)
    return next((backup for backup in backups if backup.reason == "copy"), None)


def _not_there(plan: TargetPlan, asked: str, backup: Backup | None) -> str:
    """Why there is nothing to put back. A copy that was broken off is to be settled all the same, and may leave one."""
    if plan.look is None or backup is not None or (plan.look.unsettled is not None and not asked):
        return ""
    kept = ", ".join(each.id for each in plan.look.backups)
    if not kept:
        return "no backup is kept there: there is nothing to put back"
    if asked:
        return f"no backup {asked} is there; there are: {kept}"
    return f"a copy replaced none of the backups there; name the one to put back with --backup ID: {kept}"


def _summary(plan: TargetPlan, backup: Backup | None) -> str:
    now = plan.look.version if plan.look is not None else ""
    if backup is None:
        return f"{plan.side}: {plan.problem or 'a copy was broken off there: to be settled first'}"
    return f"{plan.side}: {now or 'nothing'} is to be replaced by {backup.version or 'nothing'} of backup {backup.id}"
