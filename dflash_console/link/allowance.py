"""How much a host may send: a flood of one host must not take the time that is all hosts'."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Allowance"]


class Allowance:
    """So much at once and so much a second from then on (a token bucket), in whatever unit."""

    def __init__(self, at_once: float, per_second: float, now: Callable[[], float] = time.monotonic) -> None:
        self.at_once = at_once
        self.per_second = per_second
        self._now = now
        self._left = at_once
        self._granted = 0.0
        self._at = now()

    def covers(self, amount: float) -> bool:
        """Takes `amount` off, and says whether that was still there."""
        paid = min(self._granted, amount)
        self._granted -= paid
        amount -= paid
        now = self._now()
        self._left = min(self.at_once, self._left + (now - self._at) * self.per_second) - amount
        self._at = now
        return self._left >= 0

    def grant(self, amount: float) -> None:
        """Lets so much more come, once, on top: it was asked for."""
        self._granted += amount

    def revoke(self) -> None:
        """Takes back what is left of all grants: what was asked for has come."""
        self._granted = 0.0
