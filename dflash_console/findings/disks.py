"""Configured paths, and the room around them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from dflash_console.findings.picture import Picture
from dflash_console.model import Filesystem, Finding, Level, Missing

__all__ = ["full_filesystems", "missing_paths"]

NEARLY_FULL = 90
FULL = 97
ALWAYS_FULL = ("squashfs", "iso9660", "erofs", "udf")
"""Read-only images; they have no free space by nature."""


def missing_paths(picture: Picture) -> Iterator[Finding]:
    """A configured path that is not there or can't be looked at."""
    for path in picture.snapshot.paths:
        if isinstance(path.kind, Missing):
            if path.kind.missing == "not_found":
                yield Finding("path_missing", "warning", path.path, "is not there; the config names it")
            else:
                text = f"can't be looked at: {path.kind.detail or path.kind.missing}"
                yield Finding("path_unreadable", "warning", path.path, text)


def full_filesystems(picture: Picture) -> Iterator[Finding]:
    """Filesystems of /, /dev/shm and the configured paths with little room left; each once."""
    snapshot = picture.snapshot
    found = [snapshot.host.root, snapshot.host.shm, *(path.filesystem for path in snapshot.paths)]
    disks = {disk.mount: disk for disk in found if isinstance(disk, Filesystem)}
    for disk in disks.values():
        if disk.total <= 0 or disk.kind in ALWAYS_FULL:
            continue
        used = 100 - 100 * disk.free / disk.total
        if used > NEARLY_FULL:
            level: Level = "critical" if used > FULL else "warning"
            text = f"{used:.0f} % full, {disk.free / (1 << 30):.1f} GiB free"
            yield Finding("filesystem_full", level, disk.mount, text, step_for(disk))


def step_for(disk: Filesystem) -> str:
    """A command that shows what takes the room."""
    return f"du -xh -d1 {shlex.quote(disk.mount)} | sort -h | tail"
