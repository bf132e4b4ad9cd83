"""Bytes that a terminal should never send, made from a seed: random ones and such as have the shape of sequences."""

from __future__ import annotations

import random

__all__ = ["garbage"]

_QUITTING = b"q\x11"
"""Keys that are meant to end the console."""
_FINALS = bytes(range(0x40, 0x7F))
_PARTS = (
    b";",
    b":",
    b"<",
    b"?",
    b">",
    b"=",
    b"-",
    b"$",
    b" ",
    b"\x1b",
    b"\x9b",
    b"\xff",
    "é".encode(),
    b"\x07",
)
_NUMBERS = (0, 1, 27, 48, 57344, 55296, 65535, 0x10FFFF, 0x110000, 1 << 31, 1 << 64, 10**30)


def garbage(choice: random.Random) -> bytes:
    """A piece of it; nothing in it is a key that ends the console."""
    made = choice.choice((_noise, _csi, _csi, _csi, _string, _paste, _torn, _mouse))(choice)
    return made.translate(None, _QUITTING)


def _noise(choice: random.Random) -> bytes:
    return choice.randbytes(choice.choice((1, 3, 20, 300)))


def _number(choice: random.Random) -> bytes:
    number = choice.choice(_NUMBERS) if choice.random() < 0.5 else choice.randrange(300)
    return b"" if number in set(_QUITTING) or choice.random() < 0.1 else str(number).encode()


def _csi(choice: random.Random) -> bytes:
    made = b"\x1b["
    for _ in range(choice.randrange(6)):
        made += (
            choice.choice(_PARTS[:8])
            if choice.random() < 0.2
            else _number(choice) + choice.choice((b";", b":"))
        )
    final = choice.choice(b"u~tRMmyABIOZ") if choice.random() < 0.8 else choice.choice(_FINALS)
    return made + _number(choice) + bytes([final])


def _string(choice: random.Random) -> bytes:
    body = choice.randbytes(choice.choice((0, 5, 50)))
    end = choice.choice((b"\x07", b"\x1b\\", b"\x9c", b"", b"\x1b"))
    return b"\x1b" + choice.choice((b"]", b"P", b"X", b"^", b"_")) + body + end


def _paste(choice: random.Random) -> bytes:
    return (
        b"\x1b[200~"
        + choice.randbytes(choice.choice((0, 5, 50)))
        + choice.choice((b"\x1b[201~", b"\x1b[201~", b""))
    )


def _torn(choice: random.Random) -> bytes:
    whole = choice.choice((_csi, _string, _paste))(choice) + choice.choice(_PARTS)
    return whole[: choice.randrange(len(whole) + 1)]


def _mouse(choice: random.Random) -> bytes:
    if choice.random() < 0.3:
        return b"\x1b[M" + choice.randbytes(choice.randrange(5))
    return b"\x1b[<%d;%d;%d%s" % (
        choice.randrange(256),
        choice.choice((0, 1, 40, 80, 10**6)),
        choice.choice((0, 1, 12, 24, 10**6)),
        choice.choice((b"M", b"m")),
    )
