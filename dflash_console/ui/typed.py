"""From the bytes of a terminal to events, and how many: text that was pasted as keys runs none of them."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from textual.events import Key, Paste
from textual.message import Message

from dflash_console.ui.sequences import Refused, Sequences

__all__ = ["Typed", "is_alone", "together"]

_ESCAPE = 0.1
"""Seconds after which a sequence that did not go on was the Esc key."""
_PAUSE = 0.03
_FEW = 8
"""More keys at once may be the start of a pasted text: they wait for a pause."""
_KEYS_AT_ONCE, _KEYS_A_SECOND = 32, 100.0
"""More than people type and keyboards repeat, also when a slow link brings it late and at once."""
_OTHERS_AT_ONCE, _OTHERS_A_SECOND = 512, 1000.0
_QUIET = 0.25
"""A pasted text ends when in so many seconds only few bytes came; nothing is held for longer."""
_LONGEST_SEQUENCE = 4096


_TOGETHER = "together"


def together(key: Key) -> int:
    """How many keys the terminal sent in one go up to this one: people type one, what is pasted as keys has more."""
    return int(vars(key).get(_TOGETHER, 1))


def _mark(events: Sequence[Message], count: int) -> None:
    for event in events:
        if isinstance(event, Key):
            vars(event)[_TOGETHER] = count


def is_alone(key: Key) -> bool:
    """Whether a key was pressed for itself, and is no part of a pasted text."""
    return together(key) == 1


class _Allowance:
    """So many at once, and so many a second."""

    def __init__(self, at_once: int, a_second: float) -> None:
        self._most, self._rate = float(at_once), a_second
        self._left, self._at = self._most, 0.0

    def take(self, count: int, now: float) -> bool:
        """Whether `count` more are within it."""
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        if count > self._left:
            return False
        self._left -= count
        return True


class Typed:
    """Gives the events that the console is to see. No bytes make it raise, and none make it deaf for long.

    Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._keys = _Allowance(_KEYS_AT_ONCE, _KEYS_A_SECOND)
        self._others = _Allowance(_OTHERS_AT_ONCE, _OTHERS_A_SECOND)
        self._last_at = 0.0
        self._burst = 0
        """Keys that came with no pause between them."""
        self._start_anew()

    def _start_anew(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._sequences = Sequences()
        self._held: list[Message] = []
        self._held_at = 0.0
        self._is_flooded = False
        self._flood_at, self._flood_count = 0.0, 0

    @property
    def wait(self) -> float:
        """Seconds without a byte after which `silence` is to be called."""
        return _PAUSE if self._held else _ESCAPE

    def feed(self, data: bytes, now: float) -> list[Message]:
        """The events of what came just now."""
        if now - self._last_at >= _PAUSE:
            self._burst = 0
        self._last_at = now
        if self._is_flooded and not self._is_over(len(data), now):
            return []
        events = list(self._sequences.feed(self._decoder.decode(data), now))
        keys = sum(isinstance(event, Key | Paste) for event in events)
        self._burst += keys
        _mark(events, self._burst)
        if not self._keys.take(keys, now) or self._sequences.unfinished > _LONGEST_SEQUENCE:
            self._held, self._is_flooded = [], True
            self._flood_at, self._flood_count = now, 0
            return [Refused("pasted text is not taken for keys")]
        events = [
            event for event in events if isinstance(event, Key | Paste | Refused) or self._others.take(1, now)
        ]
        if keys <= _FEW and not self._held:
            return events
        if not self._held:
            self._held_at = now
        self._held += events
        return self._released() if now - self._held_at >= _QUIET else []

    def _is_over(self, count: int, now: float) -> bool:
        """Whether a person types again, to whom `count` bytes of now belong."""
        if now - self._flood_at < _QUIET:
            self._flood_count += count
            return False
        if self._flood_count > _FEW:
            self._flood_at, self._flood_count = now, count
            return False
        self._start_anew()
        return True

    def _released(self) -> list[Message]:
        events, self._held = self._held, []
        _mark(events, sum(isinstance(event, Key) for event in events))
        return events

    def silence(self, now: float) -> list[Message]:
        """The events that waited for a silence, once `wait` seconds brought nothing."""
        silence = now - self._last_at
        if self._is_flooded:
            if silence >= _QUIET:
                self._start_anew()
            return []
        events = self._released()
        if silence >= _ESCAPE:
            events += self._sequences.silence(now)
        return events
