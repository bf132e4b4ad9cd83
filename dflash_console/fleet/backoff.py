"""When a host that can't be watched is tried again, and every other duration of a watcher."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Pace", "rest_before_try"]


@dataclass(frozen=True, slots=True)
class Pace:
    """The durations of a watcher, in seconds; tests and one-shot commands use others."""

    connect: float = 8.0
    """Until a host that does not let us in counts as unreachable; for each hop."""
    opening: float = 25.0
    """From there to the agent's hello: a login with slow rc files and a home on NFS takes several seconds. Longer
    than a lost connection takes to be noticed (20 s), which would else look like a login that hangs."""
    heartbeat: float = 5.0
    unanswered: float = 15.0
    """A heartbeat without an answer for this long ends the link."""
    stale_floor: float = 3.0
    stale_intervals: float = 3.0
    """No sample for this many intervals, and at least `stale_floor`, makes a host stale."""
    closing: float = 4.0
    """A link that is not closed by then is left to itself."""
    stable: float = 60.0
    """A link that stood this long clears the count of failures."""
    fast: tuple[float, float] = (1.0, 30.0)
    """Upper bound of the first rest and of every rest."""
    slow: tuple[float, float] = (60.0, 300.0)
    """The same after an error that a fast retry can't mend or makes worse."""

    def silence(self, interval: float) -> float:
        """Seconds without a sample after which a host is stale."""
        return max(self.stale_floor, self.stale_intervals * interval)


def rest_before_try(
    failures: int, pace: Pace, *, is_lasting: bool, draw: Callable[[float, float], float] = random.uniform
) -> float:
    """Seconds to rest after the `failures`-th failure in a row (from 1); `draw(low, high)` spreads the hosts.

    Full jitter for a host that is away, so that a fleet behind one switch does not come back in step. After a
    lasting error never less than `slow[0]`: sshd's PerSourcePenalties block an address that fails to log in, and a
    login that hangs can leave a process each time.
    """
    doublings = min(failures - 1, 16)
    if is_lasting:
        first, most = pace.slow
        return draw(first, min(most, first * 2 ** (doublings + 1)))
    first, most = pace.fast
    return draw(0.0, min(most, first * 2**doublings))
