"""Whose a new tree is to be, and what it allows to others: as the one that it replaces, else as site-packages."""

from __future__ import annotations

import contextlib
import os
import stat

from .receive import Modes

__all__ = ["Pattern", "pattern_of"]

LABELS = ("security.selinux", "system.posix_acl_access", "system.posix_acl_default")


class Pattern:
    """Owner, modes and labels."""

    def __init__(self, owner: tuple[int, int], modes: Modes) -> None:
        self.owner = owner
        """Numbers of user and group."""
        self.modes = modes
        self.of_files: dict[str, bytes] = {}
        """Extended attributes: SELinux label and access lists."""
        self.of_folders: dict[str, bytes] = {}
        self.problems: set[str] = set()
        """What could not be given to the new tree."""

    def has_file(self, seen: os.stat_result) -> bool:
        """Whether there is nothing to give to a file."""
        return (seen.st_uid, seen.st_gid) == self.owner and not self.of_files

    def give(self, fd: int, is_folder: bool) -> None:
        """Make an open file or folder like that, as far as this user may."""
        seen = os.fstat(fd)
        owner = (seen.st_uid, seen.st_gid)
        if owner != self.owner:
            mode = stat.S_IMODE(seen.st_mode)
            try:
                os.fchown(fd, *self.owner)
            except OSError as error:
                self.problems.add(
                    f"it belongs to {owner[0]}:{owner[1]}, not to {_pair(self.owner)}: {error.strerror}"
                )
            os.fchmod(fd, mode)
        for name, value in (self.of_folders if is_folder else self.of_files).items():
            if _attribute(fd, name) != value:
                self._set(fd, name, value)

    def _set(self, fd: int, name: str, value: bytes) -> None:
        try:
            os.setxattr(fd, name, value)
        except OSError as error:
            self.problems.add(f"{name} can't be set: {error.strerror}")

    def give_link(self, stage: int, path: str) -> None:
        """Have a link belong to the same."""
        with contextlib.suppress(OSError):
            os.chown(path, *self.owner, dir_fd=stage, follow_symlinks=False)


def pattern_of(site: int, package: str) -> Pattern:
    """After the package in a site-packages folder, or that folder itself. Raises OSError."""
    try:
        folder, fd = _folder(site, package)
    except OSError:
        folder, fd = os.fstat(site), os.dup(site)
    try:
        mode = stat.S_IMODE(folder.st_mode) & 0o2775 | 0o700
        pattern = Pattern((folder.st_uid, folder.st_gid), Modes(mode & 0o664 | 0o600, mode))
        pattern.of_folders = _attributes(fd)
        with contextlib.suppress(OSError):
            _like_file(pattern, fd)
        return pattern
    finally:
        os.close(fd)


def _like_file(pattern: Pattern, folder: int) -> None:
    fd = os.open("__init__.py", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        seen = os.fstat(fd)
        if stat.S_ISREG(seen.st_mode):
            pattern.modes = Modes(stat.S_IMODE(seen.st_mode) & 0o664 | 0o600, pattern.modes.folder)
            pattern.of_files = _attributes(fd)
    finally:
        os.close(fd)


def _folder(site: int, package: str) -> tuple[os.stat_result, int]:
    fd = os.open(package, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=site)
    return os.fstat(fd), fd


def _attributes(fd: int) -> dict[str, bytes]:
    found = ((name, _attribute(fd, name)) for name in LABELS)
    return {name: value for name, value in found if value is not None}


def _attribute(fd: int, name: str) -> bytes | None:
    try:
        return os.getxattr(fd, name)
    except OSError:
        return None


def _pair(owner: tuple[int, int]) -> str:
    return f"{owner[0]}:{owner[1]}"
