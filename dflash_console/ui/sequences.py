"""The grammar of what a terminal sends: keys, the mouse, pastes and answers, told apart in any text."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator

from textual._xterm_parser import XTermParser
from textual.events import AppBlur, AppFocus, Key, MouseEvent, Paste
from textual.message import Message
from textual.messages import TerminalSupportsSynchronizedOutput

from dflash_console.ui.drawing.line import safe

__all__ = ["Refused", "Sequences"]

_WANTED = (Key, MouseEvent, AppFocus, AppBlur, TerminalSupportsSynchronizedOutput)
"""A size is not among them: anybody can write one into the input, and the terminal itself can be asked."""

_PASTE, _PASTE_END = "\x1b[200~", "\x1b[201~"
_SEQUENCE = re.compile(
    # Function keys of Linux's own console; the mouse as X10 tells it, in three characters from the space on.
    r"\x1b\[\[[A-E]|\x1b\[M[ -\U0010ffff]{3}"
    # CSI (ECMA-48, 5.4): parameters and intermediates, in any order, a final byte. SS3. Alt and a character.
    r"|\x1b\[(?![\[M])[ -?]*[@-~]|\x1bO[ -~]|\x1b[^\x1b\[OPX\]^_]"
)
_BEGUN = re.compile(r"\x1b(?:\[(?:\[|M[ -\U0010ffff]{0,2}|[ -?]*)|O)?")
_ANSWER = re.compile(r"\x1b[P\]X^_]")
"""What starts DCS, OSC, SOS, PM and APC. The letters of a terminal's answers are no keys."""
_ANSWER_END = re.compile(r"[\x07\x18\x1a]|\x1b\\|(?=\x1b[^\\])")

_WINDOW = 1.0
_LEAST_IN_WINDOW = 64
_LONGEST_PASTE = 1 << 16
_LONGEST_LINE = 1000
_LARGEST_PLACE = 10_000
"""Columns or rows; a mouse further out is none."""


class Refused(Message):
    """Text that the terminal sent was thrown away."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


class Sequences:
    """Takes text in pieces and gives its events.

    A sequence that means nothing gives none; Textual's parser would give its characters as keys. Times are
    monotonic seconds.
    """

    def __init__(self) -> None:
        self._parser = XTermParser()
        self._rest = ""
        self._is_open = self._is_paste = False
        self._pasted = ""
        self._window_at = 0.0
        self._window_count = 0

    @property
    def unfinished(self) -> int:
        """Characters of the sequence that has begun."""
        return len(self._rest)

    def feed(self, text: str, now: float) -> Iterator[Message]:
        """The events of the next piece."""
        yield from self._lost_end(now, len(text))
        text, self._rest = self._rest + text, ""
        at = 0
        while at < len(text):
            if self._is_open:
                at = yield from self._to_end(text, at)
            elif text[at] != "\x1b":
                yield from self._meaning(text[at])
                at += 1
            elif whole := _SEQUENCE.match(text, at):
                at = whole.end()
                if whole[0] == _PASTE:
                    self._open(now, is_paste=True)
                elif whole[0] != _PASTE_END:
                    yield from self._meaning(whole[0])
            elif answer := _ANSWER.match(text, at):
                at = answer.end()
                self._open(now, is_paste=False)
            elif (begun := _BEGUN.match(text, at)) and begun.end() == len(text):
                self._rest = begun[0]
                return
            else:
                # Something that no sequence goes on with: what there was of it is dropped, Esc is a key.
                assert begun is not None
                at = begun.end()
                if begun[0] == "\x1b":
                    yield from self._meaning("\x1b")

    def silence(self, now: float) -> Iterator[Message]:
        """The events of what can't go on any more, as nothing came for a while."""
        yield from self._lost_end(now, 0)
        if not self._is_open and self._rest:
            rest, self._rest = self._rest, ""
            yield from self._meaning(rest)

    def _meaning(self, sequence: str) -> list[Message]:
        """The events of one sequence or character."""
        is_key = sequence[0] == "\x1b" and len(sequence) <= 2
        try:
            early = [event for character in sequence[:-1] for event in self._parser.feed(character)]
            events = [*self._parser.feed(sequence[-1])]
            if is_key and not events:
                events = [*self._parser.feed("")]
            is_whole = bool(events) and not early
        except Exception:  # noqa: BLE001  the parser believes any number: chr() and int() raise what they will
            is_whole = False
        if is_key or not is_whole or not isinstance(events[0], _WANTED):
            self._parser = XTermParser()
        return [event for event in events if _is_sound(event)] if is_whole else []

    # ---- what has an end of its own: pastes and answers

    def _open(self, now: float, *, is_paste: bool) -> None:
        self._is_open, self._is_paste, self._pasted = True, is_paste, ""
        self._window_at, self._window_count = now, 0

    def _to_end(self, text: str, at: int) -> Generator[Message, None, int]:
        """Goes to the end of a paste or an answer, or of the text; returns the place in the text."""
        if self._is_paste:
            start = text.find(_PASTE_END, at)
            found = (start, start + len(_PASTE_END)) if start >= 0 else None
        else:
            match = _ANSWER_END.search(text, at)
            found = match.span() if match else None
        if found is None:
            last = text.rfind("\x1b", at)
            if last >= 0 and _PASTE_END.startswith(text[last:]):
                self._rest = text[last:]
            self._pasted += text[at : len(text) - len(self._rest)][: _LONGEST_PASTE - len(self._pasted)]
            return len(text)
        self._is_open = False
        if self._is_paste:
            line = _first_line((self._pasted + text[at : found[0]])[:_LONGEST_PASTE])
            if line:
                yield Paste(line)
        return found[1]

    def _lost_end(self, now: float, count: int) -> Iterator[Message]:
        """Gives up what brings no more: its end was lost, and a person who types is not part of it."""
        if not self._is_open:
            return
        if now - self._window_at >= _WINDOW:
            if self._window_count < _LEAST_IN_WINDOW:
                self._is_open, self._rest = False, ""
                if self._is_paste:
                    yield Refused("a paste without its end was thrown away")
                return
            self._window_at, self._window_count = now, 0
        self._window_count += count


def _first_line(text: str) -> str:
    """What of a paste goes into a field of one line."""
    return safe(next(iter(text.strip().splitlines()), "")[:_LONGEST_LINE])


def _is_sound(event: Message) -> bool:
    """Whether an event may go on: no half characters, no mouse where no terminal is."""
    if isinstance(event, Key):
        text = event.key + (event.character or "")
        return "\ufffd" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
    if isinstance(event, MouseEvent):
        return max(event.x, event.y) < _LARGEST_PLACE
    return isinstance(event, _WANTED)
