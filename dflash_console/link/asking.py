"""Asking a short program of this machine something: for a limited time, for limited output, and nothing stays
behind."""

from __future__ import annotations

import errno
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Literal, NamedTuple, TypeAlias

from dflash_console.link.processgroup import signal_group
from dflash_console.link.threads import start_thread

__all__ = ["MOST_OUTPUT", "Asking", "Outcome", "ask"]

MOST_OUTPUT = 1 << 20
"""Bytes of stdout and stderr together before the program counts as one that never ends."""
COMPLAINT_KEPT = 4 << 10
MOST_MEMORY = 1 << 30
"""Bytes for the program: `ssh -G` takes in /dev/zero, included in its config, as one line."""
LIMITED = 'ulimit -d "$0" 2>/dev/null; exec "$@"'
"""Holds before the program's first step: set from here, the limit would come after some gigabytes once in a while."""
PAUSE = 0.05
"""Seconds between two looks at a program that has closed its stdout."""
DYING = 1.0
"""Seconds in which the kernel ends a killed program, unless it waits for a dead mount."""

End: TypeAlias = Literal["exit", "time", "flood"]


class Outcome(NamedTuple):
    """How it went."""

    end: End
    """It ended by itself, or was ended: at the time limit, or because it printed without end."""
    status: int
    output: bytes
    """All of stdout, unless it was ended for printing too much."""
    complaint: bytes
    """The last 4 KiB of stderr."""


async def ask(command: Sequence[str], limit: float) -> Outcome:
    """Runs the program, in a thread: to start one takes some milliseconds. Raises OSError, ValueError.

    It and all that it started is ended after `limit` seconds, and at once when this is cancelled.
    """
    asking = Asking(command)
    try:
        return await start_thread(lambda: asking.run(limit))
    finally:
        asking.stop()


class Asking:
    """One run of a program."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False
        self._lock = threading.Lock()
        self._output = bytearray()
        self._complaint = bytearray()
        self._size = 0

    def run(self, limit: float) -> Outcome:
        """Runs it to its end; blocks. Raises OSError and ValueError when it can't be started."""
        deadline = time.monotonic() + limit
        end: End = "time"
        if shutil.which(self._command[0]) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._command[0])
        process = subprocess.Popen(
            ("/bin/sh", "-c", LIMITED, str(MOST_MEMORY >> 10), *self._command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        with self._lock:
            self._process = process
            is_over = self._is_over
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout as output, process.stderr as complaint:
            try:
                if not is_over:
                    end = self._listen(process, output, complaint, deadline)
            finally:
                self.stop()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(DYING)
        status = -1 if process.returncode is None else process.returncode
        return Outcome(end, status, bytes(self._output), bytes(self._complaint))

    def stop(self) -> None:
        """Ends it and all that it started; from any thread, and as often as one likes."""
        with self._lock:
            process, self._process, self._is_over = self._process, None, True
            if process is not None:
                signal_group(process.pid, signal.SIGKILL)

    def _listen(
        self, process: subprocess.Popen[bytes], output: IO[bytes], complaint: IO[bytes], deadline: float
    ) -> End:
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            selector.register(complaint, selectors.EVENT_READ)
            # What it started may hold its stderr open for longer than it lives itself.
            while output in selector.get_map() or process.poll() is None:
                rest = deadline - time.monotonic()
                if rest <= 0:
                    return "time"
                is_open = output in selector.get_map()
                for key, _ in selector.select(rest if is_open else min(rest, PAUSE)):
                    if not self._take(key.fd, key.fileobj is output):
                        selector.unregister(key.fileobj)
                if self._size > MOST_OUTPUT:
                    return "flood"
        return "exit"

    def _take(self, fd: int, is_output: bool) -> bool:
        piece = os.read(fd, 1 << 16)
        self._size += len(piece)
        if is_output:
            self._output += piece
        else:
            self._complaint += piece
            del self._complaint[:-COMPLAINT_KEPT]
        return bool(piece)
