"""Turns to connect: few at a time, and none for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

__all__ = ["turn"]

AT_ONCE = 8
"""More gain no speed here, and freeze the event loop for longer."""
LENGTH = 1.5
"""Seconds after which a connect counts as waiting, not as busy: a host that does not answer costs nothing."""

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


@asynccontextmanager
async def turn() -> AsyncIterator[None]:
    """Waits for a turn, of which there are eight in the whole process.

    It is over with the body, or after a while although the body goes on: so hosts that do not answer never
    hold up those that do.
    """
    loop = asyncio.get_running_loop()
    turns = _turns.setdefault(loop, asyncio.Semaphore(AT_ONCE))
    await turns.acquire()
    is_over = False

    def end() -> None:
        nonlocal is_over
        if not is_over:
            is_over = True
            turns.release()

    timer = loop.call_later(LENGTH, end)
    try:
        yield
    finally:
        timer.cancel()
        end()
