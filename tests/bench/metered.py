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
        self._left: tuple[float, float] | None = None
        self.restart()

    def restart(self) -> None:
        """Forgets what was measured."""
        self.worst = self.worst_cpu = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._left is not None:
            self.worst = max(self.worst, time.perf_counter() - self._left[0])
            self.worst_cpu = max(self.worst_cpu, time.thread_time() - self._left[1])
        ready = super().select(timeout)
        self._left = time.perf_counter(), time.thread_time()
        return ready


def main() -> int:
    config, report = Path(sys.argv[1]), Path(sys.argv[2])
    meter = Meter()

    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            return asyncio.SelectorEventLoop(meter)

    def tell(*_: object) -> None:
        beside = report.with_suffix(".new")
        figures = {"at": time.monotonic(), "cpu": time.process_time()}
        figures |= {"worst": meter.worst, "worst_cpu": meter.worst_cpu}
        beside.write_text(json.dumps(figures))
        os.replace(beside, report)
        meter.restart()

    signal.signal(signal.SIGUSR1, tell)
    asyncio.set_event_loop_policy(Policy())
    return run_console(load(config, os.environ), theme=None, read_only=True, mouse=True)


if __name__ == "__main__":
    sys.exit(main())
