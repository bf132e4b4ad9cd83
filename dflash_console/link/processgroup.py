"""Ending a child process with all that it started. Every child of the link leads a session of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

__all__ = ["kill_group", "signal_group"]


def signal_group(pid: int, number: signal.Signals) -> None:
    """Sends a signal to the process group that the process leads; nothing happens when it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


async def kill_group(process: asyncio.subprocess.Process) -> None:
    """Kills a child that still runs, with its group, and waits for its end. It must lead its own session."""
    if process.returncode is None:
        signal_group(process.pid, signal.SIGKILL)
        await process.wait()
