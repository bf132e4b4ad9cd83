"""Where a path lives: mount point, kind and room of its filesystem. Asking a dead network mount may hang for
ever."""

from __future__ import annotations

import contextlib
import os

from .section import missing

__all__ = ["filesystem", "has_failed", "mount_of", "read_mounts", "why"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def filesystem(path: str, mounts: list[tuple[str, str]]) -> dict[str, Any]:
    """The model.Filesystem of a path that is there, by the table of `read_mounts`; missing(...) when it can't
    be asked."""
    try:
        room = os.statvfs(path)
        mount, kind = mount_of(os.path.realpath(path), mounts)
    except OSError as error:
        return missing(why(error), error.strerror or str(error))
    return {
        "mount": mount,
        "kind": kind,
        "total": room.f_frsize * room.f_blocks,
        "free": room.f_frsize * room.f_bavail,
    }


def read_mounts() -> list[tuple[str, str]]:
    """Mount points and filesystem kinds, in the order they were mounted; empty when the kernel does not
    say."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            return [_mount(line) for line in file]
    except (OSError, ValueError):
        return []


def has_failed(mount: str) -> bool:
    """Whether the filesystem at a mount point has met an error and takes no more writes, though it is mounted for
    writing: then neither access(2) nor statvfs(3) tells."""
    options: list[bytes] = []
    with contextlib.suppress(OSError, ValueError), open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            if _mount(line)[0] == mount:
                options = line.split()[-1].split(b",")
    return b"emergency_ro" in options or b"shutdown" in options


def mount_of(path: str, mounts: list[tuple[str, str]]) -> tuple[str, str]:
    """Mount point and kind for a real path: the longest mount point above it, the last one mounted there.

    By path, not by device number: of a btrfs subvolume the two differ.
    """
    best = ("/", "")
    for mount, kind in mounts:
        if len(mount) >= len(best[0]) and (path == mount or path.startswith(mount.rstrip("/") + "/")):
            best = (mount, kind)
    return best


def why(error: OSError) -> str:
    """The model.Reason of a failed look at a path."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return "not_found"
    return "permission" if isinstance(error, PermissionError) else "error"


def _mount(line: bytes) -> tuple[str, str]:
    """proc_pid_mountinfo(5): optional fields end with a lone dash; blanks in a path are octal escapes."""
    place, _, rest = line.partition(b" - ")
    mount = place.split(b" ")[4]
    if b"\\" in mount:
        for octal in (b"040", b"011", b"012", b"134"):
            mount = mount.replace(b"\\" + octal, bytes([int(octal, 8)]))
    return mount.decode("utf-8", "surrogateescape"), rest.split(b" ", 1)[0].decode("ascii", "replace")
