"""When units are to be read: wishes come as they will, readings start at a bounded rate."""

from __future__ import annotations

__all__ = ["Pace"]

CALM_PACE = 30.0
"""Seconds between two readings while signals come, or while there is no systemd."""
POLL_PACE = 2.0
"""Seconds between two readings while no signals come."""
BURST_SECONDS = 0.9
"""In this time there are at most two readings: the first at a change's first signal, the second at its end. A
storm of signals gets no more, and with ticks of a second its last word is still read within two."""
LOOP_SECONDS = 1.0
"""Between two readings that only units in a restart loop asked for: a night of it is to cost little."""
NEVER = float("inf")


class Pace:
    """Gathers the reasons to read and says when a reading may start."""

    def __init__(self) -> None:
        self.is_due = True
        """Whether something asked for a reading that has not started yet."""
        self.is_due_lazily = False
        """Whether a unit in a restart loop did."""
        self.steady_at = NEVER
        """When a row changes by the clock alone."""
        self._must_scan = True
        self._last = self._before_last = self._scanned = -NEVER

    def ask(self, *, scan: bool = False) -> None:
        """Read as soon as may be; with `scan`, look for installed units too."""
        self.is_due = True
        self._must_scan = self._must_scan or scan

    def ask_lazily(self) -> None:
        """Read when it costs little."""
        self.is_due_lazily = True

    def tick(self, now: float, *, is_calm: bool) -> None:
        """Ask for what the clock alone asks for. It is calm while changes are told to us or can't come."""
        if now >= min(self._last + (CALM_PACE if is_calm else POLL_PACE), self.steady_at):
            self.ask()

    def may_start(self, now: float) -> bool:
        """Whether a reading is due and not too soon."""
        is_in_time = self.is_due and now >= self._before_last + BURST_SECONDS
        return is_in_time or (self.is_due_lazily and now >= self._last + LOOP_SECONDS)

    def start(self, now: float) -> bool:
        """A reading starts; whether it is to look for installed units too."""
        must_scan = self._must_scan or now >= self._scanned + CALM_PACE
        self._before_last, self._last = self._last, now
        self._scanned = now if must_scan else self._scanned
        self.is_due = self.is_due_lazily = self._must_scan = False
        self.steady_at = NEVER
        return must_scan
