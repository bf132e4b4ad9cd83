"""D-Bus messages as bytes: what a listener needs of them, within bounds.

Of a signal's body only a first string is kept, of an answer's all. D-Bus Specification 0.42, "Message Protocol".
"""

from __future__ import annotations

import struct

__all__ = ["ERROR", "REPLY", "SIGNAL", "BusError", "Decoder", "Message", "encode_call"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER_LIMIT = 1 << 16
BODY_KEPT = 1 << 12
ANSWER_KEPT = 1 << 18
"""Bytes of a body that are kept; of a longer one, the beginning."""
BODY_LIMIT = 1 << 27
"""The specification's own limit of a message."""

REPLY, ERROR, SIGNAL = 2, 3, 4


class BusError(Exception):
    """The peer does not speak D-Bus as it should, or said no; the connection is of no more use."""


class Message:
    """What is wanted of a message; `first` is the body's first argument if that is a string, `order` (`<` or
    `>`) how the numbers in it are written."""

    __slots__ = ("body", "error", "first", "interface", "kind", "member", "order", "path", "reply_to")

    def __init__(self, kind: int, fields: dict[int, str | int], first: str, body: bytes, order: str) -> None:
        self.kind = kind
        self.path = str(fields.get(1, ""))
        self.interface = str(fields.get(2, ""))
        self.member = str(fields.get(3, ""))
        self.error = str(fields.get(4, ""))
        reply_to = fields.get(5, 0)
        self.reply_to = reply_to if isinstance(reply_to, int) else 0
        self.first = first
        self.body = body
        self.order = order


def encode_call(
    serial: int, destination: str, path: str, method: str, arguments: Sequence[str] = ()
) -> bytes:
    """A method call with string arguments; `method` is interface and member joined by a dot. An empty
    destination is left out, as on a connection without a bus."""
    interface, _, member = method.rpartition(".")
    fields = bytearray()
    for code, kind, text in ((1, "o", path), (2, "s", interface), (3, "s", member), (6, "s", destination)):
        if text:
            fields += _padding(len(fields), 8) + bytes([code, 1, ord(kind), 0]) + _string(text)
    if arguments:
        signature = b"s" * len(arguments)
        fields += _padding(len(fields), 8) + bytes([8, 1, ord("g"), 0, len(signature)]) + signature + b"\0"
    body = bytearray()
    for argument in arguments:
        body += _padding(len(body), 4) + _string(argument)
    head = struct.pack("<cBBBIII", b"l", 1, 0, 1, len(body), serial, len(fields))
    return head + bytes(fields) + _padding(len(fields), 8) + bytes(body)


def _padding(length: int, to: int) -> bytes:
    return b"\0" * (-length % to)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<I", len(data)) + data + b"\0"


class Decoder:
    """Bytes in, messages out. Holds at most a header, the kept part of a body, and what came last."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skip = 0

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete with `data`. Raises BusError for what no peer may send."""
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        buffer = self._buffer
        buffer += data[skipped:]
        messages = []
        while len(buffer) >= 16:
            if buffer[0] not in b"lB" or buffer[3] != 1:
                raise BusError("not a D-Bus message")
            order = "<" if buffer[0] == ord("l") else ">"
            body, _, fields = struct.unpack_from(order + "III", buffer, 4)
            if fields > HEADER_LIMIT or body > BODY_LIMIT:
                raise BusError(f"a message of {fields} and {body} bytes is too long")
            start = 16 + fields + -fields % 8
            kept = min(body, ANSWER_KEPT if buffer[1] == REPLY else BODY_KEPT)
            if len(buffer) < start + kept:
                break
            messages.append(_read_message(bytes(buffer[: start + kept]), order, fields, start))
            self._skip = max(0, start + body - len(buffer))
            del buffer[: start + body]
        return messages


def _read_message(data: bytes, order: str, length: int, start: int) -> Message:
    fields: dict[int, str | int] = {}
    position, end = 16, 16 + length
    try:
        while position < end:
            position += -position % 8
            code, kind = data[position], data[position + 2 : position + 4]
            position += 4
            if data[position - 3] != 1 or kind[1:] != b"\0" or kind[:1] not in b"osgu":
                break  # a field of a later specification; those that are needed come with these types
            if kind[:1] == b"u":
                (fields[code],) = struct.unpack_from(order + "I", data, position)
                position += 4
                continue
            text, position = _read_string(data, order, position, is_signature=kind[:1] == b"g")
            if position > end:
                raise BusError("a field that does not fit its header")
            fields[code] = text
        first = ""
        if str(fields.get(8, ""))[:1] in ("s", "o"):
            first = _read_string(data, order, start, is_signature=False)[0]
    except (IndexError, struct.error):
        raise BusError("a header that ends early") from None
    return Message(data[1], fields, first, data[start:], order)


def _read_string(data: bytes, order: str, position: int, *, is_signature: bool) -> tuple[str, int]:
    if is_signature:
        length, begin = data[position], position + 1
    else:
        length, begin = struct.unpack_from(order + "I", data, position)[0], position + 4
    text = data[begin : begin + length]
    return text.decode("utf-8", "replace"), begin + length + 1
