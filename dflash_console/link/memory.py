"""Keeps the console small while files pass through it: what is freed goes back to the system."""

from __future__ import annotations

import ctypes
import functools

__all__ = ["give_back_large_pieces"]

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""malloc.h of glibc."""
LARGE = 32 << 10
"""Bytes: packets and blocks are as large. glibc begins with 128 KiB and raises that to whatever size is freed, up to
32 MiB (mallopt(3)); what passes through then comes from a heap that is left full of holes: 90 MB while 20 are in
use."""


@functools.cache
def give_back_large_pieces() -> None:
    """From now on a piece of memory of 32 KiB or more returns to the system once it is freed, on glibc; elsewhere
    nothing is done."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(M_MMAP_THRESHOLD, LARGE)
    # It was raised along with the other one.
    mallopt(M_TRIM_THRESHOLD, LARGE)
