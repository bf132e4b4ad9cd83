"""The few calls on files that a copy is made of, by descriptor of the folder: what is renamed, removed, hashed."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys

__all__ = [
    "BLOCK",
    "UNSUPPORTED",
    "exchange",
    "hash_of",
    "inode_at",
    "move",
    "open_folder",
    "path_of",
    "remove",
    "spread",
    "sync_filesystem",
    "sync_folder",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Place = tuple[int, str]

BLOCK = 1 << 20
"""Bytes that are read at once."""
UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""What a filesystem answers that knows no flags of renameat2 (NFS, 9p, FUSE)."""
_GET_FLAGS, _SET_FLAGS, _TOPDIR = 0x80086601, 0x40086602, 0x00020000
_NOREPLACE, _EXCHANGE = 1, 2
_NUMBERS = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}
"""Of renameat2, for a libc without it (glibc before 2.28)."""
_libc: Any = None


def _load() -> Any:
    global _libc
    if _libc is None:
        import ctypes

        _libc = ctypes.CDLL(None, use_errno=True)
    return _libc


def renameat2(from_folder: int, name: str, to_folder: int, new_name: str, flags: int) -> None:
    """renameat2(2). Raises OSError."""
    import ctypes

    libc = _load()
    words = (from_folder, os.fsencode(name), to_folder, os.fsencode(new_name))
    if hasattr(libc, "renameat2"):
        result = libc.renameat2(*words, flags)
    else:
        number = _NUMBERS.get(os.uname().machine)
        if number is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), name)
        result = libc.syscall(number, *words, flags)
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def rename(from_folder: int, name: str, to_folder: int, new_name: str) -> None:
    """rename(2). Raises OSError."""
    os.rename(name, new_name, src_dir_fd=from_folder, dst_dir_fd=to_folder)


def exchange(one: Place, other: Place) -> None:
    """Have two things change places in one step. Raises OSError, one of UNSUPPORTED where that can't be."""
    renameat2(*one, *other, _EXCHANGE)


def move(source: Place, target: Place) -> None:
    """Rename to where nothing is. Raises OSError, FileExistsError when something is there."""
    try:
        renameat2(*source, *target, _NOREPLACE)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        if inode_at(*target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target[1]) from None
        rename(*source, *target)


def inode_at(folder: int, name: str) -> int:
    """The number of what is there, be it a link; 0 for nothing. Raises OSError."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return 0


def open_folder(path: str, folder: int | None = None) -> int:
    """A descriptor of a folder that is no link. Raises OSError (ENOTDIR or ELOOP for others)."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, dir_fd=folder)


def remove(folder: int, name: str) -> None:
    """Remove a file, a link or a whole folder, however deep, following nothing; what is not there is removed.

    Raises OSError.
    """
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EPERM, errno.EACCES):
            raise
        if not _is_folder(folder, name):
            raise
    else:
        return
    _empty(_open_to_remove(folder, name))
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(name, dir_fd=folder)


def _empty(here: int) -> None:
    """Remove all that is in a folder, and close it. One descriptor and no recursion: a tree may be deeper than both."""
    way = [(_identity(here), _remove_files(here))]
    """Of each folder from the first one to `here`: what it is, and the folders in it."""
    try:
        while True:
            waiting = way[-1][1]
            if waiting:
                try:
                    inside = _open_to_remove(here, waiting[-1])
                except FileNotFoundError:
                    waiting.pop()
                    continue
                here = _instead_of(here, inside)
                way.append((_identity(here), _remove_files(here)))
                continue
            way.pop()
            if not way:
                return
            here = _instead_of(here, os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here))
            identity, waiting = way[-1]
            if _identity(here) != identity:
                raise OSError(errno.ESTALE, "moved by somebody else while it was removed", waiting[-1])
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(waiting.pop(), dir_fd=here)
    finally:
        os.close(here)


def _identity(folder: int) -> tuple[int, int]:
    seen = os.fstat(folder)
    return seen.st_dev, seen.st_ino


def _instead_of(old: int, new: int) -> int:
    os.close(old)
    return new


def _remove_files(folder: int) -> list[str]:
    """Remove what is no folder; the names of the folders."""
    with os.scandir(folder) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in names:
        if not is_folder:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in names if is_folder]


def _is_folder(folder: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def _open_to_remove(folder: int, name: str) -> int:
    """Also one that its mode forbids even its owner to change."""
    try:
        fd = open_folder(name, folder)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=folder)
        fd = open_folder(name, folder)
    if os.fstat(fd).st_mode & 0o300 != 0o300:
        with contextlib.suppress(OSError):
            os.fchmod(fd, 0o700)
    return fd


def path_of(folder: int) -> str:
    """Where an open folder is now, for a process that can't be given the descriptor; empty where that can't be told."""
    try:
        path = os.readlink(f"/proc/self/fd/{folder}")
        there, here = os.stat(path), os.fstat(folder)
    except OSError:
        return ""
    return path if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino) else ""


def spread(folder: int) -> None:
    """Have each folder made in this one lie in a place of its own, where the filesystem knows that (chattr(1): T).

    ext4 makes no file out of one that was removed minutes ago, and looks at all of these for each new one: where a
    tree was removed, the next would take ten times as long.
    """
    import fcntl

    flags = bytearray(8)
    with contextlib.suppress(OSError):
        fcntl.ioctl(folder, _GET_FLAGS, flags)
        number = int.from_bytes(
            flags[:4], sys.byteorder
        )  # the kernel's are an int, whatever the call's number says
        if not number & _TOPDIR:
            fcntl.ioctl(folder, _SET_FLAGS, (number | _TOPDIR).to_bytes(4, sys.byteorder) + bytes(4))


def sync_folder(fd: int) -> None:
    """fsync of a folder, so that what was renamed in it stays. Raises OSError."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a filesystem that keeps folders otherwise
            raise


def sync_filesystem(fd: int) -> None:
    """syncfs(2): all that was written on the filesystem is on its disk. Raises OSError."""
    import ctypes

    libc = _load()
    if not hasattr(libc, "syncfs"):
        os.sync()
    elif libc.syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def hash_of(fd: int) -> tuple[str, int]:
    """sha256 and number of the bytes from the descriptor's position on. Raises OSError."""
    from hashlib import sha256

    hashed, size = sha256(), 0
    while True:
        data = os.read(fd, BLOCK)
        if not data:
            return hashed.hexdigest(), size
        hashed.update(data)
        size += len(data)
