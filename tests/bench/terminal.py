"""A program on a pseudo-terminal of its own, as a person would run it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from types import TracebackType

__all__ = ["Terminal"]

ESCAPES = re.compile(rb"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>78NOM])")


class Terminal:
    """Runs a command; `text` is all that it painted, without escape sequences."""

    def __init__(self, command: Sequence[str], columns: int, rows: int) -> None:
        self.began = time.perf_counter()
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a second start finds its modules compiled
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env=environment
        )
        os.close(theirs)
        self._painted = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.read(0.2)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)

    def read(self, seconds: float) -> None:
        """Takes what is painted within so many seconds; returns at the first of it."""
        if select.select([self._ours], [], [], seconds)[0]:
            try:
                self._painted += os.read(self._ours, 1 << 20)
            except OSError:
                time.sleep(min(seconds, 0.05))

    def drain(self, seconds: float) -> None:
        """Takes all that is painted for so many seconds and forgets it."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self.read(left)
            self._painted = b""

    def wait_for(self, *words: str, seconds: float = 60) -> float:
        """Waits until every word was painted; gives back the seconds since the start. TimeoutError if not."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.read(0.05)
            text = self.text
            if all(word in text for word in words):
                return time.perf_counter() - self.began
        raise TimeoutError(
            f"{[word for word in words if word not in self.text]} not in {self.text[-3000:]!r}"
        )

    @property
    def text(self) -> str:
        """What was painted so far."""
        return ESCAPES.sub(b"", self._painted).decode(errors="replace")
