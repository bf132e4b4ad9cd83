"""Pseudo terminals with a console in them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.waiting import until_sync

__all__ = ["CONSOLE", "ESC", "MOUSE_ON", "Terminal", "assert_clean", "opened"]

CONSOLE = (sys.executable, "-m", "tests.ui.console_process")
ROOT = Path(__file__).resolve().parents[2]
RESTORED = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?2004l", b"\x1b[?1004l", b"\x1b[?7h")
ESC = b"\x1b[27u"
"""Esc, as terminals tell it that speak kitty's protocol: no key that follows makes it Alt."""
MOUSE_ON, MOUSE_OFF = b"\x1b[?1000h", (b"\x1b[?1000l", b"\x1b[?1003l", b"\x1b[?1006l")


class Terminal:
    """A pseudo terminal with a program in it; the console of `console_process` if no other is named."""

    def __init__(
        self,
        *arguments: str,
        is_controlling: bool = True,
        ignores_hangup: bool = False,
        size: tuple[int, int] = (30, 100),
        environ: Mapping[str, str] | None = None,
        program: Sequence[str] = CONSOLE,
        stderr: IO[bytes] | int | None = None,
    ) -> None:
        """`environ` is added to this process's; `stderr` None is the terminal."""
        self.master, self.slave = os.openpty()
        termios.tcsetwinsize(self.slave, size)
        self.before: list[Any] = termios.tcgetattr(self.slave)
        self.output = b""

        def prepare() -> None:
            os.setsid()
            if is_controlling:
                told = os.dup(2)
                os.login_tty(os.dup(self.slave))
                os.dup2(told, 2)
                os.close(told)
            if ignores_hangup:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)

        kept = {
            name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS", "NO_COLOR")
        }
        self.process = subprocess.Popen(
            [*program, *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave if stderr is None else stderr,
            cwd=ROOT,
            env={**kept, "TERM": "xterm-256color", "COLORTERM": "truecolor", **(environ or {})},
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

    def shows(self, words: bytes, after: int = 0) -> None:
        """Waits until the console wrote these words, behind the first `after` bytes."""
        until_sync(lambda: words in self.read()[after:], 30, f"{words!r} on the terminal")

    def type(self, keys: bytes) -> None:
        """Presses keys, all at once."""
        while keys:
            if select.select([], [self.master], [], 0.05)[1]:
                keys = keys[os.write(self.master, keys[:1024]) :]
            self.read()

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


def opened(terminals: list[Terminal], *arguments: str, **options: Any) -> Terminal:
    """A terminal whose console has shown its first frame."""
    terminal = Terminal(*arguments, **options)
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
