"""The RECORD of a dist-info as it travels: it lists no more than what is copied with it.

Other rows, such as that of a script in bin, are of the environment that it comes from: an uninstall would remove
files on the target that the copy never brought.
"""

from __future__ import annotations

import csv
import os
import posixpath

__all__ = ["RECORD_LIMIT", "is_record", "shortened_record"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

RECORD_LIMIT = 16 << 20
"""Bytes; a longer one travels as it is."""


def is_record(path: str) -> bool:
    """Whether a path, relative to the folder that the package is in, is that of a RECORD."""
    folder, _, name = path.rpartition("/")
    return name == "RECORD" and folder.endswith(".dist-info") and "/" not in folder


def shortened_record(data: bytes, tops: Sequence[str]) -> bytes:
    """A RECORD with only its lines about these folders; the others as they are, to the byte.

    One that makes no sense is given back whole. What is shortened already stays the same.
    """
    lines = data.splitlines(keepends=True)
    inside = tuple(f"{top}/" for top in tops)
    try:
        rows = list(csv.reader(os.fsdecode(line) for line in lines))
    except csv.Error:
        return data
    if len(rows) != len(lines):  # a quoted name with a line break in it
        return data
    return b"".join(
        line for line, row in zip(lines, rows) if not row or posixpath.normpath(row[0]).startswith(inside)
    )
