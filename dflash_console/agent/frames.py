"""The frames between agent and console: a header of payload length and kind, then the payload.

Kind 0 is one JSON message in ASCII, kind 1 raw data.
"""

from __future__ import annotations

import json
import os
import struct

__all__ = ["JSON", "RAW", "Inbox", "Outbox", "encode", "pack"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

JSON = 0
RAW = 1
_HEADER = struct.Struct(">IB")
INBOX_LIMIT = 1 << 20
"""Bytes of one frame from the console."""

_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def encode(value: object) -> str:
    """A value as compact ASCII JSON that any strict decoder takes. Raises ValueError or TypeError for no JSON
    value.

    Half a surrogate pair (a file name that is not UTF-8) becomes `?`: no Unicode text may hold one.
    """
    text = _encoder.encode(value)
    if "\\ud" in text:
        whole = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        text = _encoder.encode(json.loads(whole))
    return text


def pack(text: str, kind: int = JSON) -> bytes:
    """One frame."""
    payload = text.encode("ascii")
    return _HEADER.pack(len(payload), kind) + payload


class Inbox:
    """Puts frames together from whatever pieces a pipe gives."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> list[Any]:
        """The JSON messages that are whole now. Raises ValueError for what is no frame of ours."""
        self._data += data
        messages: list[Any] = []
        at = 0
        while len(self._data) - at >= _HEADER.size:
            length, kind = _HEADER.unpack_from(self._data, at)
            if kind != JSON or length > INBOX_LIMIT:
                raise ValueError(f"a frame of kind {kind} and {length} bytes")
            end = at + _HEADER.size + length
            if len(self._data) < end:
                break
            messages.append(json.loads(self._data[at + _HEADER.size : end]))
            at = end
        self._data = self._data[at:]
        return messages


class Outbox:
    """Writes without ever waiting: what the pipe does not take now stays in `backlog`."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._pending = bytearray()

    @property
    def backlog(self) -> int:
        """Bytes that wait to be written."""
        return len(self._pending)

    def put(self, frame: bytes) -> None:
        """Write a frame now, or as far as it goes. Raises OSError when nobody reads any more."""
        if self._pending:
            self._pending += frame
        else:
            self._pending += frame[self._write(frame) :]

    def flush(self) -> None:
        """Write as much of the backlog as goes. Raises OSError when nobody reads any more."""
        while self._pending:
            # A copy of a piece: a view into the bytearray would forbid to shrink it.
            written = self._write(bytes(self._pending[: 1 << 16]))
            if not written:
                return
            del self._pending[:written]

    def _write(self, data: bytes) -> int:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0
