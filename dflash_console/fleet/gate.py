"""A bounded number of connects at once, in which a host that does not answer holds no one up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Gate"]


class Gate:
    """Lets `slots` connects start; each gives its slot on when it is done, or after `turn` seconds."""

    def __init__(self, slots: int, turn: float) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._turn = turn

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """Waits for a slot; the body may go on after its turn is over."""
        await self._slots.acquire()
        is_given_on = False

        def give_on() -> None:
            nonlocal is_given_on
            if not is_given_on:
                is_given_on = True
                self._slots.release()

        timer = asyncio.get_running_loop().call_later(self._turn, give_on)
        try:
            yield
        finally:
            timer.cancel()
            give_on()
