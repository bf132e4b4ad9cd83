"""What the console makes of a terminal's bytes, whatever they are."""

from __future__ import annotations

import random

import pytest
from textual.events import AppBlur, AppFocus, Key, MouseDown, Paste
from textual.message import Message

from dflash_console.ui.sequences import Refused
from dflash_console.ui.typed import Typed, is_alone, together
from tests.ui.garbage import garbage

Piece = bytes | float
"""Bytes that come at once, or seconds of silence."""


class Typist:
    """Types into a console whose clock only moves when told."""

    def __init__(self) -> None:
        self.typed = Typed()
        self.now = 1000.0
        self.events: list[Message] = []

    def pause(self, seconds: float) -> None:
        """Sends nothing for so long; the input thread looks as often as it would."""
        end = self.now + seconds
        while self.now + self.typed.wait <= end:
            self.now += self.typed.wait
            self.events += self.typed.silence(self.now)
        self.now = end

    def send(self, *pieces: Piece) -> Typist:
        """Sends bytes, and waits where there is a number."""
        for piece in pieces:
            if isinstance(piece, bytes):
                self.events += self.typed.feed(piece, self.now)
            else:
                self.pause(piece)
        return self

    def seen(self) -> list[str]:
        """Keys and pasted texts, and the names of all other events, once all is quiet."""
        self.pause(0.5)
        return [
            event.key
            if isinstance(event, Key)
            else event.text
            if isinstance(event, Paste)
            else type(event).__name__
            for event in self.events
        ]


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        ("é".encode(), ["é"]),
        (b"\x1b[A\x1bOB\x1b[1;5C", ["up", "down", "ctrl+right"]),
        (b"\x1b", ["escape"]),
        (b"\x1b\x1b", ["escape", "escape"]),
        (b"\x1bq", ["alt+q"]),
        (b"\x1b[27u\x1b[97;5u\x1b[113;;113u", ["escape", "ctrl+a", "q"]),
        (b"\x1b[[A\x1b[24$", ["f1", "f24"]),
        (b"\x1b[I\x1b[O", [AppFocus.__name__, AppBlur.__name__]),
        (b"\x1b[<0;5;5M", [MouseDown.__name__]),
        (b"\x1b[200~llm-two\nq\n\x1b[201~j", ["llm-two", "j"]),
        (b"/ct2\rq", ["slash", "c", "t", "2", "enter", "q"]),
    ],
)
@pytest.mark.parametrize("is_torn", [False, True])
def test_keys_pastes_and_the_mouse_come_through_whole_or_in_pieces(
    data: bytes, keys: list[str], is_torn: bool
) -> None:
    pieces: list[Piece] = [bytes([byte]) for byte in data] if is_torn else [data]
    assert Typist().send(*pieces).seen() == keys


@pytest.mark.parametrize(
    "data",
    [
        # Numbers that chr() and int() refuse, halves of characters, keys that are none.
        b"\x1b[1114112u",
        b"\x1b[99999999999999999999999u",
        b"\x1b[97:65;5u",
        b"\x1b[1;1:3A",
        b"\x1b[55296u",
        b"\x1b[113;;55296u",
        # Sequences without a meaning, whose letters are no keys.
        b"\x1b[?1;2c",
        b"\x1b[>0;276;0c",
        b"\x1b[12;34;56q",
        b"\x1b]11;rgb:1e1e/1e1e/1e1e\x07",
        b"\x1b]0;quit\x1b\\",
        b"\x1bP1+r524742=38\x1b\\",
        b"\x1b_Gi=31;qqqq\x1b\\",
        # Sizes, which the terminal itself is asked for.
        b"\x1b[48;1;1;1;1t",
        b"\x1b[48;999999999;999999999;1;1t",
        b"\x1b[48;0;0;0;0t",
        # A mouse where no terminal is.
        b"\x1b[<0;999999999;1M",
        b"\x1b[<0;-5;1M",
        b"\x1b[M\xff\xfe\x80",
        # No UTF-8.
        b"\xff\xfe\x80",
        b"\xc3\x28"[:1],
    ],
)
@pytest.mark.parametrize("is_torn", [False, True])
def test_what_means_nothing_is_nothing_and_the_next_key_is_one(data: bytes, is_torn: bool) -> None:
    pieces: list[Piece] = [bytes([byte]) for byte in data] if is_torn else [data]
    assert Typist().send(*pieces, b"?", 0.2, b"\x1b[<0;5;5M").seen() == ["question_mark", "MouseDown"]


@pytest.mark.parametrize("start", [b"\x1b[200~", b"\x1b[200~abc\n\x1b[20", b"\x1b]0;", b"\x1bP", b"\x1b_"])
@pytest.mark.parametrize("pace", [0.02, 0.2, 0.9, 3.0])
def test_a_paste_or_an_answer_without_an_end_ends_by_itself_however_fast_one_types(
    start: bytes, pace: float
) -> None:
    typist = Typist().send(start)
    typed = 0.0
    while "question_mark" not in typist.seen():
        typist.send(pace, b"?")
        typed += pace + 0.5
        assert typed < 10.0
    assert "q" not in typist.seen()


def test_a_long_paste_that_comes_slowly_is_one_paste() -> None:
    pieces: list[Piece] = [b"\x1b[200~first line\n"]
    for _ in range(20):
        pieces += [b"q" * 100, 0.5]
    assert Typist().send(*pieces, b"\x1b[201~").seen() == ["first line"]


def test_a_paste_brings_one_line_of_what_can_be_seen() -> None:
    (text,) = (
        Typist().send(b"\x1b[200~\r\n\x1b]0;evil\x07\xe2\x80\xae" + b"x" * 100_000 + b"\x1b[201~").seen()
    )
    assert text.isprintable()
    assert len(text) == 1000


@pytest.mark.parametrize("size", [40, 5_000, 200_000])
@pytest.mark.parametrize("piece", [1, 7, 64, 4096])
def test_text_that_is_pasted_as_keys_runs_hardly_any_and_is_told_once(size: int, piece: int) -> None:
    typist = Typist()
    for _ in range(0, size, piece):
        typist.send(b"q" * piece, 0.001)
    seen = typist.seen()
    assert seen.count(Refused.__name__) == 1
    # Bytes that come one by one can't be told from keys before there are too many.
    assert seen.count("q") <= (36 if piece <= 8 else 0)
    assert typist.send(b"?").seen()[-1] == "question_mark"


@pytest.mark.parametrize("pace", [0.05, 0.2])
def test_after_a_pasted_text_a_person_is_heard_though_they_never_pause(pace: float) -> None:
    typist = Typist().send(b"x" * 4096)
    for _ in range(20):
        typist.send(b"?", pace)
    assert "question_mark" in typist.seen()


@pytest.mark.parametrize("rate", [30, 60])
def test_a_key_that_is_held_down_repeats_for_ever(rate: int) -> None:
    typist = Typist()
    for _ in range(500):
        typist.send(b"\x1b[B", 1 / rate)
    assert typist.seen() == ["down"] * 500


def test_a_mouse_that_is_moved_is_no_flood_and_one_that_is_mad_is_cut_short() -> None:
    typist = Typist()
    for _ in range(300):
        typist.send(b"\x1b[<35;7;7M", 0.008)
    assert len(typist.seen()) == 300
    typist.send(b"\x1b[<64;7;7M" * 20_000, b"?")
    assert len(typist.seen()) < 300 + 600
    assert typist.seen()[-1] == "question_mark"


@pytest.mark.parametrize("seed", range(200))
def test_after_any_garbage_a_key_is_a_key(seed: int) -> None:
    choice = random.Random(seed)
    typist = Typist()
    for _ in range(30):
        typist.send(garbage(choice), choice.choice([0.0, 0.001, 0.02, 0.15]))
    typist.pause(2.5)
    typist.events.clear()
    assert typist.send(b"?", 0.1, b"\x1b[A").seen() == ["question_mark", "up"]


def test_a_key_knows_how_many_came_with_it() -> None:
    typed = Typed()
    (alone,) = typed.feed(b"c", 1.0)
    assert isinstance(alone, Key)
    assert is_alone(alone)
    keys = [event for event in typed.feed(b"ct200\r", 2.0) if isinstance(event, Key)]
    assert [together(key) for key in keys] == [6] * 6
    assert not any(is_alone(key) for key in keys)
    (arrow,) = typed.feed(b"\x1b[A", 3.0)
    assert isinstance(arrow, Key)
    assert is_alone(arrow)
    assert is_alone(Key("c", "c"))


def test_of_keys_that_were_held_none_is_alone() -> None:
    typed = Typed()
    assert typed.feed(b"copy all that", 1.0) == []
    held = [event for event in (*typed.feed(b"\r", 1.01), *typed.silence(2.0)) if isinstance(event, Key)]
    assert [key.key for key in held][-1] == "enter"
    assert not any(is_alone(key) for key in held)


def test_a_pasted_text_that_comes_in_pieces_has_no_key_alone_but_the_first_may_be() -> None:
    typed = Typed()
    assert not any(is_alone(key) for key in typed.feed(b"ct2", 1.0) if isinstance(key, Key))
    (end,) = typed.feed(b"\r", 1.005)
    assert isinstance(end, Key)
    assert not is_alone(end)
    (later,) = typed.feed(b"\r", 1.2)
    assert isinstance(later, Key)
    assert is_alone(later)
