"""A mount whose server is away: whoever looks into it waits."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["dead_mount"]

DETACH = 2
"""MNT_DETACH of umount2(2)."""


@contextmanager
def dead_mount(folder: Path) -> Iterator[Path]:
    """A FUSE file system that nobody serves. Who waits in it gets an error when it is left."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder.mkdir()
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        pytest.skip("needs /dev/fuse")
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    try:
        if libc.mount(b"dead", bytes(folder), b"fuse", 0, options.encode()) != 0:
            pytest.skip("may not mount here")
    except BaseException:
        os.close(device)
        raise
    try:
        yield folder
    finally:
        os.close(device)
        libc.umount2(bytes(folder), DETACH)
