"""This machine, reached without SSH: the same bootstrap line in a subprocess."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from typing import cast

from dflash_console.errors import Unreachable
from dflash_console.link.bundle import BOOT_COMMAND
from dflash_console.link.process import Process
from dflash_console.link.processgroup import signal_group

__all__ = ["LocalConnection"]


class LocalConnection:
    """Starts programs on this machine. Each leads a session of its own, so that all of it can be ended."""

    def __init__(self, line: str | None = None) -> None:
        self._line = line or BOOT_COMMAND
        self._children: set[_Child] = set()

    async def start(self) -> Process:
        """Runs the bootstrap line. Raises Unreachable when this machine can't start a process."""
        loop = asyncio.get_running_loop()
        try:
            _, child = await loop.subprocess_exec(
                _Child,
                "/bin/sh",
                "-c",
                self._line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            raise Unreachable(f"this machine can't start /bin/sh: {error.strerror or error}") from None
        self._children = {old for old in self._children if not old.process.has_ended} | {child}
        return child.process

    async def close(self) -> None:
        """Ends all programs that still run."""
        for child in self._children:
            await child.process.close()


class _Child(asyncio.SubprocessProtocol):
    """Carries the bytes of a child process; also its Pipe."""

    process: Process
    _is_closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        self._stdout = cast(asyncio.ReadTransport, self._transport.get_pipe_transport(1))
        self.process = Process(self)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self.process.got_output(data)
        else:
            self.process.got_stderr(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self.process.got_eof()
        elif fd == 0:
            self.process.got_writable(True)

    def process_exited(self) -> None:
        code = self._transport.get_returncode()
        if code is not None and code < 0:
            self.process.got_exit(None, signal.Signals(-code).name.removeprefix("SIG"))
        else:
            self.process.got_exit(code)
        # Whatever the program left behind in its group.
        self.kill()
        if self._is_closing:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.process.lost()

    def pause_writing(self) -> None:
        self.process.got_writable(False)

    def resume_writing(self) -> None:
        self.process.got_writable(True)

    # ---- as a Pipe

    def write(self, data: bytes) -> None:
        self._stdin.write(data)

    def write_eof(self) -> None:
        self._stdin.close()

    def pause_reading(self) -> None:
        self._stdout.pause_reading()

    def resume_reading(self) -> None:
        self._stdout.resume_reading()

    def kill(self) -> None:
        signal_group(self._transport.get_pid(), signal.SIGKILL)

    def close(self) -> None:
        if self._transport.get_returncode() is not None:
            self._transport.close()
            return
        # The transport's own close would look whether the child has ended, and take its end away from the thread of
        # asyncio that waits for it, which then complains on stderr.
        self._is_closing = True
        self.kill()
        for fd in (0, 1, 2):
            if (pipe := self._transport.get_pipe_transport(fd)) is not None:
                pipe.close()
