"""Remote text is hostile: it is cleaned here, once, where bytes become `str`.

What leaves this module holds no control or format character that a terminal acts on (ECMA-48 sequences in
their 7-bit and 8-bit forms, C0, C1, DEL, bidirectional marks), none that can't be seen, no text over its limit, and
nothing beyond the model's bounds.
"""

from __future__ import annotations

import re
from collections.abc import Container
from functools import lru_cache
from typing import TypeAlias

import msgspec

from dflash_console.errors import AgentFailed
from dflash_console.harmless import is_harmless, made_harmless
from dflash_console.link.refusal import refusal
from dflash_console.model import Answer, FromAgent, decode_cell

__all__ = ["ANSWER_LIMIT", "STRING_LIMIT", "clean", "clean_bytes", "decode"]

STRING_LIMIT = 4096
"""Characters; the longest text of one value that the console keeps. PATH_MAX is 4096 bytes."""
ANSWER_LIMIT = 100_000
"""Values in an answer. Unlike a sample's, an answer's contents have no bounds of their own."""

_SEQUENCE = re.compile(
    # CSI: parameters 0x30-0x3F, intermediates 0x20-0x2F, one final byte; unfinished ones too.
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    # DCS, SOS, OSC, PM, APC: their text up to ST or BEL. Another escape, CAN or SUB breaks them off.
    r"|(?:\x1b[PX\]^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x18\x1a\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    # Other escapes: intermediates and a final byte, such as the choice of a charset or a full reset.
    r"|\x1b[ -/]*[0-~]"
)
_BAD_ESCAPE = re.compile(rb"\\[^/]")
_LONG_STRING = re.compile(rb'"[^"]{%d}' % STRING_LIMIT)
_SURROGATES = re.compile(
    rb"\\(?:(\\|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""What is no lone half of a surrogate pair, in the group, or such a half."""

_decoder: msgspec.json.Decoder[FromAgent] = msgspec.json.Decoder(FromAgent, dec_hook=decode_cell)

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"


def clean(text: str, limit: int = STRING_LIMIT) -> str:
    """The text as one harmless line of at most `limit` characters; a cut one ends in `…`.

    Escape sequences go, other controls become pictures (`␀`, `␊`, `␡`, `<U+009C>`), marks that reorder or
    hide text become visible (`<U+202E>`), unpaired surrogates become U+FFFD, and odd spaces plain ones.
    """
    if len(text) <= limit and is_harmless(text):
        return text
    # Cut first, so that the work is bounded; escape sequences get room, as they don't count in the result.
    room = 4 * limit + 4
    rest = _SEQUENCE.sub("", text[:room])
    shown = made_harmless(rest[: limit + 1], _visible)
    return _cut(shown if len(text) <= room else shown + "…", limit)


def clean_bytes(data: bytes, limit: int = STRING_LIMIT) -> str:
    """The bytes as one harmless line of at most `limit` characters, ` | ` where lines ended.

    Decoded as UTF-8, with U+FFFD for what is none.
    """
    lines = data[: 4 * limit + 4].decode("utf-8", "replace").strip().splitlines()
    return _cut(" | ".join(clean(line.strip(), limit) for line in lines if line.strip()), limit)


def decode(payload: bytes, asked: Container[int] | None = None, *, limit: int = ANSWER_LIMIT) -> FromAgent:
    """One JSON frame as a validated message whose every string (keys too) is clean.

    Of an answer whose number is not in `asked` the content is left out; one may hold `limit` values. Raises
    AgentFailed that names what is wrong with the frame: the field and the value.
    """
    is_plain = _is_plain(payload)
    try:
        # Before it is cleaned, which costs much more: nothing beyond the model's bounds gets that far.
        message = _decoder.decode(payload if is_plain else _readable(payload))
        if isinstance(message, Answer):
            if asked is not None and message.id not in asked:
                return Answer(message.id)
            _check_size(payload, limit)
        return message if is_plain else _cleaned(message)
    except msgspec.ValidationError as error:
        detail = clean(refusal(str(error), payload), 400)
        raise AgentFailed(f"the agent sent a message that does not fit the protocol: {detail}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        detail = f"{clean(str(error), 200)}; it begins {clean_bytes(payload[:80], 80)!r}"
        raise AgentFailed(f"the agent sent a frame that is not valid JSON: {detail}") from None


def _check_size(payload: bytes, limit: int) -> None:
    # Each value but the first stands behind one of these.
    values = sum(payload.count(mark) for mark in (b",", b"[", b"{"))
    if values > limit:
        raise AgentFailed(f"the agent sent an answer of about {values} values; the limit is {limit}")


def _is_plain(payload: bytes) -> bool:
    """Whether nothing in the frame needs cleaning.

    Raw control characters below 0x20 need no look: they are an error in a JSON string.
    """
    if not payload.isascii() or b"\x7f" in payload:
        return False
    if b"\\" in payload:
        # Then each quote that is left begins or ends a string.
        payload = payload.replace(b"\\\\", b"..").replace(b'\\"', b"..")
        if _BAD_ESCAPE.search(payload):
            return False
    return len(payload) <= STRING_LIMIT or _LONG_STRING.search(payload) is None


def _readable(payload: bytes) -> bytes:
    """The payload as msgspec takes it: with U+FFFD for bytes that are not UTF-8, and for unpaired surrogates,
    which are how Python writes the undecodable bytes of a path."""
    if not payload.isascii():
        payload = payload.decode("utf-8", "replace").encode("utf-8")
    return _SURROGATES.sub(lambda found: found[0] if found[1] else rb"\ufffd", payload)


def _cleaned(message: FromAgent) -> FromAgent:
    if isinstance(message, Answer):
        content: Plain = msgspec.json.decode(message.ok)
        error = None if message.error is None else clean(message.error)
        return Answer(message.id, msgspec.Raw(msgspec.json.encode(_clean_all(content))), error)
    cleaned: FromAgent = msgspec.convert(
        _clean_all(msgspec.to_builtins(message)), FromAgent, dec_hook=decode_cell
    )
    return cleaned


def _clean_all(value: Plain) -> Plain:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean_all(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): _clean_all(item) for key, item in value.items()}
    return value


@lru_cache(1024)
def _visible(char: str) -> str:
    code = ord(char)
    if code == 0x09 or (code > 0x85 and char.isspace() and code not in (0x2028, 0x2029)):
        return " "
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"<U+{code:04X}>"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"
