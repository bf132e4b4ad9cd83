"""The real console with a meter in its event loop: `python -m tests.bench.metered CONFIG REPORT`.

On SIGUSR1 it writes what it measured since the last one to REPORT and starts anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import signal
import sys
import time
from pathlib import Path

from dflash_console.config import load
from dflash_console.ui import run_console


class Meter(selectors.DefaultSelector):
    """Times how long the loop is away from its selector: that late is whatever becomes ready meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.worst = 0.0
        self._left: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._left is not None:
            self.worst = max(self.worst, time.perf_counter() - self._left)
        ready = super().select(timeout)
        self._left = time.perf_counter()
        return ready


def main() -> int:
    config, report = Path(sys.argv[1]), Path(sys.argv[2])
    meter = Meter()

    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            return asyncio.SelectorEventLoop(meter)

    def tell(*_: object) -> None:
        beside = report.with_suffix(".new")
        beside.write_text(
            json.dumps({"cpu": time.process_time(), "worst": meter.worst, "at": time.monotonic()})
        )
        os.replace(beside, report)
        meter.worst = 0.0

    signal.signal(signal.SIGUSR1, tell)
    asyncio.set_event_loop_policy(Policy())
    return run_console(load(config, os.environ), theme=None, read_only=True, mouse=True)


if __name__ == "__main__":
    sys.exit(main())
