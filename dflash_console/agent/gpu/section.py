"""The GPU section: asks a child for a report at each tick, and says so when the child, or the driver behind
it, hangs."""

from __future__ import annotations

import mmap
import signal

from ..child import Child
from ..section import Section, missing, shortened
from .kernel import Kernel, waiting_process
from .reader import serve
from .rows import MOST_ROWS, Rows, identified, left_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..child import Channel

    Report = dict[str, Any]

__all__ = ["GpuSection"]

HUNG_AFTER = 60.0
"""Seconds without an answer until the driver is called hung: one question can take a 45 s time-out of the
GPU's firmware (open-gpu-kernel-modules issue 1111)."""

LONGEST_STEP = 5.0
"""Seconds between two ticks that count as waiting for the driver: more is a machine that was stopped as a
whole."""

PATIENCE = 5.0
"""Seconds without a first answer until the console is told why: starting a GPU can take seconds."""

FIRST_RETRY = 1.0
LONGEST_RETRY = 60.0
"""Seconds until a reader that died is started again."""

HEALTHY_LIFE = 60.0


class GpuSection(Section):
    """Reads a model.GpuReport a tick through one persistent child, so that a driver that hangs takes only
    that child along. While an answer is overdue the last report stands, with its `read_at`. A child that
    hangs is never replaced: it can't be killed, and a second one would hang beside it.

    `hung_after` in seconds; `root` is where /sys, /proc/driver and /dev are looked for.
    """

    name = "gpu"

    def __init__(self, hung_after: float = HUNG_AFTER, root: str = "/") -> None:
        self._hung_after = hung_after
        self._root = root
        self._child = Child()
        self._progress = mmap.mmap(-1, 1)
        self._rows = Rows()
        self._report: Report | None = None
        self._note = ""
        self._is_running = False
        self._is_ending = False
        """Whether the child closed its pipes and has still to be waited for."""
        self._is_owed = False
        """Whether a report was asked for and has not come."""
        self._waited = 0.0
        self._ticked_at = 0.0
        self._longest_step = LONGEST_STEP
        self._anew = False
        self._started_at = 0.0
        self._retry = FIRST_RETRY
        self._retry_at = 0.0

    @property
    def pid(self) -> int:
        """The child's pid; 0 while there is none."""
        return self._child.pid

    @property
    def note(self) -> str:
        """Which GPUs and processes are left out because there are too many; mostly empty."""
        return self._note

    def configure(self, spec: dict[str, Any]) -> None:
        """Takes the interval; all GPUs are read, whatever else the spec names."""
        self._longest_step = max(LONGEST_STEP, 2 * float(spec["interval"]))

    def fds(self) -> list[int]:
        """The child's pipes."""
        return self._child.fds()

    def tick(self, now: float) -> None:
        """Asks for the next report unless one is still owed."""
        if self._is_ending and not self._child.is_alive:
            self._end(now, self._last_words())
        if not self._is_running and now >= self._retry_at and not self._child.is_alive:
            self._start(now)
        step, self._ticked_at = min(now - self._ticked_at, self._longest_step), now
        if self._is_owed:
            self._waited += step
            self._mind()
        elif self._is_running:
            self._ask()

    def ready(self, fd: int, now: float) -> None:
        """Takes a report, or learns that the child has ended."""
        if not self._is_running:
            return
        try:
            reports = self._child.receive()
        except ValueError as error:
            self._child.kill()
            self._end(now, f"broken output: {error}")
            return
        if reports is None:
            # A process that is gone for its pipes may take a moment to end, or hang in doing so.
            self._is_running, self._is_ending = False, True
            self._is_owed = True
            if not self._child.is_alive:
                self._end(now, self._last_words())
        elif reports:
            self._is_owed = False
            self._take(reports[-1])

    def refresh(self) -> None:
        """The next report reads also what is read rarely, and tries again what failed."""
        self._anew = True

    def close(self) -> None:
        """Kills the child."""
        self._is_running = False
        self._child.kill()

    def _start(self, now: float) -> None:
        progress, root = self._progress, self._root

        def work(channel: Channel) -> None:
            serve(channel, progress, root)

        progress[0] = 0
        try:
            self._child.start(work)
        except OSError as error:
            self._end(now, f"can't be started: {error.strerror}")
            return
        self._started_at = now
        self._is_running = True

    def _ask(self) -> None:
        if self._child.send(self._anew):
            self._is_owed, self._waited = True, 0.0
            self._anew = False

    def _take(self, report: Report) -> None:
        self._report = report
        passed_through, notes = report.pop("passed_through_buses"), report.pop("notes")
        rows = self._rows.keep(report["gpus"], passed_through, report["trouble"])
        self._note = "; ".join(notes or left_out(len(rows) - MOST_ROWS))
        self.value = {**report, "gpus": rows[:MOST_ROWS]}

    def _mind(self) -> None:
        """What stands on the screen while an answer is overdue."""
        waited = self._waited
        if waited >= self._hung_after:
            stuck = self._progress[0] - 1 if self._progress[0] else None
            self.value = self._silent_report(missing("hung", self._where_it_hangs(waited, stuck)), stuck)
        elif waited >= PATIENCE and self._report is None:
            why = missing("stale", f"no answer for {waited:.0f} s yet: the driver may be starting its GPUs")
            self.value = self._silent_report(why, None)

    def _where_it_hangs(self, waited: float, stuck: int | None) -> str:
        at = waiting_process(self._child.pid)
        place = "" if stuck is None else f" on GPU {stuck}"
        wchan = f", in {at.wchan}" if at.wchan else ""
        return f"no answer for {waited:.0f} s{place} (pid {at.pid}, state {at.state}{wchan})"

    def _silent_report(self, why: dict[str, str], stuck: int | None) -> Report:
        if self._report is not None:
            return {**self._report, "gpus": self._rows.all_without_values(stuck, why), "trouble": why}
        view = Kernel(self._root).view()
        self._note = "; ".join(left_out(len(view.gpus) - MOST_ROWS))
        return {
            "gpus": identified([], view.gpus[:MOST_ROWS], why),
            "source": "none",
            "driver": view.driver or why,
            "kernel_count": len(view.gpus),
            "passed_through": len(view.passed_through),
            "trouble": why,
        }

    def _last_words(self) -> str:
        status = self._child.status
        if status is not None and status < 0:
            return f"was killed by {_signal_name(-status)}"
        words = shortened(self._child.errors.strip(), 300)
        return words or f"ended with status {status}"

    def _end(self, now: float, words: str) -> None:
        """The child is no more. One that ended by itself without a fault is replaced at once."""
        self._is_running = self._is_ending = self._is_owed = False
        self._waited = 0.0
        if self._child.status == 0 and not self._child.errors:
            self._retry_at = now
            return
        if now - self._started_at >= HEALTHY_LIFE:
            self._retry = FIRST_RETRY
        self._retry_at = now + self._retry
        trouble = missing("error", f"the GPU reader {words}; started again in {self._retry:.0f} s")
        self._retry = min(self._retry * 2, LONGEST_RETRY)
        if isinstance(self.value, dict):
            self.value = {**self.value, "trouble": trouble}
        else:
            self.value = self._silent_report(trouble, None)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
