"""The console in a real terminal: what it leaves behind, however it ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until_sync

PROGRAM = "tests.ui.console_process"
ROOT = Path(__file__).resolve().parents[2]
RESTORED = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?2004l", b"\x1b[?1004l", b"\x1b[?7h")
MOUSE_ON, MOUSE_OFF = b"\x1b[?1000h", (b"\x1b[?1000l", b"\x1b[?1003l", b"\x1b[?1006l")


class Terminal:
    """A pseudo terminal with a console in it."""

    def __init__(
        self,
        *arguments: str,
        is_controlling: bool = True,
        ignores_hangup: bool = False,
        size: tuple[int, int] = (30, 100),
        term: str = "xterm-256color",
    ) -> None:
        self.master, self.slave = os.openpty()
        termios.tcsetwinsize(self.slave, size)
        self.before: list[Any] = termios.tcgetattr(self.slave)
        self.output = b""

        def prepare() -> None:
            os.setsid()
            if is_controlling:
                os.login_tty(os.dup(self.slave))
            if ignores_hangup:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)

        self.process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM, *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            cwd=ROOT,
            env={
                **{name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")},
                "TERM": term,
                "COLORTERM": "truecolor",
            },
            preexec_fn=prepare,
        )

    def read(self) -> bytes:
        """All the console wrote so far."""
        while self.master >= 0 and select.select([self.master], [], [], 0)[0]:
            try:
                self.output += os.read(self.master, 65536)
            except OSError:
                break
        return self.output

    def shows(self, words: bytes) -> None:
        """Waits until the console wrote these words."""
        until_sync(lambda: words in self.read(), 30, f"{words!r} on the terminal")

    def type(self, keys: bytes) -> None:
        """Presses keys."""
        os.write(self.master, keys)

    def ended(self) -> int:
        """Waits for the end, and gives back the exit code."""

        def code() -> str | None:
            self.read()
            returned = self.process.poll()
            return None if returned is None else str(returned)

        return int(until_sync(code, 20, "the console's end"))

    def hang_up(self) -> None:
        """Takes the terminal away."""
        os.close(self.slave)
        os.close(self.master)
        self.master = self.slave = -1

    def close(self) -> None:
        """Ends whatever is left."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.master >= 0:
            self.hang_up()


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """Terminals that are closed after the test."""
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def opened(
    terminals: list[Terminal], *arguments: str, is_controlling: bool = True, ignores_hangup: bool = False
) -> Terminal:
    """A terminal whose console has shown its first frame."""
    terminal = Terminal(*arguments, is_controlling=is_controlling, ignores_hangup=ignores_hangup)
    terminals.append(terminal)
    terminal.shows(b"ct129")
    return terminal


def assert_clean(terminal: Terminal) -> None:
    """The terminal is as it was: main screen, cursor, line wrap, no mouse, no paste mode, old settings."""
    output = terminal.read()
    for sequence in RESTORED:
        assert sequence in output, sequence
    if MOUSE_ON in output:
        for sequence in MOUSE_OFF:
            assert output.rfind(sequence) > output.rfind(MOUSE_ON), sequence
    assert output.rfind(b"\x1b[?1049l") > output.rfind(b"\x1b[?1049h")
    assert termios.tcgetattr(terminal.slave) == terminal.before


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_ends_the_console_and_leaves_the_terminal_clean(
    terminals: list[Terminal], number: signal.Signals, code: int
) -> None:
    terminal = opened(terminals)
    terminal.process.send_signal(number)
    assert terminal.ended() == code
    assert_clean(terminal)


def test_q_ends_with_zero_and_leaves_the_terminal_clean(terminals: list[Terminal]) -> None:
    terminal = opened(terminals)
    terminal.type(b"q")
    assert terminal.ended() == 0
    assert_clean(terminal)


def test_a_crash_ends_with_one_a_clean_terminal_and_no_local_variable(terminals: list[Terminal]) -> None:
    terminal = opened(terminals, "crash")
    terminal.type(b"\x12")
    assert terminal.ended() == 1
    assert_clean(terminal)
    said = terminal.read().rpartition(b"\x1b[?1049l")[2]
    assert b"stopped by a fault of its own: RuntimeError: a fault with 21 characters" in said
    assert b"console_process.py" in said
    assert b"SECRET" not in terminal.read()
    assert len(said.splitlines()) < 20


def test_a_terminal_that_goes_away_ends_the_console(terminals: list[Terminal]) -> None:
    terminal = opened(terminals)
    terminal.hang_up()
    assert terminal.ended() == 129


def test_a_terminal_that_goes_away_without_a_signal_ends_it_too(terminals: list[Terminal]) -> None:
    terminal = opened(terminals, is_controlling=False, ignores_hangup=True)
    terminal.hang_up()
    assert terminal.ended() == 129


def test_bytes_that_are_not_utf8_do_not_end_the_console(terminals: list[Terminal]) -> None:
    terminal = opened(terminals)
    terminal.type(b"\xff\xfe\x80")

    def is_last_selected() -> bool:
        terminal.type(b"G")
        return "▸ kpro6".encode() in terminal.read()

    until_sync(
        is_last_selected, 20, "a key after the bytes, which may have been lost together with the first few"
    )
    terminal.type(b"q")
    assert terminal.ended() == 0


def test_without_mouse_the_terminals_own_selection_works(terminals: list[Terminal]) -> None:
    terminal = opened(terminals, "--no-mouse")
    terminal.type(b"q")
    assert terminal.ended() == 0
    assert MOUSE_ON not in terminal.read()


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
@pytest.mark.parametrize("size", [(0, 0), (1, 1), (3, 5), (24, 80)])
def test_a_terminal_of_any_size_is_drawn_once_and_not_for_ever(
    terminals: list[Terminal], size: tuple[int, int], term: str
) -> None:
    terminal = Terminal(size=size, term=term)
    terminals.append(terminal)
    terminal.shows(b"\x1b[?1049h")
    used: list[tuple[float, float]] = []

    def is_calm() -> bool:
        """Whether a second went by in which hardly anything was done."""
        terminal.read()
        used.append((time.monotonic(), cpu_seconds(terminal.process)))
        earlier = [cpu for at, cpu in used if at < used[-1][0] - 1]
        return bool(earlier) and used[-1][1] - earlier[-1] < 0.3

    until_sync(is_calm, 20, "a console at rest")
    terminal.type(b"q")
    assert terminal.ended() == 0
    assert_clean(terminal)
