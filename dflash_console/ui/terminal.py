"""The edges between console and terminal: input of any kind, signals, and a terminal that went away."""

from __future__ import annotations

import asyncio
import io
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO, cast

from textual.drivers._writer_thread import WriterThread
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from dflash_console.ui.job_control import has_job_control, is_in_foreground
from dflash_console.ui.typed import Typed

if TYPE_CHECKING:
    from textual.app import App

__all__ = [
    "SIGNALS",
    "ConsoleDriver",
    "Continued",
    "handle_signals",
    "is_gone",
    "release_signals",
    "terminal_of_stdin",
]

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_CHUNK = 1 << 16
_STOPPING_SECONDS = 0.5


class Continued(Message):
    """The console was stopped and goes on: its terminal shows something else."""


class _Output:
    """A file that is written to /dev/null once its terminal went away.

    Textual's writer thread dies of the first failed write, and the app then waits for it for ever.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        if isinstance(file, io.TextIOWrapper):
            file.reconfigure(errors="replace")  # a terminal that knows few characters shows all the others

    def write(self, text: str) -> int:
        """Writes, if anybody can still read it."""
        try:
            return self._file.write(text)
        except OSError:
            self.forget()
            return 0

    def flush(self) -> None:
        """Flushes, if anybody can still read it."""
        try:
            self._file.flush()
        except OSError:
            self.forget()

    def fileno(self) -> int:
        """As that of the file."""
        return self._file.fileno()

    def forget(self) -> None:
        """Writes to nowhere from now on."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._file.fileno())
        os.close(nowhere)


class ConsoleDriver(LinuxDriver):
    """Textual's driver, which survives any input (Textual issue 6668), a lost terminal, and being stopped."""

    def __init__(self, app: App[object], **options: Any) -> None:
        super().__init__(app, **options)
        # Textual draws on stderr, which may be a log; that stdout is a terminal was seen to.
        self._output = _Output(cast(TextIO, sys.__stdout__ or sys.__stderr__))
        self._file = cast(Any, self._output)
        self._is_stopped = self._was_continued = False
        if self._size is None:
            # Else the first layout goes by Rich, which knows another size where the terminal tells none.
            self._size = self._get_terminal_size()

    def run_input_thread(self) -> None:
        """Reads keys until told to stop or until the terminal went away; `is_gone` tells the app of that."""
        typed = Typed()
        while not self.exit_event.is_set():
            try:
                is_silent = not select.select([self.fileno], [], [], typed.wait)[0]
                data = b"" if is_silent else os.read(self.fileno, _CHUNK)
            except OSError:
                return
            if not data and not is_silent:
                return
            now = time.monotonic()
            try:
                events = typed.silence(now) if is_silent else typed.feed(data, now)
            except Exception:  # noqa: BLE001  the top of the thread's loop: these bytes are lost, not the console
                typed, events = Typed(), []
            for event in events:
                self.process_message(event)

    def _query_in_band_window_resize(self) -> None:
        """Leaves it: sizes come by SIGWINCH, and what the input says of them is not believed."""

    # ---- job control

    def _sigtstp_application(self, *_: object) -> None:
        """Stops on request of another process as by Ctrl+Z."""
        self._loop.call_soon_threadsafe(self.stop)

    def _sigcont_application(self, *_: object) -> None:
        """Draws anew after a SIGSTOP, of which nothing told."""
        self._was_continued = True
        if not self._is_stopped:
            self._loop.call_soon_threadsafe(self._draw_anew)

    def stop(self) -> bool:
        """Gives the terminal back and stops this process group until a shell has it go on in the foreground.

        False where no shell would: nothing was done then.
        """
        if not self._is_reading or not has_job_control():
            return False
        self._is_stopped = True
        self.suspend_application_mode()
        self._stop_group()
        self._come_back()
        return True

    def _draw_anew(self) -> None:
        if self._is_reading:
            self._is_stopped = True
            self._wait_for_foreground()
            self.suspend_application_mode()
            self._come_back()

    @property
    def _is_reading(self) -> bool:
        return self._key_thread is not None and self._key_thread.is_alive()

    def _come_back(self) -> None:
        if self._wait_for_foreground():
            self.resume_application_mode()
            self._app.post_message(Continued())
        else:
            # The shell has gone and nobody gives the terminal out any more.
            self._output.forget()
            self._writer_thread = WriterThread(cast(Any, self._output))
            self._writer_thread.start()
            self._app.exit(return_code=128 + signal.SIGHUP)
        self._is_stopped = False

    def _wait_for_foreground(self) -> bool:
        """Stops again and again after `bg`, as there is nothing to do without the terminal."""
        while not is_in_foreground(self.fileno):
            if not has_job_control():
                return False
            self._stop_group()
        return True

    def _stop_group(self) -> None:
        """Stops until continued; all of the group, as the shell waits for all of it."""
        self._was_continued = False
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        try:
            os.kill(0, signal.SIGTSTP)
            # Another thread may have got the signal: this one then goes on for a moment.
            deadline = time.monotonic() + _STOPPING_SECONDS
            while not self._was_continued and time.monotonic() < deadline:
                time.sleep(0.005)
        finally:
            signal.signal(signal.SIGTSTP, before)


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
    """The descriptor that keys come from; None where there is none.

    It is not asked whether it is a terminal: one that went away while the console started is none any more.
    """
    stdin = sys.__stdin__
    return None if stdin is None or stdin.closed else stdin.fileno()


def is_gone(terminal: int) -> bool:
    """Whether the terminal hung up; where SIGHUP is ignored (nohup) nothing else tells."""
    poll = select.poll()
    poll.register(terminal, 0)
    return any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
