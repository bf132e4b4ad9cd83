"""Whether the system's loader would take a compiled module at all, by its first bytes (elf(5)); nothing is loaded."""

from __future__ import annotations

import os
import struct

from ..regular import read_regular
from .last_words import MACHINES

__all__ = ["why_not_loaded"]

HEAD = 8192
"""Bytes that hold the header and the table of what is loaded."""
LOADED = 1
"""PT_LOAD."""
LITTLE, WIDE = 1, 2
HEADER = 64


def why_not_loaded(path: str, size: int) -> str:
    """Why a shared object of that many bytes can't be loaded on this machine; empty when nothing speaks against it.
    Raises OSError when it can't be read."""
    head = read_regular(path, HEAD)[:HEAD]
    if not head.startswith(b"\x7fELF"):
        return "it is no library" if size else "it is empty"
    if len(head) < HEADER:
        return f"it is cut off after {size:,} bytes"
    if head[4] != WIDE or head[5] != LITTLE:
        return ""
    (number,) = struct.unpack_from("<H", head, 0x12)
    machine = os.uname().machine
    if machine in MACHINES.values() and MACHINES.get(number) != machine:
        return f"it is for {MACHINES.get(number, f'another machine ({number})')}, this machine is {machine}"
    (start,) = struct.unpack_from("<Q", head, 0x20)
    length, count = struct.unpack_from("<HH", head, 0x36)
    whole = 0
    for at in range(start, start + length * count, length or 1):
        if length < 56 or at + length > len(head):
            break
        kind, _, offset, _, _, in_file = struct.unpack_from("<IIQQQQ", head, at)
        whole = max(whole, offset + in_file) if kind == LOADED else whole
    return f"it is cut off: {size:,} of at least {whole:,} bytes" if size < whole else ""
