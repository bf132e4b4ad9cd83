"""Requests that take a while: each is a job in a child of its own, and its answer follows when the child ends."""

from __future__ import annotations

from .child import OneShot, Outcome
from .slot import describe

__all__ = ["PLACES", "QUICK_PLACES", "Job", "Jobs"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from .child import Work

PLACES = 8
"""Children at once; other jobs wait for their turn, in order."""
QUICK_PLACES = 4
"""Places besides, for jobs that import nothing: theirs are the first answers, whatever hangs in an import."""
ENDING_PACE = 0.005
"""Seconds between two looks at a child that has said everything and is about to be gone."""
NEVER = float("inf")


class Job:
    """What a request has done in a child, within `deadline` seconds from when it was asked for.

    The answer's `ok` is what `finish` makes of the outcome, in the agent itself, or else the last value that
    the child sent; what `finish` raises, or the outcome's error when there is no `finish`, is the answer's
    `error`. While a child that can't be killed holds `key` (empty: nothing), no other one with that key is
    started.
    """

    def __init__(
        self,
        work: Work,
        deadline: float,
        finish: Callable[[Outcome], object] | None = None,
        key: str = "",
        is_quick: bool = False,
    ) -> None:
        self.work = work
        self.deadline = deadline
        self.finish = finish
        self.key = key
        self.is_quick = is_quick

    @property
    def places(self) -> int:
        """How many of its kind are done at once."""
        return QUICK_PLACES if self.is_quick else PLACES


class _Place:
    """A job with its request's number, its child and the end of its time."""

    def __init__(self, number: int, job: Job, now: float) -> None:
        self.number = number
        self.job = job
        self.until = now + job.deadline
        self.shot = OneShot(job.deadline)


class Jobs:
    """The jobs under way. `answer(number, ok, error)` is called once for each; `error` is empty when all is
    well."""

    def __init__(self, answer: Callable[[int, object, str], None]) -> None:
        self._answer = answer
        self._running: list[_Place] = []
        self._leaving: list[_Place] = []
        """Answered, and the child still there: ending, or stuck in the kernel."""
        self._waiting: list[_Place] = []

    def add(self, number: int, job: Job, now: float) -> None:
        """Take a request's job; it starts now, or when a place is free."""
        self._waiting.append(_Place(number, job, now))
        self.tick(now)

    def fds(self) -> list[int]:
        """What to wait on for reading."""
        return [fd for place in self._running for fd in place.shot.fds()]

    def next_wake(self, now: float) -> float:
        """When `tick` is needed next, as a monotonic time; infinite while nothing is under way."""
        if any(place.shot.is_ending for place in self._running):
            return now + ENDING_PACE
        return min((place.until for place in self._running + self._waiting), default=NEVER)

    def ready(self, fd: int, now: float) -> None:
        """Take what a child has written to one of `fds`."""
        for place in self._running:
            if fd in place.shot.fds():
                self._end(place, place.shot.ready(now))
                break
        self.tick(now)

    def tick(self, now: float) -> None:
        """Mind the deadlines and start what waits."""
        for place in self._running[:]:
            self._end(place, place.shot.tick(now))
        self._leaving = [place for place in self._leaving if place.shot.is_busy]
        for place in self._waiting[:]:
            if now >= place.until:
                self._waiting.remove(place)
                words = f"none of {place.job.places} places was free within {place.job.deadline:g} s"
                self._tell(place, words)
            elif self._taken(place.job.is_quick) < place.job.places:
                self._waiting.remove(place)
                self._start(place, now)

    def close(self) -> None:
        """Kill all children."""
        for place in self._running + self._leaving:
            place.shot.close()

    def _taken(self, is_quick: bool) -> int:
        return sum(place.job.is_quick == is_quick for place in self._running + self._leaving)

    def _start(self, place: _Place, now: float) -> None:
        key = place.job.key
        holder = next((other for other in self._leaving if other.job.key == key), None) if key else None
        if holder is not None:
            self._tell(place, f"an earlier try still hangs in the kernel (process {holder.shot.pid})")
            return
        place.shot.deadline = max(0.0, place.until - now)
        try:
            place.shot.start(place.job.work, now)
        except OSError as error:
            self._tell(place, f"no process can be started: {error.strerror}")
            return
        self._running.append(place)

    def _end(self, place: _Place, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        self._running.remove(place)
        if place.shot.is_busy:
            self._leaving.append(place)
        if outcome.timed_out:
            outcome.error = f"no answer within {place.job.deadline:g} s"
        self._finish(place, outcome)

    def _tell(self, place: _Place, error: str) -> None:
        self._finish(place, Outcome([], b"", error, timed_out=True))

    def _finish(self, place: _Place, outcome: Outcome) -> None:
        ok: object = None
        error = ""
        if place.job.finish is not None:
            try:
                ok = place.job.finish(outcome)
            except Exception as fault:  # noqa: BLE001 - whatever fails in a request is its answer
                error = describe(fault)
        elif outcome.error:
            error = outcome.error
        else:
            ok = outcome.values[-1] if outcome.values else None
        self._answer(place.number, ok, error)
