"""Blocking look-ups (names, files, keys) off the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["in_thread", "start_thread"]

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` gives back or raises, computed in a thread of its own.

    A thread each, and a daemon: a name server that hangs for a minute then holds up neither the other hosts
    (as a pool of few threads would) nor the end of the program (which waits for every pool).
    """
    return await start_thread(work)


def start_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """The same, not waited for. Cancelling the future leaves the thread to itself."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]  # None only if T allows it

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            # The loop was closed meanwhile: nobody waits any more.
            return

    threading.Thread(target=run, name="link look-up", daemon=True).start()
    return answer
