"""Frames: how messages and raw data travel on a byte stream, both ways.

A frame is a header (`>IB`: length of the payload, kind) and the payload. Kind 0 is one JSON message, kind 1
is raw data.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

from dflash_console.errors import AgentFailed
from dflash_console.link.clean import clean_bytes

__all__ = ["DATA", "FRAME_LIMIT", "MESSAGE", "Splitter", "pack", "pack_data"]

MESSAGE = 0
DATA = 1
FRAME_LIMIT = 4 << 20
"""Bytes of payload; a longer frame is a broken or a hostile agent. One with all of a large host is about one MiB."""
QUOTED = 120
"""Bytes of what is no frame that an error shows."""

_HEADER = struct.Struct(">IB")


def pack(message: Mapping[str, object]) -> bytes:
    """A message as a frame. The JSON is pure ASCII."""
    payload = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    return _HEADER.pack(len(payload), MESSAGE) + payload


def pack_data(payload: bytes) -> bytes:
    """Raw data as a frame."""
    return _HEADER.pack(len(payload), DATA) + payload


class Splitter:
    """Cuts a stream into frames; keeps what is unfinished for the next piece."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._wanted = _HEADER.size
        """Bytes that `_rest` must hold before the next frame can be whole."""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames (kind, payload) that `data` completes, in order.

        Raises AgentFailed for a frame over the limit or of no known kind, and for one with foreign text in it;
        nothing after it can be read.
        """
        # Mostly a piece is one whole frame: then nothing is copied but its payload.
        if not self._rest:
            frames, used, self._wanted = _split(data)
            if used < len(data):
                self._rest += data[used:]
            return frames
        self._rest += data
        if len(self._rest) < self._wanted:
            return []
        frames, used, self._wanted = _split(self._rest)
        del self._rest[:used]
        return frames


def _split(data: bytes | bytearray) -> tuple[list[tuple[int, bytes]], int, int]:
    """The whole frames at the start of `data`, the bytes they take, and the bytes that the next one needs."""
    frames: list[tuple[int, bytes]] = []
    at, size = 0, len(data)
    while size - at >= _HEADER.size:
        length, kind = _HEADER.unpack_from(data, at)
        if length > FRAME_LIMIT or kind not in (MESSAGE, DATA):
            raise AgentFailed(_not_a_frame(length, kind, bytes(data[at : at + QUOTED])))
        start = at + _HEADER.size
        if start + length > size:
            return frames, at, _HEADER.size + length
        payload = bytes(data[start : start + length])
        # The agent's JSON holds no line break; a big frame is written in pieces, and others print between those.
        if kind == MESSAGE and b"\n" in payload:
            raise AgentFailed(_foreign("inside a frame", payload[: payload.index(b"\n")][-QUOTED:]))
        frames.append((kind, payload))
        at = start + length
    return frames, at, _HEADER.size


def _not_a_frame(length: int, kind: int, head: bytes) -> str:
    # Text where a header should be (something prints to the agent's stdout) reads as an absurd length.
    if all(byte in b"\t\r\n" or 0x20 <= byte < 0x7F for byte in head[: _HEADER.size]):
        return _foreign("where a frame should begin", head)
    if kind not in (MESSAGE, DATA):
        return f"the agent sent a frame of unknown kind {kind} ({length} bytes)"
    return f"the agent sent a frame of {length} bytes; the limit is {FRAME_LIMIT} ({FRAME_LIMIT >> 20} MiB)"


def _foreign(where: str, words: bytes) -> str:
    return (
        f"the agent sent text {where}: {clean_bytes(words, QUOTED)!r}; if that is not the agent's own, a background "
        "job of a login file (such as .bashrc) prints into its channel: send that job's output elsewhere"
    )
