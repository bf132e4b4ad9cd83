"""A change on hosts that runs to its end, or to a clean one when it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from dflash_console.cli.copy_json import Result
from dflash_console.cli.interruption import Interruption
from dflash_console.cli.progress import Progress
from dflash_console.copies import RunState, Side, TargetRun
from dflash_console.errors import ConsoleError, LinkError
from dflash_console.operations.ending import BEFORE_SWAP, fault_words, standing

__all__ = ["carried_out", "exit_code", "failure_words", "given_up"]

TICK = 1.0
"""Seconds."""
CANCELLING = "cancelling: what was not swapped yet is left as it was; once more to stop at once"


async def carried_out(
    work: Callable[[Callable[[TargetRun], None]], Coroutine[Any, Any, object]],
    sides: Sequence[Side],
    progress: Progress,
    told: Callable[[TargetRun], None] | None = None,
) -> list[TargetRun]:
    """The last state of each target, in this order, also when the task was cancelled meanwhile.

    `work` gets what to call with every new state, which `told` gets too; it is cancelled with this task and waited for
    all the same.
    """
    runs = {side: TargetRun(side) for side in sides}

    def changed(run: TargetRun) -> None:
        runs[run.side] = run
        progress.show(run)
        if told is not None:
            told(run)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work(changed))
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=TICK)
                progress.tick()
        except asyncio.CancelledError:
            _uncancel()
            progress.say(CANCELLING)
            task.cancel()
            await asyncio.wait({task})
    progress.end()
    return [runs[side] if runs[side].is_over else _broken_off(runs[side]) for side in sides]


def _uncancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()


def _broken_off(run: TargetRun) -> TargetRun:
    return TargetRun(run.side, "cancelled", run.detail or "it was not begun: nothing was changed")


def given_up(run: TargetRun, error: BaseException) -> TargetRun:
    """What becomes of a target when the command itself is ended by an error; as it was if that was over."""
    if run.is_over:
        return run
    where = standing(run, is_committed=run.state not in BEFORE_SWAP)
    state: RunState = "failed"
    if isinstance(error, ConsoleError):
        state = "unreachable" if isinstance(error, LinkError) else "refused"
    elif isinstance(error, KeyboardInterrupt):
        state = "cancelled"
    return msgspec.structs.replace(run, state=state, detail=f"{failure_words(error)}{where}")


def failure_words(error: BaseException) -> str:
    """Why a command was ended by an error."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped at once"
    return str(error) if isinstance(error, ConsoleError) else fault_words(error)


def exit_code(results: Sequence[Result], interruption: Interruption) -> int:
    """As a signal's if one came, else 1 when something failed or was undone, else 4 when something was refused, else 3
    when a host was not reached, else 0."""
    if interruption.signal:
        return interruption.exit_code
    states = {result.state for result in results}
    if states & {"failed", "undone", "cancelled"}:
        return 1
    if "refused" in states:
        return 4
    return 3 if "unreachable" in states else 0
