"""Copies and rollbacks: all targets side by side, and what becomes of each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from dflash_console.config import Config
from dflash_console.copies import Consent, CopyPlan, Look, RunState, Side, TargetRun
from dflash_console.errors import CopyError, LinkError
from dflash_console.link import Channel
from dflash_console.link.channel import TakeData
from dflash_console.operations import remote
from dflash_console.operations.ending import MOST_WORDS, fault_words, standing
from dflash_console.operations.gate import refusal
from dflash_console.operations.planning import plan_roll_back
from dflash_console.operations.pump import Pump
from dflash_console.operations.reaching import MOST_ON_A_HOST, Reaching
from dflash_console.operations.rolling_back import RollBackTarget
from dflash_console.operations.steps import CopyTarget
from dflash_console.operations.target import Refused, Stopped, Target

__all__ = ["copy", "roll_back"]

Changed = Callable[[TargetRun], None]


async def copy(
    fleet: Reaching,
    config: Config,
    plan: CopyPlan,
    consent: Consent,
    changed: Changed,
    *,
    read_only: bool,
    by: str,
    whole: Callable[[], Awaitable[CopyPlan]] | None = None,
) -> tuple[TargetRun, ...]:
    """Carries a plan out on all its targets side by side; the source is read once.

    `changed` gets each target's run on the way, the last one too. `by` is such as `kim@laptop`. `whole` gives the plan
    with its source's verdict, for one that `is_proving`: nothing is swapped before the gate has seen that one.

    Never raises a LinkError: how it ended is in each run, in the plan's order. When the task is cancelled, targets that
    are not swapped yet are left as they were, those that are get to their end; then CancelledError is raised.
    """
    source = _Source(fleet, config, plan)
    pump = Pump(source, plan.entries)
    targets = []
    for target in plan.targets:
        one = CopyTarget(fleet, config, plan, target, consent, by, changed, pump, whole)
        targets.append(one)
        if why := plan.problem or refusal(target, consent, read_only=read_only):
            is_away = (plan.is_unreachable if plan.problem else target.is_unreachable) and not read_only
            one.tell("unreachable" if is_away else "refused", why[:MOST_WORDS])
    work = _Work(fleet, targets, {plan.source.host})
    async with asyncio.TaskGroup() as tasks:
        pumping = tasks.create_task(source.serve(pump)) if work.waiting else None
        try:
            await work.do()
        finally:
            if pumping is not None and not pump.close():
                pumping.cancel()
    return tuple(target.run for target in targets)


async def roll_back(
    fleet: Reaching,
    config: Config,
    side: Side,
    backup: str,
    consent: Consent,
    changed: Changed,
    *,
    read_only: bool,
    by: str,
    look: Look | None,
) -> TargetRun:
    """Puts a backup back by the same steps as a copy; `backup` is its id, empty for the newest that a copy replaced.

    `look` is what the operator was shown; None to look now. Otherwise as `copy`.
    """
    plan = await plan_roll_back(fleet, config, side, backup)
    if look is not None and plan.look is not None and plan.look.stamp != look.stamp:
        plan = msgspec.structs.replace(plan, problem=f"{side} is not as it was shown: look again")
    target = RollBackTarget(
        fleet, config, plan.look or Look("", "", "broken"), plan.side, backup, by, changed
    )
    target.may_copy = "layer" in consent.allowed
    if why := refusal(plan, consent, read_only=read_only):
        is_away = plan.is_unreachable and not read_only
        target.tell("unreachable" if is_away else "refused", why[:MOST_WORDS])
        return target.run
    await _Work(fleet, [target], set()).do()
    return target.run


class _Source:
    """The source's end: its copy process, looked at once more, and read for the pump."""

    def __init__(self, fleet: Reaching, config: Config, plan: CopyPlan) -> None:
        self._fleet = fleet
        self._config = config
        self._plan = plan
        self._channel: Channel | None = None

    async def serve(self, pump: Pump) -> None:
        """Serves the pump until it is closed. Never raises a LinkError: the pump tells."""
        side, package = self._plan.source, self._config.package.name
        try:
            async with self._fleet.channel(side.host) as channel:
                look, _ = await remote.look(channel, side.venv, package, entries=False)
                # Equal trees have equal listings, and what is sent are indexes into the listing of this look.
                if look.state != "whole" or self._plan.look is None or look.tree != self._plan.look.tree:
                    raise CopyError(f"{side} is not as it was when the plan was made: make a new plan")
                self._channel = channel
                await pump.run()
        except (LinkError, CopyError) as error:
            pump.fail(error)
        except Exception as error:  # noqa: BLE001 - each target tells it
            pump.fail(CopyError(fault_words(error)))

    async def send(self, files: Sequence[int], size: int, *, compress: bool, take: TakeData) -> None:
        assert self._channel is not None
        await remote.send(self._channel, files, size, compress=compress, take=take)

    def pace(self, *, compress: bool) -> None:
        assert self._channel is not None
        self._channel.ask("pace", compress=compress)


class _Work:
    """Targets that are changed side by side, a few at a time on each host."""

    def __init__(self, fleet: Reaching, targets: Sequence[Target], busy: set[str]) -> None:
        """`busy` hosts have a copy process of this copy already."""
        self._fleet = fleet
        self.waiting = [target for target in targets if not target.run.is_over]
        hosts = Counter(target.side.host for target in self.waiting)
        self._turns = {host: asyncio.Semaphore(MOST_ON_A_HOST - (host in busy)) for host in hosts}
        self._tasks: dict[Target, asyncio.Task[None]] = {}

    async def do(self) -> None:
        """Brings all to their end. Cancelled, it stops those that are not committed, waits for all, and raises
        CancelledError."""
        is_cancelled = False
        async with asyncio.TaskGroup() as tasks:
            # Targets are not cancelled with us: those that are being swapped have to get to their end.
            all_done = tasks.create_task(self._all())
            while not all_done.done():
                try:
                    await asyncio.shield(all_done)
                except asyncio.CancelledError:
                    if all_done.done():
                        break
                    is_cancelled = True
                    self._stop()
        if is_cancelled:
            raise asyncio.CancelledError

    def _stop(self) -> None:
        for target, task in self._tasks.items():
            if not target.is_committed:
                task.cancel()

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for target in self.waiting:
                self._tasks[target] = tasks.create_task(self._one(target))

    async def _one(self, target: Target) -> None:
        try:
            async with self._turns[target.side.host]:
                target.begin()
                target.tell("done", await self._change(target))
        except Refused as error:
            target.tell("refused", str(error)[:MOST_WORDS])
        except Stopped as error:
            target.tell("undone" if error.is_undone else "failed", str(error)[:MOST_WORDS])
        except CopyError as error:
            _fail(target, "failed", str(error))
        except LinkError as error:
            _fail(target, "unreachable", str(error))
        except asyncio.CancelledError:
            # `_stop` cancels what is not committed; the end of the loop (a second Ctrl-C) cancels all.
            if target.is_committed:
                _fail(target, "failed", "stopped at once")
            else:
                target.tell("cancelled", "cancelled: nothing was changed")
        except Exception as error:  # noqa: BLE001 - a fault on one target must not end the others
            _fail(target, "failed", fault_words(error))
        finally:
            target.end()

    async def _change(self, target: Target) -> str:
        async with self._fleet.channel(target.side.host) as channel:
            channel.is_used_up = True
            if words := await target.change(channel):
                return words
            target.is_committed = True
            return await target.complete(channel)


def _fail(target: Target, state: RunState, why: str) -> None:
    target.tell(state, f"{why}{standing(target.run, is_committed=target.is_committed)}"[:MOST_WORDS])
