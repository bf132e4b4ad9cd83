"""The C library of this machine."""

from __future__ import annotations

import os

__all__ = ["host_glibc"]


def host_glibc() -> tuple[int, ...]:
    """This machine's glibc, `(2, 36)`; empty when it has another C library."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ()
    return tuple(int(part) for part in text.rpartition(" ")[2].split(".") if part.isdigit())
