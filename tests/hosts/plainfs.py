"""A filesystem by FUSE that passes all through to another folder, and knows no flags of renameat2.

A program for a host's own Python, to be run there as root: the other folder, and where it is mounted. It says
`mounted`, and ends when it is unmounted. The numbers are those of linux/fuse.h, protocol 7.31.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys

__all__ = ["serve"]

HEADER = struct.Struct("<IIQQIIIHH")
REPLY = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<6Q10I")
SETATTR = struct.Struct("<IIQQQQQQ8I")
WRITTEN = struct.Struct("<QQIIQII")
LIMIT = 1 << 20
FOREVER = 3600
"""Seconds for which the kernel may remember what it was told: all changes come by it."""
SILENT = (2, 36, 42)
"""FORGET, INTERRUPT, BATCH_FORGET: these are not answered."""


class Passed:
    """One mounted folder; a node is known by its inode number, and found by its parent and name."""

    def __init__(self, folder: str) -> None:
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._nodes: dict[int, tuple[int, bytes]] = {}
        self._calls = {
            1: self._lookup,
            3: self._getattr,
            4: self._setattr,
            5: lambda node, data: os.readlink(self._path(node)),
            6: self._symlink,
            9: self._mkdir,
            10: lambda node, data: os.unlink(self._path(node, data[:-1])),
            11: lambda node, data: os.rmdir(self._path(node, data[:-1])),
            12: self._rename,
            14: self._open,
            15: self._read,
            16: self._write,
            17: self._statfs,
            18: lambda node, data: os.close(struct.unpack_from("<Q", data)[0]),
            20: lambda node, data: os.fsync(struct.unpack_from("<Q", data)[0]),
            26: self._init,
            27: self._open,
            28: self._readdir,
            29: lambda node, data: os.close(struct.unpack_from("<Q", data)[0]),
            30: lambda node, data: os.fsync(struct.unpack_from("<Q", data)[0]),
            35: self._create,
        }

    def answer(self, message: bytes) -> bytes | None:
        """What the kernel gets for a request; ENOSYS for all that is not known here, RENAME2 among it."""
        _, call, number, node, *_ = HEADER.unpack_from(message)
        if call in SILENT:
            return None
        try:
            if call not in self._calls:
                raise OSError(errno.ENOSYS, "unknown")
            found = self._calls[call](node, message[HEADER.size :]) or b""
        except OSError as error:
            return REPLY.pack(REPLY.size, -(error.errno or errno.EIO), number)
        return REPLY.pack(REPLY.size + len(found), 0, number) + found

    # ---- nodes

    def _path(self, node: int, name: bytes = b"") -> bytes:
        parts = [name] if name else []
        while node != 1:
            node, part = self._nodes[node]
            parts.append(part)
        return b"/".join([b"/proc/self/fd/%d" % self._root, *reversed(parts)])

    def _stat(self, node: int) -> os.stat_result:
        return os.fstat(self._root) if node == 1 else os.lstat(self._path(node))

    def _entry(self, parent: int, name: bytes) -> bytes:
        seen = os.lstat(self._path(parent, name))
        self._nodes[seen.st_ino] = (parent, name)
        return struct.pack("<4Q2I", seen.st_ino, 0, FOREVER, FOREVER, 0, 0) + _attributes(seen)

    def _lookup(self, node: int, data: bytes) -> bytes:
        return self._entry(node, data[:-1])

    def _getattr(self, node: int, data: bytes) -> bytes:
        flags, _, handle = struct.unpack_from("<IIQ", data)
        seen = os.fstat(handle) if flags & 1 else self._stat(node)
        return struct.pack("<QII", FOREVER, 0, 0) + _attributes(seen)

    def _setattr(self, node: int, data: bytes) -> bytes:
        valid, _, handle, size, _, at, mt, _, at_ns, mt_ns, _, mode, _, uid, gid, _ = SETATTR.unpack(data)
        path = self._path(node)
        if valid & 1:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & 6:
            os.lchown(path, uid if valid & 2 else -1, gid if valid & 4 else -1)
        if valid & 8:
            os.truncate(handle if valid & 64 else path, size)
        if valid & 48:
            before = os.lstat(path)
            access = at * 10**9 + at_ns if valid & 16 and not valid & 128 else before.st_atime_ns
            changed = mt * 10**9 + mt_ns if valid & 32 and not valid & 256 else before.st_mtime_ns
            os.utime(path, ns=(access, changed), follow_symlinks=False)
        return self._getattr(node, struct.pack("<IIQ", valid >> 6 & 1, 0, handle))

    def _symlink(self, node: int, data: bytes) -> bytes:
        name, target = data[:-1].split(b"\0")
        os.symlink(target, self._path(node, name))
        return self._entry(node, name)

    def _mkdir(self, node: int, data: bytes) -> bytes:
        mode, _ = struct.unpack_from("<II", data)
        os.mkdir(self._path(node, data[8:-1]), mode)
        return self._entry(node, data[8:-1])

    def _rename(self, node: int, data: bytes) -> bytes:
        (folder,) = struct.unpack_from("<Q", data)
        old, new = data[8:-1].split(b"\0")
        os.rename(self._path(node, old), self._path(folder, new))
        return self._entry(folder, new)[:0]

    # ---- files

    def _open(self, node: int, data: bytes) -> bytes:
        (flags,) = struct.unpack_from("<I", data)
        path = b"/proc/self/fd/%d/." % self._root if node == 1 else self._path(node)
        return struct.pack("<QII", os.open(path, flags & ~os.O_NOFOLLOW), 0, 0)

    def _create(self, node: int, data: bytes) -> bytes:
        flags, mode, _, _ = struct.unpack_from("<4I", data)
        handle = os.open(self._path(node, data[16:-1]), flags | os.O_CREAT, mode)
        return self._entry(node, data[16:-1]) + struct.pack("<QII", handle, 0, 0)

    def _read(self, node: int, data: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", data)
        return os.pread(handle, size, offset)

    def _write(self, node: int, data: bytes) -> bytes:
        handle, offset, size, *_ = WRITTEN.unpack_from(data)
        return struct.pack("<II", os.pwrite(handle, data[WRITTEN.size : WRITTEN.size + size], offset), 0)

    def _readdir(self, node: int, data: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", data)
        parts, room = [], size
        for at, name in enumerate(sorted(os.listdir(handle))[offset:], offset + 1):
            raw = os.fsencode(name)
            line = struct.pack("<QQII", 1, at, len(raw), 0) + raw
            line += b"\0" * (-len(line) % 8)
            if len(line) > room:
                break
            parts.append(line)
            room -= len(line)
        return b"".join(parts)

    def _statfs(self, node: int, data: bytes) -> bytes:
        room = os.fstatvfs(self._root)
        counts = (room.f_blocks, room.f_bfree, room.f_bavail, room.f_files, room.f_ffree)
        return struct.pack("<5Q4I24x", *counts, room.f_bsize, room.f_namemax, room.f_frsize, 0)

    def _init(self, node: int, data: bytes) -> bytes:
        big_writes, many_pages = 1 << 5, 1 << 22
        pages = LIMIT // 4096
        return struct.pack(
            "<4IHHIIHHI28x", 7, 31, LIMIT, big_writes | many_pages, 16, 12, LIMIT, 1, pages, 0, 0
        )


def _attributes(seen: os.stat_result) -> bytes:
    times = [seen.st_atime_ns, seen.st_mtime_ns, seen.st_ctime_ns]
    return ATTRIBUTES.pack(
        seen.st_ino,
        seen.st_size,
        seen.st_blocks,
        *(time // 10**9 for time in times),
        *(time % 10**9 for time in times),
        seen.st_mode,
        seen.st_nlink,
        seen.st_uid,
        seen.st_gid,
        0,
        4096,
        0,
    )


def serve(below: str, folder: str) -> None:
    """Mounts the filesystem on a folder and answers until it is unmounted."""
    os.umask(0)
    passed = Passed(below)
    device = "/dev/fuse-of-its-own"
    os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(10, 229))
    wire = os.open(device, os.O_RDWR)
    os.unlink(device)
    options = f"fd={wire},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"plain", os.fsencode(folder), b"fuse.plain", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "can't be mounted", folder)
    os.write(1, b"mounted\n")
    while True:
        try:
            message = os.read(wire, LIMIT + 4096)
        except OSError as error:
            if error.errno in (errno.EINTR, errno.ENOENT):  # the request was taken back
                continue
            return
        answer = passed.answer(message)
        if answer is not None:
            os.write(wire, answer)


if __name__ == "__main__":
    serve(*sys.argv[1:])
