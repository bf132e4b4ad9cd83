"""The words for a change that did not come to a planned end: what went wrong, and what is there now. Pure."""

from __future__ import annotations

import time

from dflash_console.copies import RunState, TargetRun

__all__ = ["BEFORE_SWAP", "MOST_WORDS", "fault_words", "since_words", "standing"]

MOST_WORDS = 2000
BEFORE_SWAP: tuple[RunState, ...] = ("waiting", "claiming", "sending", "checking")
"""The states in which nothing has been changed yet."""


def fault_words(error: BaseException) -> str:
    """What to say of an error that nobody thought of; of several, the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"a fault of the console itself: {type(error).__name__}: {error}"


def since_words(at: float, now: float) -> str:
    """A point in time: `09:41:07 UTC`, with its date when that is not today's (UTC)."""
    then = time.gmtime(at)
    day = "" if then[:3] == time.gmtime(now)[:3] else "%Y-%m-%d "
    return f"{time.strftime(f'{day}%H:%M:%S', then)} UTC"


def standing(run: TargetRun, *, is_committed: bool) -> str:
    """What is there after an error that came at an awkward time; `is_committed`: it is swapped, or may be."""
    if not is_committed:
        return "; nothing was changed"
    if not run.swap:
        return "; whether it was swapped is not known: the package is the old or the new one, whole; plan again to see"
    return "; it had been swapped: the host keeps what passed its own checks; plan again to see"
