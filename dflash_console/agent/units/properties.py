"""The state of a unit as systemd's bus gives it (org.freedesktop.DBus.Properties.GetAll), in `systemctl show`'s words.

Only what changes while a unit lives is taken: a look costs a tenth of a systemctl. D-Bus Specification 0.42,
"Type System" and "Marshaling"; org.freedesktop.systemd1(5).
"""

from __future__ import annotations

import struct

from .dbus import BusError
from .text import PROPERTIES

__all__ = ["STATES", "read_states"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .dbus import Message

STATES = frozenset(PROPERTIES) - {
    "Id",
    "Names",
    "Description",
    "LoadError",
    "DropInPaths",
    "ExecStart",
    "Environment",
}
"""Of text.PROPERTIES, those whose value is a word, a number or bytes."""

FORMS = dict(zip("ybnqiuhxtd", "BIhHiIIqQd"))
"""Type of a number -> struct's letter for it."""
SIZES = {code: struct.calcsize("=" + form) for code, form in FORMS.items()}
"""Also how they are aligned."""
NUMBERS = {order: {code: struct.Struct(order + form) for code, form in FORMS.items()} for order in ("<", ">")}
DEPTH_LIMIT = 64
"""The specification's own limit of containers within containers."""


def read_states(message: Message) -> dict[str, str]:
    """The STATES in the answer to a GetAll, as far as they are there. Raises BusError for another body."""
    reader = _Reader(message.body, message.order)
    found: dict[str, str] = {}
    try:
        end = reader.number("u")
        reader.align(8)
        end += reader.at
        while reader.at < end and len(found) < len(STATES):
            reader.align(8)
            name = reader.text()
            signature = reader.signature()
            if name in STATES:
                found[name] = reader.word(signature)
            else:
                reader.skip(signature, 0)
    except (IndexError, KeyError, OverflowError, ValueError, struct.error):
        raise BusError("an answer that is not a unit's properties") from None
    return found


class _Reader:
    """Goes through a message's body. Raises IndexError, KeyError or struct.error when it is malformed."""

    def __init__(self, data: bytes, order: str) -> None:
        self.at = 0
        self._data = data
        self._numbers = NUMBERS[order]

    def align(self, to: int) -> None:
        self.at += -self.at % to

    def number(self, code: str) -> int:
        self.align(SIZES[code])
        (value,) = self._numbers[code].unpack_from(self._data, self.at)
        self.at += SIZES[code]
        return int(value)

    def text(self) -> str:
        return self._bytes(self.number("u"), 1).decode("utf-8", "replace")

    def signature(self) -> str:
        return self._bytes(self.number("y"), 1).decode("ascii", "replace")

    def word(self, signature: str) -> str:
        """A value as `systemctl show` prints it."""
        if signature in ("s", "o"):
            return self.text()
        if signature == "b":
            return "yes" if self.number("b") else "no"
        if signature == "ay":
            return self._bytes(self.number("u"), 0).hex()
        return str(self.number(signature))

    def skip(self, signature: str, index: int, depth: int = 0) -> int:
        """Go past the value of the type that begins at `index`; gives the index behind that type."""
        code = signature[index]
        if depth > DEPTH_LIMIT:
            raise IndexError
        if code in SIZES:
            self.number(code)
        elif code in "so":
            self._bytes(self.number("u"), 1)
        elif code == "g":
            self.signature()
        elif code == "v":
            self.skip(self.signature(), 0, depth + 1)
        elif code == "a":
            length = self.number("u")
            element = signature[index + 1]
            self.align(8 if element in "({" else 1 if element in "gv" else SIZES.get(element, 4))
            self._bytes(length, 0)
            return _end(signature, index + 1)
        elif code == "(":
            self.align(8)
            index += 1
            while signature[index] != ")":
                index = self.skip(signature, index, depth + 1)
        else:
            raise KeyError(code)
        return index + 1

    def _bytes(self, length: int, closing: int) -> bytes:
        found = self._data[self.at : self.at + length]
        if len(found) < length:
            raise IndexError
        self.at += length + closing
        return found


def _end(signature: str, index: int) -> int:
    """The index behind the type that begins at `index`."""
    while signature[index] == "a":
        index += 1
    depth = 0
    while True:
        depth += (signature[index] in "({") - (signature[index] in ")}")
        index += 1
        if depth == 0:
            return index
