"""A real mount whose server never answers: a look at anything on it hangs in the kernel, state D."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["dead_mount"]

MS_NOSUID_NODEV = 6
MNT_DETACH = 2


@contextlib.contextmanager
def dead_mount(folder: Path) -> Iterator[None]:
    """Mounts a FUSE filesystem on a folder and answers none of its requests. Skips where it can't."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        server = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"a dead mount needs root and /dev/fuse: {error}")
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    where = os.fsencode(folder)
    try:
        if libc.mount(b"dead", where, b"fuse.sshfs", MS_NOSUID_NODEV, options):
            pytest.skip(f"a dead mount needs root: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            libc.umount2(where, MNT_DETACH)
    finally:
        os.close(server)
