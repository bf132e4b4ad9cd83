"""Input of every kind through a real terminal: bursts of keys, pastes, and bytes that no terminal sends."""

from __future__ import annotations

import random
import re
import time

import pytest

from tests.ui.garbage import garbage
from tests.ui.terminals import ESC, Terminal, opened
from tests.waiting import until_sync


class Person:
    """Presses keys once a moment until something comes of it, as people do."""

    def __init__(self, terminal: Terminal, keys: bytes) -> None:
        self.terminal, self.keys = terminal, keys
        self.pressed_at = 0.0

    def press(self) -> None:
        """Presses them, unless that was done just now."""
        if time.monotonic() - self.pressed_at > 0.7:
            self.pressed_at = time.monotonic()
            self.terminal.type(self.keys)


def answers(terminal: Terminal, keys: bytes = ESC * 3 + b"?") -> None:
    """The console hears a person who comes to it and presses these keys for help."""
    person = Person(terminal, keys)
    seen = len(terminal.read())

    def has_help() -> bool:
        person.press()
        return b"ON THIS SCREEN" in terminal.read()[seen:]

    until_sync(has_help, 60, "the help after `?`")
    assert terminal.process.poll() is None


def quits(terminal: Terminal) -> str:
    """Ends the console by `q` and gives back what it says of where it was."""
    person = Person(terminal, ESC * 3 + b"q")

    def has_ended() -> bool:
        if terminal.process.poll() is None:
            person.press()
        terminal.read()
        return terminal.process.poll() is not None

    until_sync(has_ended, 60, "the end after `q`")
    assert terminal.ended() == 0
    (left,) = re.findall(r"LEFT .*", terminal.read().decode())
    return str(left).strip()


@pytest.mark.parametrize(
    ("burst", "left"),
    [
        (b"/abc\r", "filter='abc' selected=ct129 screens=FleetScreen"),
        (b"/qqq?:t\r", "filter='qqq?:t' selected=ct129 screens=FleetScreen"),
        (b"/ct2\r", "filter='ct2' selected=ct200 screens=FleetScreen"),
        (b"/ct2\r\r", "filter='ct2' selected=ct200 screens=FleetScreen HostScreen"),
        (b"/kpro\r/q\r", "filter='q' selected=kpro6 screens=FleetScreen"),
        (b"/ct2" + ESC + b"G", "filter='' selected=kpro6 screens=FleetScreen"),
        (b"G\r" + ESC + b"g/6q\x7f\r", "filter='6' selected=kpro6 screens=FleetScreen"),
        (b"?" + ESC + b"?q/q\r", "filter='q' selected=ct129 screens=FleetScreen"),
        (b":qqq" + ESC + b"G", "filter='' selected=kpro6 screens=FleetScreen"),
    ],
)
def test_keys_in_one_write_do_what_they_do_one_by_one(
    terminals: list[Terminal], burst: bytes, left: str
) -> None:
    terminal = opened(terminals)
    terminal.type(burst + b"q")
    assert terminal.ended() == 0
    assert f"LEFT {left}\r\n" in terminal.read().decode()


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_no_bytes_end_the_console_or_make_it_deaf(
    terminals: list[Terminal], seed: int, is_text: bool
) -> None:
    choice = random.Random(seed)
    terminal = opened(terminals)
    for _ in range(3):
        for _ in range(100):
            made = garbage(choice)
            terminal.type(made.decode("utf-8", "ignore").encode() if is_text else made)
        answers(terminal)
    quits(terminal)


@pytest.mark.parametrize(
    "data",
    [
        b"\x1b[1114112u",
        b"\x1b[48;99999999;99999999;9;9t",
        b"\x1b[48;1;1;0;0t\x1b[<0;1;1M",
        b"\x1b[113;;55296u",
    ],
)
def test_numbers_that_are_too_large_are_no_keys(terminals: list[Terminal], data: bytes) -> None:
    terminal = opened(terminals)
    terminal.type(data)
    answers(terminal)
    assert quits(terminal) == "LEFT filter='' selected=ct129 screens=FleetScreen"


@pytest.mark.parametrize("start", [b"\x1b[200~", b"\x1b[200~abc\nq", b"\x1b]11;rgb:"])
def test_a_paste_without_its_end_is_given_up(terminals: list[Terminal], start: bytes) -> None:
    terminal = opened(terminals)
    terminal.type(start)
    answers(terminal, b"?")
    assert quits(terminal) == "LEFT filter='' selected=ct129 screens=FleetScreen"


@pytest.mark.parametrize("text", [b"q", b"G\r/q\r", b"sudo systemctl restart sglang-dflash\n"])
def test_a_text_that_is_pasted_as_keys_runs_none_of_them(terminals: list[Terminal], text: bytes) -> None:
    terminal = opened(terminals)
    terminal.type(text * (200_000 // len(text)))
    terminal.shows(b"pasted text")
    answers(terminal)
    assert quits(terminal) == "LEFT filter='' selected=ct129 screens=FleetScreen"


def test_a_paste_into_the_filter_is_its_first_line(terminals: list[Terminal]) -> None:
    terminal = opened(terminals)
    terminal.type(b"/\x1b[200~ct2\nqqq\n\x1b[201~\rq")
    assert terminal.ended() == 0
    assert b"LEFT filter='ct2' selected=ct200 " in terminal.read()
