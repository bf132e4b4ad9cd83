"""A whole copy of a folder, proved and on the disk before it returns: for one that can't be renamed."""

from __future__ import annotations

import os
import stat

from . import disk
from .place import step, write_all
from .receive import create
from .survey import survey

__all__ = ["duplicate"]


def duplicate(source: int, name: str, target: int) -> None:
    """Copy the thing `name` from one folder into another, with owner, modes, times and labels. Raises OSError."""
    seen = os.stat(name, dir_fd=source, follow_symlinks=False)
    _copy(source, target, name, seen)
    before = [(line[0], line[1], line[6]) for line in survey(source, [name])]
    step(f"compare copy of {name}")
    if before != [(line[0], line[1], line[6]) for line in survey(target, [name])]:
        raise OSError(5, "the copy set aside is not as the original: somebody writes to it", name)
    step(f"sync copy of {name}")
    disk.sync_filesystem(target)


def _copy(source: int, target: int, name: str, seen: os.stat_result) -> None:
    if stat.S_ISDIR(seen.st_mode):
        os.mkdir(name, 0o700, dir_fd=target)
        one, other = disk.open_folder(name, source), disk.open_folder(name, target)
        try:
            with os.scandir(one) as entries:
                found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
            for child, status in found:
                _copy(one, other, child, status)
            _dress(one, other, seen)
        finally:
            os.close(one)
            os.close(other)
    elif stat.S_ISLNK(seen.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        os.chown(name, seen.st_uid, seen.st_gid, dir_fd=target, follow_symlinks=False)
    elif stat.S_ISREG(seen.st_mode):
        step(f"copy file {name}")
        one = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source)
        other = create(target, name, 0o600)
        try:
            while True:
                data = os.read(one, disk.BLOCK)
                if not data:
                    break
                write_all(other, data)
            _dress(one, other, seen)
        finally:
            os.close(one)
            os.close(other)


def _dress(source: int, target: int, seen: os.stat_result) -> None:
    now = os.fstat(target)
    if (now.st_uid, now.st_gid) != (seen.st_uid, seen.st_gid):
        os.fchown(target, seen.st_uid, seen.st_gid)
    os.fchmod(target, stat.S_IMODE(seen.st_mode))
    try:
        names = os.listxattr(source)
    except OSError:
        names = []
    for name in names:
        if name.startswith(("security.selinux", "system.posix_acl", "user.")):
            os.setxattr(target, name, os.getxattr(source, name))
    os.utime(target, ns=(seen.st_atime_ns, seen.st_mtime_ns))
