"""Ctrl-C, SIGTERM and SIGHUP as a clean end of a command that changes hosts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Interruption", "cancels"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Whether a signal asked for the end."""

    signal: int = 0

    @property
    def exit_code(self) -> int:
        """As a shell gives it for a program that a signal ended: 130 for Ctrl-C."""
        return 128 + self.signal


@contextmanager
def cancels(task: asyncio.Task[object]) -> Iterator[Interruption]:
    """The first signal cancels the task, the next one ends the program as if nobody had been listening."""
    loop = asyncio.get_running_loop()
    what = Interruption()
    # One that is ignored is so on purpose, as by nohup.
    held = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def take(number: signal.Signals) -> None:
        if what.signal:
            release()
            signal.raise_signal(number)
        what.signal = number
        task.cancel()

    def release() -> None:
        for number in held:
            loop.remove_signal_handler(number)

    for number in held:
        loop.add_signal_handler(number, take, number)
    try:
        yield what
    finally:
        release()
