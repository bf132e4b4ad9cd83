"""The one way in which files that others write are read: regular files only, up to a limit, never waiting.

A pipe or a device in a file's place is refused without being opened: opening alone may wait for ever (a pipe) or do
something (a watchdog, a tape). A dead mount still hangs any look, so what may lie on one belongs into a child.
"""

from __future__ import annotations

import errno
import os
import stat

__all__ = ["kind_of", "read_regular", "read_tail"]

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def read_regular(path: str, limit: int) -> bytes:
    """The first `limit` bytes of a regular file, through links. Raises OSError, with EINVAL for what is none."""
    return _read(path, limit, is_tail=False)


def read_tail(path: str, limit: int) -> bytes:
    """The last `limit` bytes of a regular file, otherwise as `read_regular`."""
    return _read(path, limit, is_tail=True)


def kind_of(mode: int) -> str:
    """What a file of this mode is, when it is none that can be read: `a FIFO`; empty for a regular one."""
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "no file")


def _read(path: str, limit: int, *, is_tail: bool) -> bytes:
    _check(os.stat(path).st_mode, path)
    fd = os.open(path, _FLAGS)
    try:
        # Another one may have taken its place.
        seen = os.fstat(fd)
        _check(seen.st_mode, path)
        if is_tail and seen.st_size > limit:
            os.lseek(fd, seen.st_size - limit, os.SEEK_SET)
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
