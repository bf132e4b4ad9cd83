"""Why a message of an agent was refused: which field, and what stood there."""

from __future__ import annotations

import re

import msgspec

__all__ = ["refusal"]

SHOWN = 60
"""Bytes of a refused value."""

_PLACE = re.compile(r" - at `\$([^`]*)`")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


def refusal(error: str, payload: bytes) -> str:
    """The words of msgspec's ValidationError with the value that it is about: "Expected `int` >= 0 - at
    `$.gpu.gpus[0].memory_used`: -4". A few dozen characters more than `error`; neither is clean."""
    # A cell that is decoded by a hook tells its own place first, then where it stands.
    places = _PLACE.findall(error)
    if not places:
        return error
    place = "".join(reversed(places))
    said = f"{_PLACE.sub('', error)} - at `${place}`"
    try:
        value = _value(payload, place)
    except (ValueError, LookupError, RecursionError):
        return said
    return f"{said}: {value}"


def _value(payload: bytes, place: str) -> str:
    """The value at a place, shortened; of a list or table how much is in it. Raises when it can't be told."""
    if _STEP.sub("", place):
        raise LookupError(place)
    raw = msgspec.Raw(payload)
    for name, number in _STEP.findall(place):
        raw = _table(raw)[name] if name else _list(raw)[int(number)]
    text = bytes(raw).strip()
    if text[:1] in (b"[", b"{"):
        return f"it has {len(_list(raw) if text[:1] == b'[' else _table(raw))}"
    shown = text[:SHOWN].decode("utf-8", "replace")
    return shown if len(text) <= SHOWN else f"{shown}…"


def _list(raw: msgspec.Raw) -> list[msgspec.Raw]:
    return msgspec.json.decode(raw, type=list[msgspec.Raw])


def _table(raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
