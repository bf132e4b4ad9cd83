"""A question about every process of the machine, asked in a child beside other work.

What /proc tells of a process that hangs inside a driver may be waited for without end: then that one is named, and the
others are still looked at.
"""

from __future__ import annotations

import os
import select
import time

from ..child import OneShot

__all__ = ["ProcessSearch"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..child import Channel

PATIENCE = 3.0
"""Seconds without a word, after which the process that is looked at counts as one that hangs."""
LONGEST = 15.0
"""Seconds for all."""
TURN = 0.05
SHOWN = 5
"""Processes that are named."""


class ProcessSearch:
    """`question(pid)` in a child, for all processes but this one and the child; what is true (ready for JSON) is kept.

    A question that raises has no answer. Begin early, `read` late.
    """

    def __init__(self, question: Callable[[int], Any]) -> None:
        self.hung: list[int] = []
        """Those that did not let themselves be looked at."""
        self._question = question
        self._answers: list[tuple[int, Any]] = []
        self._until = time.monotonic() + LONGEST
        own = os.getpid()
        self._pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own)
        self._shot = OneShot(LONGEST)
        self._start()

    def read(self, mind: Callable[[], object] = lambda: None) -> list[tuple[int, Any]]:
        """Pid and answer of each, once all were asked. `mind` is called while there is nothing to do."""
        while self._pids:
            self._wait(mind)
            if time.monotonic() > self._until:
                break
            if self._pids:
                self._shot = OneShot(LONGEST)
                self._start()
        return self._answers

    @property
    def unasked(self) -> int:
        """How many were not come to, once it was read: those that hang took all the time there was."""
        return len(self._pids)

    @property
    def unseen(self) -> str:
        """Which processes nothing is known of, once it was read: `process 812 can't be looked at`; empty for none."""
        pids = [str(pid) for pid in self.hung[:SHOWN]]
        more = f" and {len(self.hung) - SHOWN} more" if len(self.hung) > SHOWN else ""
        told = (
            [f"process{'es' * (len(self.hung) > 1)} {', '.join(pids)}{more} can't be looked at"]
            if pids
            else []
        )
        if self.unasked:
            told.append(f"{self.unasked} were not come to within {LONGEST:g} s")
        return ", ".join(told)

    def close(self) -> None:
        """End the child."""
        self._shot.close()

    def _start(self) -> None:
        pids, question = self._pids, self._question
        self._shot.start(lambda channel: _ask(channel, pids, question), time.monotonic())

    def _wait(self, mind: Callable[[], object]) -> None:
        """Until the child has ended, or hangs."""
        heard, known, outcome = time.monotonic(), 0, None
        while outcome is None and time.monotonic() < min(heard + PATIENCE, self._until):
            fds = self._shot.fds()
            ready = select.select(fds, [], [], TURN)[0] if fds else []
            now = time.monotonic()
            outcome = self._shot.ready(now) if ready else self._shot.tick(now)
            if len(self._shot.values) > known:
                known, heard = len(self._shot.values), now
            mind()
        self._shot.close()
        self._answers += [(pid, answer) for pid, answer in self._shot.values if answer]
        del self._pids[:known]
        if self._pids:
            self.hung.append(self._pids.pop(0))


def _ask(channel: Channel, pids: list[int], question: Callable[[int], Any]) -> None:
    for pid in pids:
        answer = None
        try:
            if pid != os.getpid():
                answer = question(pid)
        except (OSError, ValueError):
            pass
        channel.send([pid, answer])
