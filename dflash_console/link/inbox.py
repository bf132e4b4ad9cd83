"""What waits between an agent that speaks and a consumer that is slow: never more than a screenful."""

from __future__ import annotations

from collections import deque
from typing import Any, TypeAlias

from msgspec import UNSET

from dflash_console.model import SECTIONS, Note, Sample

__all__ = ["Inbox", "News", "merge"]

News: TypeAlias = Sample | Note

MOST = 64
"""Messages; a healthy agent sends two or three at once."""


def merge(older: Sample, newer: Sample) -> Sample:
    """Both as one sample. A sample tells only what changed, so none may simply be dropped."""
    whole: dict[str, Any] = {name: getattr(newer, name) for name in SECTIONS}
    for name, section in whole.items():
        if section is UNSET:
            whole[name] = getattr(older, name)
    return Sample(at=newer.at, **whole)


class Inbox:
    """Messages in order. Samples in a row become one; past `MOST`, only the last of each kind stay."""

    def __init__(self) -> None:
        self._news: deque[News] = deque()

    def __len__(self) -> int:
        return len(self._news)

    def put(self, message: News) -> None:
        """Adds a message."""
        last = self._news[-1] if self._news else None
        if isinstance(message, Sample) and isinstance(last, Sample):
            self._news[-1] = merge(last, message)
            return
        self._news.append(message)
        if len(self._news) > MOST:
            self._news = deque(_condensed(self._news))

    def take(self) -> News:
        """The oldest one; IndexError when there is none."""
        return self._news.popleft()


def _condensed(news: deque[News]) -> list[News]:
    """One sample with the newest of every section, and the newest note of each section after it."""
    sample: Sample | None = None
    notes: dict[str, Note] = {}
    for message in news:
        if isinstance(message, Note):
            notes.pop(message.section, None)
            notes[message.section] = message
        else:
            sample = message if sample is None else merge(sample, message)
            for name in SECTIONS:
                if getattr(message, name) is not UNSET:
                    notes.pop(name, None)
    return [sample, *notes.values()] if sample is not None else list(notes.values())
