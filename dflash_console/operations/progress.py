"""How fast a target receives, and how long it still takes, from what it says of itself. Pure."""

from __future__ import annotations

from collections import deque

__all__ = ["Rate"]

WINDOW = 3.0
"""Seconds over which a rate is told."""


class Rate:
    """Bytes by time, of the last few seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, now: float, received: int) -> float:
        """Takes the bytes received so far; bytes a second, 0 as long as it can't be told."""
        self._seen.append((now, received))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW:
            self._seen.popleft()
        (began, before) = self._seen[0]
        return (received - before) / (now - began) if now > began and received > before else 0.0

    @staticmethod
    def left(rate: float, received: int, wanted: int) -> float | None:
        """Seconds until all is there; None as long as it can't be told."""
        return max(0, wanted - received) / rate if rate > 0 else None
