"""The last minute of every GPU's utilization, by the sample's clock."""

from __future__ import annotations

import math

from dflash_console.model import GpuReport, gpu_key

__all__ = ["MINUTE", "Rings"]

MINUTE = 60.0
MOST_CELLS = 240


class Rings:
    """One ring of cells a GPU, one cell an interval, the newest last.

    Cells follow the host's clock, so that samples which a slow network delivers in a heap stand where they
    belong. A clock that was set back goes on from the newest cell; one set forward, or a pause, leaves a gap.
    """

    def __init__(self, interval: float) -> None:
        self.interval = max(interval, MINUTE / MOST_CELLS)
        self.length = math.ceil(MINUTE / self.interval)
        self.at: float | None = None
        self.cells: dict[str, tuple[int | None, ...]] = {}

    def take(self, at: float, report: GpuReport) -> dict[str, tuple[int | None, ...]]:
        """The rings with the values of a sample that the host took `at` its clock; a new dict."""
        steps = self._advance(at)
        empty: tuple[int | None, ...] = (None,) * self.length
        gap: tuple[int | None, ...] = (None,) * (steps - 1)
        fresh = {}
        for gpu in report.gpus:
            key = gpu_key(gpu)
            ring = self.cells.get(key, empty)
            value = gpu.utilization if isinstance(gpu.utilization, int) else None
            fresh[key] = (*ring[steps:], *gap, value) if steps else (*ring[:-1], value)
        self.cells = fresh
        return fresh

    def _advance(self, at: float) -> int:
        """By how many cells the newest sample is further than the one before; 0 for one in the same cell."""
        passed = self.interval if self.at is None or at < self.at else at - self.at
        steps = min(round(passed / self.interval), self.length)
        if steps or self.at is None or at < self.at:
            self.at = at
        return steps
