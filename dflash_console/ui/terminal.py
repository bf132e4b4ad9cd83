"""The edges between console and terminal: input that is not UTF-8, signals, and a terminal that went away."""

from __future__ import annotations

import asyncio
import select
import signal
import sys
from collections.abc import Callable

from textual.drivers.linux_driver import LinuxDriver

__all__ = ["SIGNALS", "ConsoleDriver", "handle_signals", "is_gone", "release_signals", "terminal_of_stdin"]

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class ConsoleDriver(LinuxDriver):
    """Textual's driver, which goes on after bytes that are not UTF-8 (Textual issue 6668)."""

    def run_input_thread(self) -> None:
        """Reads keys until told to stop; a chunk that can't be decoded is lost, not the console."""
        while not self.exit_event.is_set():
            try:
                super().run_input_thread()
            except UnicodeDecodeError:
                continue
            except OSError:
                return  # the terminal went away; `is_gone` tells the app


def handle_signals(leave: Callable[[int], None]) -> None:
    """Has `leave` called with the exit code 128 + number when a signal asks the console to end."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, leave, 128 + number)


def release_signals() -> None:
    """Gives the signals back."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.remove_signal_handler(number)


def terminal_of_stdin() -> int | None:
    """The descriptor of the terminal that keys come from; None when stdin is none."""
    stdin = sys.__stdin__
    if stdin is None or stdin.closed or not stdin.isatty():
        return None
    return stdin.fileno()


def is_gone(terminal: int) -> bool:
    """Whether the terminal hung up; where SIGHUP is ignored (nohup) nothing else tells."""
    poll = select.poll()
    poll.register(terminal, 0)
    return any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
