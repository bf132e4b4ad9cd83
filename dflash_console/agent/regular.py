"""The one way in which files that others write are read: regular files only, up to a limit, never waiting.

A pipe or a device in a file's place is refused without being opened: opening alone may wait for ever (a pipe) or do
something (a watchdog, a tape). A dead mount still hangs any look, so what may lie on one belongs into a child.
"""

from __future__ import annotations

import errno
import os
import stat

__all__ = ["read_regular"]

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def read_regular(path: str, limit: int) -> bytes:
    """The first `limit` bytes of a regular file, through links. Raises OSError, with EINVAL for what is none."""
    _check(os.stat(path).st_mode, path)
    fd = os.open(path, _FLAGS)
    try:
        # Another one may have taken its place.
        _check(os.fstat(fd).st_mode, path)
        parts: list[bytes] = []
        while limit > 0:
            part = os.read(fd, min(limit, 1 << 20))
            if not part:
                break
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def _check(mode: int, path: str) -> None:
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
