"""Which of the watched units have changed, and which of them signal so often that it is cheaper not to listen.

A unit in a restart loop sends up to a hundred signals a second, each of which would wake systemd's bus and us. Such
a one is muted: its signals are not asked for, and its state is looked at each second instead, until it is calm.
"""

from __future__ import annotations

from .pace import NEVER, Burst

__all__ = ["Changes"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

NOISY = 30
"""Signals of one unit within WINDOW_SECONDS that have it muted. One restart sends 14."""
WINDOW_SECONDS = 10.0
CALM_SECONDS = 10.0
"""For so long the state of a muted unit stays the same before it is listened to again."""
# A tenth less than meant, so that a tick that comes a little early still counts.
LOOK_SECONDS = 0.9
"""Between two looks at muted units."""


class Changes:
    """The units to look at, by their paths on the bus."""

    def __init__(self) -> None:
        self.muted: frozenset[str] = frozenset()
        """Those whose signals are not to be listened to."""
        self._due: set[str] = set()
        self._counts: dict[str, int] = {}
        self._counting_since = -NEVER
        self._changed: dict[str, float] = {}
        """When a muted unit was last seen to be other than before."""
        self._look_at = -NEVER
        self._burst = Burst()

    def hear(self, path: str, now: float) -> None:
        """A signal of a unit has come."""
        if path in self._changed:
            return  # on its way since before it was muted, or over a socket that knows no rules
        self.add(path)
        if now >= self._counting_since + WINDOW_SECONDS:
            self._counting_since = now
            self._counts.clear()
        self._counts[path] = self._counts.get(path, 0) + 1
        if self._counts[path] > NOISY:
            self._changed[path] = now
            self.muted = frozenset(self._changed)

    def add(self, path: str) -> None:
        """A unit is to be looked at."""
        self._due.add(path)

    def tick(self, now: float) -> None:
        """Have the muted ones looked at when it is time; those that are calm are muted no more."""
        if not self._changed or now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        # Also those that are listened to from now on: behind their rule, so that nothing falls between.
        self._due.update(self._changed)
        for path, changed in list(self._changed.items()):
            if now >= changed + CALM_SECONDS:
                del self._changed[path]
                self._counts.pop(path, None)
        self.muted = frozenset(self._changed)

    def take(self, now: float) -> set[str]:
        """What is to be looked at now; each is due again only with its next signal."""
        if not self._due or not self._burst.has_room(now):
            return set()
        self._burst.start(now)
        due, self._due = self._due, set()
        return due

    def see(self, path: str, *, is_other: bool, now: float) -> None:
        """A unit was looked at."""
        if is_other and path in self._changed:
            self._changed[path] = now

    def keep(self, paths: Iterable[str]) -> None:
        """Forget all units but these."""
        kept = set(paths)
        self._due &= kept
        self._changed = {path: changed for path, changed in self._changed.items() if path in kept}
        self.muted = frozenset(self._changed)
