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
from dflash_console.copies import Consent, CopyPlan, Look, RunState, Side, TargetRun
from dflash_console.errors import CopyError, LinkError
from dflash_console.model import Copied
from dflash_console.operations import remote
from dflash_console.operations.copying import copy, roll_back
from dflash_console.operations.ending import BEFORE_SWAP, MOST_WORDS, fault_words, standing
from dflash_console.operations.gate import read_only_words, refusal
from dflash_console.operations.planning import make_plan
from dflash_console.operations.reaching import Reaching
from dflash_console.operations.verdicts import Verdicts
from dflash_console.verdict import Verdict

__all__ = ["Copies", "Watched"]

LOOK_PAUSE = 2.0
"""Seconds between two looks for interrupted copies."""
TRIES, FIRST_PAUSE = 5, 30.0
"""Times that an interrupted copy is tried to be settled, and seconds before the second one; each later pause is twice
as long."""


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
        self._settling: set[str] = set()
        """Hosts that are settling one."""
        self._tries: dict[tuple[Side, str], tuple[int, float]] = {}
        """How often one could not be settled, and when it is tried again, on the loop's clock."""

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

    def roll_back(self, side: Side, backup: str, consent: Consent, look: Look | None) -> str:
        """Has a backup put back, if all is as in `look`, which the operator was shown; gives back why it can't be,
        empty when it will be."""
        if why := read_only_words(is_read_only=self._read_only):
            return why
        if self._is_running:
            return "another copy is under way"
        if not consent.yes:
            return "not confirmed"
        self._begin((side,))
        self._wish(lambda: self._roll_back(side, backup, consent, look))
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

    async def _roll_back(self, side: Side, backup: str, consent: Consent, look: Look | None) -> None:
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
                look=look,
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
                            if words and self._is_due(side, words):
                                self._settling.add(side.host)
                                tasks.create_task(self._guarded(partial(self._settle, side, words)))
                            elif not words and venv.copied is not None:
                                self._prove_later(side, venv.copied)
                await asyncio.sleep(LOOK_PAUSE)

    def _prove_later(self, side: Side, copied: Copied) -> None:
        """Has a copy verified, once, whose console was gone before it could; that changes nothing on the host."""
        key = (side, f"unverified {copied.at}")
        if not copied.verified and key not in self._seen and not (self._is_running and side in self._order):
            self._seen.add(key)
            self._notices.append(
                f"{side} was copied and never verified: its console was gone; it is verified now"
            )
            self._verdicts.ask(side.host, side.venv)

    def _is_due(self, side: Side, words: str) -> bool:
        if (self._is_running and side in self._order) or (side, words) in self._seen:
            return False
        tried = self._tries.get((side, words))
        is_time = tried is None or asyncio.get_running_loop().time() >= tried[1]
        return is_time and side.host not in self._settling

    async def _settle(self, side: Side, words: str) -> None:
        try:
            why = self._left_alone(side.host)
            if not why:
                await self._have_settled(side)
        except (LinkError, CopyError) as error:
            self._try_later(side, words, str(error))
            return
        finally:
            self._settling.discard(side.host)
        self._seen.add((side, words))
        if why:
            self._notices.append(f"{side}: {words}; {why}")

    def _left_alone(self, host: str) -> str:
        """Why nothing is done on a host that nobody has said yes for; empty when it is."""
        config = self._config.hosts.get(host)
        if self._read_only:
            return "left as it is: the console is read-only"
        if config is None or config.role == "observe":
            return "left as it is: the host is only observed"
        if config.production:
            return "left as it is on a production host: the next copy or rollback there settles it"
        return ""

    async def _have_settled(self, side: Side) -> None:
        """Has the host settle it. Raises CopyError when another one holds it, and as `remote.claim`."""
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
            if claim.locked is not None:
                raise CopyError(f"held by {claim.locked.by} ({claim.locked.what or 'a copy'})")
            await remote.release(channel)
        self._fleet.refresh(side.host)
        if claim.recovered:
            self._notices.append(f"{side}: {claim.recovered}")
        # What is there now was never verified, or another package was.
        self._verdicts.ask(side.host, side.venv)

    def _try_later(self, side: Side, words: str, why: str) -> None:
        tries = self._tries.get((side, words), (0, 0.0))[0] + 1
        is_last = tries >= TRIES
        if is_last:
            self._seen.add((side, words))
        at = asyncio.get_running_loop().time() + FIRST_PAUSE * 2 ** (tries - 1)
        self._tries[side, words] = tries, at
        if tries == 1 or is_last:
            then = "the next copy or rollback there does it" if is_last else "it is tried again"
            self._notices.append(f"{side}: {words}; it could not be settled: {why}; {then}"[:1000])
