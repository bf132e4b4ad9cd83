"""Frames, however the stream is cut."""

from __future__ import annotations

import json
import random
import struct

import pytest

from dflash_console.errors import AgentFailed
from dflash_console.link.frames import FRAME_LIMIT, MESSAGE, Splitter, pack


def frame(payload: bytes, kind: int = 0) -> bytes:
    return struct.pack(">IB", len(payload), kind) + payload


def test_a_message_is_a_header_and_ascii_json() -> None:
    packed = pack({"do": "ping", "id": 1, "text": "é"})
    assert struct.unpack(">IB", packed[:5]) == (len(packed) - 5, MESSAGE)
    assert packed[5:].isascii()
    assert json.loads(packed[5:]) == {"do": "ping", "id": 1, "text": "é"}


def test_frames_come_out_whole_however_they_are_cut() -> None:
    rng = random.Random(3)
    for _ in range(300):
        frames = [
            (rng.randrange(2), rng.randbytes(rng.choice([0, 1, 5, 300, 70_000])).replace(b"\n", b""))
            for _ in range(rng.randrange(6))
        ]
        stream = b"".join(frame(payload, kind) for kind, payload in frames)
        splitter, got, at = Splitter(), [], 0
        while at < len(stream):
            step = rng.choice([1, 3, 5, 1000, 40_000])
            got += splitter.feed(stream[at : at + step])
            at += step
        assert got == frames


def test_a_frame_of_the_limit_passes_and_a_longer_one_does_not() -> None:
    assert Splitter().feed(frame(bytes(FRAME_LIMIT)))[0][1] == bytes(FRAME_LIMIT)
    with pytest.raises(AgentFailed, match="the limit is"):
        Splitter().feed(struct.pack(">IB", FRAME_LIMIT + 1, 0))


def test_text_in_place_of_a_frame_is_quoted() -> None:
    with pytest.raises(AgentFailed, match="Traceback"):
        Splitter().feed(b"Traceback (most recent call last):\n")
    splitter = Splitter()
    assert splitter.feed(frame(b"{}")) == [(0, b"{}")]
    assert splitter.feed(b"oo") == []
    with pytest.raises(AgentFailed, match="oops"):
        splitter.feed(b"ps, said the agent")


def test_text_that_another_wrote_into_a_frame_is_quoted_and_its_cause_named() -> None:
    whole = frame(b'{"type":"sample","at":1}')
    for at in (5, 9, len(whole)):
        with pytest.raises(AgentFailed, match="a background job of a login file") as caught:
            Splitter().feed(whole[:at] + b"tick\n" + whole[at:] + whole)
        assert "tick" in str(caught.value)


def test_raw_data_may_hold_anything() -> None:
    assert Splitter().feed(frame(b"a\nb", 1)) == [(1, b"a\nb")]
