"""A section's place in the main loop: made when first needed, left alone for a while after it raised."""

from __future__ import annotations

import contextlib
import os

from .frames import encode

__all__ = ["FIRST_PAUSE", "LONGEST_PAUSE", "Slot", "describe"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from .section import Section

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds before a section that raised is called again: doubled from the one to the other."""
FAULTS_LIMIT = 100
"""Different faults of one section that are told; more would be the same one in ever new words."""
MORE_FAULTS = f"after {FAULTS_LIMIT} different faults of this section no other one is told"

WORDS_LIMIT = 1000
"""Characters of an exception's text that are told."""


class Slot:
    """One section with what the console has of it and what is still to be sent."""

    def __init__(self, name: str, make: Callable[[], Section]) -> None:
        self.name = name
        self._make = make
        self.section: Section | None = None
        self.is_configured = False
        self.faults: list[str] = []
        """What is still to be told to the console."""
        self.pending: str | None = None
        """The newest value as JSON, while the console has another."""
        self.note = ""
        """The section's note beside `pending`, or beside the value that was sent."""
        self._sent: str | None = None
        self._sent_note = ""
        self._seen: object = None
        self._told: set[str] = set()
        self._pause = 0.0
        self._until = 0.0

    @property
    def last_sent(self) -> str | None:
        """The value that the console has, as JSON; None before the first."""
        return self._sent

    def is_resting(self, now: float) -> bool:
        """Whether the section is left alone because it raised."""
        return now < self._until

    @contextlib.contextmanager
    def guard(self, now: float) -> Iterator[None]:
        """Whatever raises inside becomes a fault to tell, once for each text, and a pause."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - one section must not end the others; the console is told
            text = describe(error)
            if text not in self._told and len(self._told) <= FAULTS_LIMIT:
                is_last = len(self._told) == FAULTS_LIMIT
                self._told.add(text)
                self.faults.append(f"{text}; {MORE_FAULTS}" if is_last else text)
            was_well = now > self._until + self._pause
            self._pause = FIRST_PAUSE if was_well else min(2 * self._pause, LONGEST_PAUSE)
            self._until = now + self._pause

    def tick(self, spec: dict[str, Any], now: float) -> None:
        """Call the section's tick; make and configure it before if need be."""
        if self.section is None:
            self.section = self._make()
        if not self.is_configured:
            self.section.configure(spec)
            self.is_configured = True
        self.section.tick(now)

    def collect(self, now: float) -> bool:
        """Whether the section has a new value; it is `pending` if the console has another, or another note."""
        if self.section is None or self.section.value is None:
            # A note waits for the value that it travels with.
            return False
        is_new = self.section.value is not self._seen
        if is_new or self.section.note != self.note:
            self._seen, self.note = self.section.value, self.section.note
            with self.guard(now):
                text = encode(self._seen)
                is_known = text == self._sent and self.note == self._sent_note
                self.pending = None if is_known else text
        return is_new

    def take(self) -> str:
        """The value to send now, as a member of a JSON object."""
        if self.pending is not None:
            self._sent, self.pending = self.pending, None
        self._sent_note = self.note
        return f'"{self.name}":{self._sent}'


def describe(error: BaseException) -> str:
    """An exception in one line, with the place where it arose."""
    words = str(error).strip()[:WORDS_LIMIT] or "no words"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return f"{type(error).__name__}: {words}"
    code = trace.tb_frame.f_code
    place = f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} {code.co_name}"
    return f"{type(error).__name__}: {words} ({place})"
