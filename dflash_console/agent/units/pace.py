"""When units are to be read: wishes come as they will, readings start at a bounded rate."""

from __future__ import annotations

__all__ = ["NEVER", "Burst", "Pace"]

CALM_PACE = 30.0
"""Seconds between two readings while signals come, or while there is no systemd."""
POLL_PACE = 2.0
"""Seconds between two readings while no signals come."""
BURST_SECONDS = 0.9
"""In this time there are at most two readings: the first at a change's first signal, the second at its end. A
storm of signals gets no more, and with ticks of a second its last word is still read within two."""
NEVER = float("inf")


class Burst:
    """At most two starts in any BURST_SECONDS."""

    def __init__(self) -> None:
        self._last = self._before_last = -NEVER

    def has_room(self, now: float) -> bool:
        """Whether there may be one more now."""
        return now >= self._before_last + BURST_SECONDS

    def start(self, now: float) -> None:
        """There is one now."""
        self._before_last, self._last = self._last, now


class Pace:
    """Gathers the reasons to ask systemctl and says when a reading may start."""

    def __init__(self) -> None:
        self.is_due = True
        """Whether something asked for a reading that has not started yet."""
        self.steady_at = NEVER
        """When a row changes by the clock alone."""
        self._must_scan = True
        self._burst = Burst()
        self._last = self._scanned = -NEVER

    def ask(self, *, scan: bool = False) -> None:
        """Read as soon as may be; with `scan`, look for installed units too."""
        self.is_due = True
        self._must_scan = self._must_scan or scan

    def tick(self, now: float, *, is_calm: bool) -> None:
        """Ask for what the clock alone asks for. It is calm while changes are told to us or can't come."""
        if now >= min(self._last + (CALM_PACE if is_calm else POLL_PACE), self.steady_at):
            self.ask()

    def may_start(self, now: float) -> bool:
        """Whether a reading is due and not too soon."""
        return self.is_due and self._burst.has_room(now)

    def start(self, now: float) -> bool:
        """A reading starts; whether it is to look for installed units too."""
        must_scan = self._must_scan or now >= self._scanned + CALM_PACE
        self._burst.start(now)
        self._last = now
        self._scanned = now if must_scan else self._scanned
        self.is_due = self._must_scan = False
        self.steady_at = NEVER
        return must_scan
