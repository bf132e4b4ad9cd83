"""Copies for the screen: asked for at once, carried out in `run`, looked at on every tick."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from dflash_console.config import Config
from dflash_console.copies import Consent, CopyPlan, RunState, Side, TargetRun
from dflash_console.errors import CopyError, LinkError
from dflash_console.operations import remote
from dflash_console.operations.copying import copy, roll_back
from dflash_console.operations.ending import BEFORE_SWAP, MOST_WORDS, fault_words, standing
from dflash_console.operations.gate import refusal
from dflash_console.operations.planning import make_plan
from dflash_console.operations.reaching import Reaching
from dflash_console.operations.verdicts import Verdicts
from dflash_console.verdict import Verdict

__all__ = ["Copies", "Watched"]

LOOK_PAUSE = 2.0
"""Seconds between two looks for interrupted copies."""
READ_ONLY = "the console is read-only: start it without --read-only, and without read_only in the config"


class Watched(Reaching, Protocol):
    """What is needed of the fleet."""

    def refresh(self, name: str) -> None:
        """Has a host read its slow sections anew."""
        ...


class Copies:
    """The plan that is being made or shown, the copies and rollbacks that run, and those that have ended. Belongs to
    one event loop; nothing here awaits but `run`."""

    def __init__(
        self,
        fleet: Watched,
        config: Config,
        verdicts: Verdicts,
        *,
        read_only: bool,
        by: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """A copy's verdict is put among `verdicts`. `by` is such as `kim@laptop`."""
        self._fleet = fleet
        self._config = config
        self._verdicts = verdicts
        self._read_only = read_only
        self._by = by
        self._clock = clock
        self._plan: CopyPlan | None = None
        self._steps = ""
        self._runs: dict[Side, TargetRun] = {}
        self._order: tuple[Side, ...] = ()
        """Of the latest copy or rollback."""
        self._notices: deque[str] = deque(maxlen=20)
        self._wishes: deque[Callable[[], Coroutine[Any, Any, None]]] = deque()
        self._wished = asyncio.Event()
        self._planning: asyncio.Task[None] | None = None
        self._copying: asyncio.Task[None] | None = None
        self._is_planning = False
        self._is_running = False
        self._seen: set[tuple[Side, str]] = set()
        """Interrupted copies that were dealt with."""

    # ---- what is known

    @property
    def plan_now(self) -> CopyPlan | None:
        """The last plan that was made; None while none is, or while one is being made."""
        return self._plan

    @property
    def steps(self) -> str:
        """What is being done for the plan just now, or why it could not be made; empty when nothing is."""
        return self._steps

    @property
    def is_planning(self) -> bool:
        """Whether a plan is being made."""
        return self._is_planning

    @property
    def is_running(self) -> bool:
        """Whether a copy or a rollback is under way."""
        return self._is_running

    @property
    def runs(self) -> tuple[TargetRun, ...]:
        """The last run of each environment: first those of the latest copy or rollback, in its plan's order."""
        latest = [self._runs[side] for side in self._order if side in self._runs]
        return (*latest, *(run for side, run in self._runs.items() if side not in self._order))

    def take_notice(self) -> str:
        """What the operator should be told and was not asked for, such as an interrupted copy that was settled; each
        once, empty when there is none."""
        return self._notices.popleft() if self._notices else ""

    # ---- what is asked for

    def plan(self, source: Side, targets: Sequence[Side]) -> str:
        """Has a plan made, in place of the one that was; gives back why it can't be, empty when it will be."""
        sides = tuple(targets)
        if not sides:
            return "no host to copy to"
        if all(side == source for side in sides):
            return f"{source} is the source itself"
        if self._planning is not None:
            self._planning.cancel()
        self._plan, self._steps, self._is_planning = None, f"looking at {source}", True
        self._wish(lambda: self._make_plan(source, sides), is_plan=True)
        return ""

    def start(self, consent: Consent) -> str:
        """Has `plan_now` carried out; gives back why it can't be, empty when it will be."""
        plan = self._plan
        if plan is None:
            return "there is no plan"
        if self._is_running:
            return "another copy is under way"
        reasons = [
            plan.problem or refusal(target, consent, read_only=self._read_only) for target in plan.targets
        ]
        if all(reasons):
            return reasons[0] if reasons else "no host to copy to"
        self._begin(tuple(target.side for target in plan.targets))
        self._wish(lambda: self._copy(plan, consent))
        return ""

    def roll_back(self, side: Side, backup: str, consent: Consent) -> str:
        """Has a backup put back; gives back why it can't be, empty when it will be."""
        if self._read_only:
            return READ_ONLY
        if self._is_running:
            return "another copy is under way"
        if not consent.yes:
            return "not confirmed"
        self._begin((side,))
        self._wish(lambda: self._roll_back(side, backup, consent))
        return ""

    def cancel(self) -> None:
        """Stops the plan that is being made and the copies that have not swapped yet."""
        for task in (self._planning, self._copying):
            if task is not None:
                task.cancel()

    # ---- doing it

    async def run(self) -> None:
        """Does what is asked for, and settles interrupted copies that are seen, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._mind_interrupted())
            while True:
                await self._wished.wait()
                self._wished.clear()
                while self._wishes:
                    tasks.create_task(self._guarded(self._wishes.popleft()))

    def _wish(self, work: Callable[[], Coroutine[Any, Any, None]], *, is_plan: bool = False) -> None:
        async def noted() -> None:
            task = asyncio.current_task()
            if is_plan:
                self._planning = task
            else:
                self._copying = task
            await work()

        self._wishes.append(noted)
        self._wished.set()

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except asyncio.CancelledError:
            # By `cancel` or a newer plan; when all of `run` ends, the group ends too.
            return
        except Exception as error:  # noqa: BLE001 - a fault in one must not end the console
            self._notices.append(fault_words(error)[:300])

    async def _make_plan(self, source: Side, targets: tuple[Side, ...]) -> None:
        me = self._planning
        words = ""
        try:
            plan = await make_plan(
                self._fleet,
                self._config,
                source,
                targets,
                told=lambda words: self._say(me, words),
                known=self._verdict_of,
            )
            if me is self._planning:
                self._plan, words = plan, plan.problem
        except asyncio.CancelledError:
            words = "cancelled"
            raise
        finally:
            if me is self._planning:
                self._steps, self._is_planning, self._planning = words, False, None

    def _verdict_of(self, side: Side) -> Verdict | None:
        return next((one for one in self._verdicts.of(side.host) if one.venv == side.venv), None)

    def _say(self, task: asyncio.Task[None] | None, words: str) -> None:
        if task is self._planning:
            self._steps = words

    def _begin(self, sides: tuple[Side, ...]) -> None:
        self._order, self._is_running = sides, True
        for side in sides:
            self._runs[side] = TargetRun(side, began=self._clock())

    async def _copy(self, plan: CopyPlan, consent: Consent) -> None:
        # The plan is used up: what it stands on is another after this.
        self._plan, self._steps = None, ""
        await self._ended(
            copy(self._fleet, self._config, plan, consent, self._note, read_only=self._read_only, by=self._by)
        )

    async def _roll_back(self, side: Side, backup: str, consent: Consent) -> None:
        await self._ended(
            roll_back(
                self._fleet,
                self._config,
                side,
                backup,
                consent,
                self._note,
                read_only=self._read_only,
                by=self._by,
                look=None,
            )
        )

    async def _ended(self, work: Coroutine[Any, Any, object]) -> None:
        """Carries it out; whatever ends it, no run is left under way."""
        try:
            await work
        except asyncio.CancelledError:
            self._break_off("cancelled", "cancelled")
            raise
        except Exception as error:
            self._break_off("failed", fault_words(error))
            raise
        finally:
            self._is_running, self._copying = False, None

    def _break_off(self, state: RunState, why: str) -> None:
        for side in self._order:
            run = self._runs[side]
            if not run.is_over:
                seconds = self._clock() - run.began
                words = standing(run, is_committed=run.state not in BEFORE_SWAP)
                detail = f"{why}{words}"[:MOST_WORDS]
                self._runs[side] = msgspec.structs.replace(run, state=state, detail=detail, seconds=seconds)

    def _note(self, run: TargetRun) -> None:
        self._runs[run.side] = run
        if run.is_over:
            if run.verdict is not None and run.state == "done":
                self._verdicts.take(run.verdict)
            if run.swap and run.side.host in self._config.hosts:
                self._fleet.refresh(run.side.host)

    # ---- what was interrupted

    async def _mind_interrupted(self) -> None:
        """Has a host settle a copy that died with its console, once it is seen."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                for view in self._fleet.views():
                    if view.link.state == "up" and view.snapshot is not None:
                        for venv in view.snapshot.venvs:
                            side, words = Side(view.config.name, venv.path), venv.interrupted
                            if words and self._is_news(side, words):
                                tasks.create_task(self._guarded(partial(self._settle, side, words)))
                await asyncio.sleep(LOOK_PAUSE)

    def _is_news(self, side: Side, words: str) -> bool:
        if (self._is_running and side in self._order) or (side, words) in self._seen:
            return False
        self._seen.add((side, words))
        return True

    async def _settle(self, side: Side, words: str) -> None:
        if self._read_only:
            self._notices.append(f"{side}: {words}; left as it is: the console is read-only")
            return
        try:
            async with self._fleet.channel(side.host) as channel:
                claim = await remote.claim(
                    channel,
                    side,
                    self._config.package.name,
                    by=self._by,
                    what="settling an interrupted copy",
                    origin=None,
                    version="",
                    stamp="",
                    tree="",
                    keep_backups=self._config.package.keep_backups,
                )
                if claim.locked is None:
                    await remote.release(channel)
        except (LinkError, CopyError) as error:
            self._notices.append(f"{side}: {words}; it could not be settled: {error}"[:1000])
            return
        if claim.recovered:
            self._notices.append(f"{side}: {claim.recovered}")
            self._fleet.refresh(side.host)
