"""Whether folders on an overlay can be renamed: one that an image's layer holds can't, and tells so by no errno before.

The kernel's rule (fs/overlayfs, ovl_can_move) is whether the folder is of the writable layer alone. A file handle
says which layer that is; overlays give handles since Linux 6.6, told with AT_HANDLE_FID that none will be opened.
"""

from __future__ import annotations

import os

__all__ = ["layer_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_AT_FDCWD, _AT_HANDLE_FID = -100, 0x200
_HEAD, _MOST = 8, 128
"""Bytes of struct file_handle before the handle, and of a handle (name_to_handle_at(2), MAX_HANDLE_SZ)."""
_OVERLAY_TYPE = 0xF8
_MAGIC_AT, _FLAGS_AT, _MAGIC, _IS_UPPER = 4, 6, 0xFB, 4
"""Of struct ovl_fh (fs/overlayfs/overlayfs.h): where its magic number and its flags are, and what they hold."""


def layer_of(folders: list[str]) -> str:
    """`own` when all these folders of an overlay can be renamed, `lower` when one can't, `unknown` when the kernel does
    not say. What is not there counts for nothing."""
    there = [folder for folder in folders if os.path.isdir(folder)]
    if not there or _follows_renames(there[0]):
        return "own"
    found = {_layer(folder) for folder in there}
    return next(word for word in ("lower", "unknown", "own") if word in found)


def _layer(folder: str) -> str:
    handle = _handle_of(folder)
    if len(handle) <= _FLAGS_AT or handle[_MAGIC_AT] != _MAGIC:
        return "unknown"
    return "own" if handle[_FLAGS_AT] & _IS_UPPER else "lower"


def _handle_of(folder: str) -> bytes:
    """An overlay's handle; empty when there is none."""
    import ctypes

    libc: Any = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "name_to_handle_at"):
        return b""
    data = ctypes.create_string_buffer(_HEAD + _MOST)
    size, kind = ctypes.c_uint32.from_buffer(data, 0), ctypes.c_int32.from_buffer(data, 4)
    size.value = _MOST
    mount = ctypes.c_int()
    name = os.fsencode(folder)
    if libc.name_to_handle_at(_AT_FDCWD, name, data, ctypes.byref(mount), _AT_HANDLE_FID) != 0:
        return b""
    return data.raw[_HEAD : _HEAD + size.value] if kind.value == _OVERLAY_TYPE else b""


def _follows_renames(folder: str) -> bool:
    """Whether the overlay was mounted so that it renames folders of any layer."""
    number = os.stat(folder).st_dev
    device = f"{os.major(number)}:{os.minor(number)}".encode()
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            return any(line.split(b" ", 3)[2] == device and b"redirect_dir=on" in line for line in file)
    except OSError:
        return False
