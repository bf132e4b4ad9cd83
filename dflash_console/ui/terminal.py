"""The edges between console and terminal: input that is not UTF-8, signals, and a terminal that went away."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO, cast

from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from textual.app import App

__all__ = ["SIGNALS", "ConsoleDriver", "handle_signals", "is_gone", "release_signals", "terminal_of_stdin"]

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class _Output:
    """A file that is written to /dev/null once its terminal went away.

    Textual's writer thread dies of the first failed write, and the app then waits for it for ever.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Writes, if anybody can still read it."""
        try:
            return self._file.write(text)
        except OSError:
            self._forget()
            return 0

    def flush(self) -> None:
        """Flushes, if anybody can still read it."""
        try:
            self._file.flush()
        except OSError:
            self._forget()

    def fileno(self) -> int:
        """As that of the file."""
        return self._file.fileno()

    def _forget(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._file.fileno())
        os.close(nowhere)


class ConsoleDriver(LinuxDriver):
    """Textual's driver, which survives bytes that are not UTF-8 (Textual issue 6668) and a lost terminal."""

    def __init__(self, app: App[object], **options: Any) -> None:
        super().__init__(app, **options)
        if self._file is not None:
            self._file = cast(Any, _Output(self._file))
        if self._size is None:
            # Else the first layout goes by Rich, which knows another size where the terminal tells none.
            self._size = self._get_terminal_size()

    def _sigcont_application(self, *arguments: object) -> None:
        """Resumes only what was suspended: a hang-up sends SIGCONT too, and two readers would never end."""
        if self._key_thread is None or not self._key_thread.is_alive():
            super()._sigcont_application(*arguments)

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
