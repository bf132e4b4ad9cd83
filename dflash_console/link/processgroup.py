"""Reaching a child process with all that it started. Every child of the link leads a session of its own."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

__all__ = ["signal_group"]


def signal_group(pid: int, number: signal.Signals) -> None:
    """Sends a signal to the process group that the process leads; nothing happens when it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
