"""Remote text is hostile: it is cleaned here, once, where bytes become `str`.

What leaves this module holds no control or format character that a terminal acts on (ECMA-48 sequences in
their 7-bit and 8-bit forms, C0, C1, DEL, bidirectional and zero-width marks) and no text over its limit.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn, TypeAlias

import msgspec

from dflash_console.errors import AgentFailed
from dflash_console.model import FromAgent, decode_cell

__all__ = ["STRING_LIMIT", "clean", "clean_bytes", "decode"]

STRING_LIMIT = 4096
"""Characters; the longest text of one value that the console keeps. PATH_MAX is 4096 bytes."""

_SEQUENCE = re.compile(
    # CSI: parameters 0x30-0x3F, intermediates 0x20-0x2F, one final byte; unfinished ones too.
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    # DCS, SOS, OSC, PM, APC: their text up to ST or BEL. Another escape, CAN or SUB breaks them off.
    r"|(?:\x1b[PX\]^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x18\x1a\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    # Other escapes: intermediates and a final byte, such as the choice of a charset or a full reset.
    r"|\x1b[ -/]*[0-~]"
)
_BAD_ESCAPE = re.compile(rb'\\[^"\\/]')
_LONG_STRING = re.compile(rb'"[^"]{%d}' % STRING_LIMIT)

_decoder: msgspec.json.Decoder[FromAgent] = msgspec.json.Decoder(FromAgent, dec_hook=decode_cell)

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"


def clean(text: str, limit: int = STRING_LIMIT) -> str:
    """The text as one harmless line of at most `limit` characters; a cut one ends in `…`.

    Escape sequences go, other controls become pictures (`␀`, `␊`, `␡`, `<U+009C>`), marks that reorder or
    hide text become visible (`<U+202E>`), unpaired surrogates become U+FFFD, and odd spaces plain ones.
    """
    if len(text) <= limit and text.isprintable():
        return text
    # Cut first, so that the work is bounded; escape sequences get room, as they don't count in the result.
    room = 4 * limit + 4
    shown = _SEQUENCE.sub("", text[:room])
    if not shown.isprintable():
        shown = "".join(char if char.isprintable() else _visible(char) for char in shown)
    return _cut(shown, limit) if len(text) <= room else _cut(shown + "…", limit)


def clean_bytes(data: bytes, limit: int = STRING_LIMIT) -> str:
    """The bytes as one harmless line of at most `limit` characters, ` | ` where lines ended.

    Decoded as UTF-8, with U+FFFD for what is none.
    """
    lines = data[: 4 * limit + 4].decode("utf-8", "replace").strip().splitlines()
    return _cut(" | ".join(clean(line.strip(), limit) for line in lines if line.strip()), limit)


def decode(payload: bytes) -> FromAgent:
    """One JSON frame as a validated message whose every string (keys too) is clean.

    Raises AgentFailed that names what is wrong with it.
    """
    try:
        return _decoder.decode(payload if _is_plain(payload) else _cleaned(payload))
    except msgspec.ValidationError as error:
        detail = clean(str(error), 300)
        raise AgentFailed(f"the agent sent a message that does not fit the protocol: {detail}") from None
    except (ValueError, OverflowError, RecursionError, msgspec.DecodeError) as error:
        detail = f"{clean(str(error), 200)}; it begins {clean_bytes(payload[:80], 80)!r}"
        raise AgentFailed(f"the agent sent a frame that is not valid JSON: {detail}") from None


def _is_plain(payload: bytes) -> bool:
    """Whether nothing in the frame needs cleaning, so that it can be decoded straight into structs.

    Raw control characters below 0x20 need no look: they are an error in a JSON string.
    """
    return (
        payload.isascii()
        and b"\x7f" not in payload
        and (b"\\" not in payload or _BAD_ESCAPE.search(payload) is None)
        and (len(payload) <= STRING_LIMIT or _LONG_STRING.search(payload) is None)
    )


def _cleaned(payload: bytes) -> bytes:
    # The standard library's decoder, because msgspec refuses unpaired surrogates; those are how Python writes
    # the undecodable bytes of a path, so they do arrive.
    plain: Plain = json.loads(payload.decode("utf-8", "replace"), parse_constant=_refuse)
    return msgspec.json.encode(_clean_all(plain))


def _clean_all(value: Plain) -> Plain:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean_all(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): _clean_all(item) for key, item in value.items()}
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


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
