"""Frames: whole messages out of any pieces, and writing that never waits."""

from __future__ import annotations

import json
import os
import struct

import msgspec
import pytest

from dflash_console.agent.frames import Inbox, Outbox, encode, pack


def test_messages_come_out_whole_whatever_the_pieces() -> None:
    messages = [{"a": 1}, {"b": "ü" * 1000}, {}]
    data = b"".join(pack(json.dumps(message)) for message in messages)
    for size in (1, 3, 5, 1000, len(data)):
        inbox = Inbox()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert [message for piece in pieces for message in inbox.feed(piece)] == messages


@pytest.mark.parametrize(
    "header", [struct.pack(">IB", 1, 1), struct.pack(">IB", 1, 200), struct.pack(">IB", 1 << 30, 0)]
)
def test_a_frame_that_is_not_ours_is_refused_by_its_header(header: bytes) -> None:
    with pytest.raises(ValueError, match="a frame of kind"):
        Inbox().feed(header)


@pytest.mark.parametrize("text", ["plain", 'quote " and \\ and \n\0\x1b\x9b', "ü 中 \U0001f600", "\u202e"])
def test_any_text_survives_the_wire_as_ascii(text: str) -> None:
    encoded = encode({"text": text})
    assert encoded.isascii()
    assert msgspec.json.decode(encoded) == {"text": text}


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    value = {"a\udcff": ["\udc80\ud83d", "\U0001f600", "\\udc80"]}
    assert msgspec.json.decode(encode(value)) == {"a?": ["??", "\U0001f600", "\\udc80"]}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"bytes"])
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        encode(value)


def test_what_a_pipe_does_not_take_waits_and_then_goes_in_order() -> None:
    reading, writing = os.pipe()
    outbox = Outbox(writing)
    frames = [bytes([number]) * 50_000 for number in range(5)]
    for frame in frames:
        outbox.put(frame)
    assert 0 < outbox.backlog < 250_000
    received = b""
    while len(received) < 250_000:
        received += os.read(reading, 30_000)
        outbox.flush()
    assert received == b"".join(frames)
    assert outbox.backlog == 0
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        outbox.put(b"x")
    os.close(writing)
