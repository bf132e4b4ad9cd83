"""Processes that are killed in the middle of a copy, at the n-th of its steps."""

from __future__ import annotations

import errno
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

from dflash_console.agent.copy import disk, place, target

__all__ = ["FakeImporting", "force_copied", "force_two_step", "killed_at"]


class FakeImporting:
    """An import check that always passes: to start an interpreter at each of a hundred deaths takes too long."""

    def __init__(self, *about: object) -> None:
        self.about = about

    def start(self, folder: str) -> None:
        self.folder = folder

    def finish(self, *_: object) -> dict[str, Any]:
        return {"name": "import", "state": "pass", "detail": "", "evidence": []}

    def stop(self) -> None:
        pass


class FakeWarm:
    """None that gets ready: for the same reason."""

    def __init__(self, *about: object) -> None:
        self.about = about

    def in_place(self, *_: object) -> None:
        """Nothing."""

    def stop(self) -> None:
        pass


def force_two_step() -> None:
    """Have this process's filesystem know no flags of renameat2, as NFS does."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    setattr(disk, "renameat2", refuse)  # noqa: B010 - of a process that ends with it


def force_copied(fixed: set[int]) -> None:
    """Have the folders with these inodes not be renamed, as those of an image's layer."""
    flags, plain = disk.renameat2, disk.rename

    def check(*things: tuple[int, str]) -> None:
        if any(disk.inode_at(*thing) in fixed for thing in things):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    def renameat2(from_folder: int, name: str, to_folder: int, new_name: str, flag: int) -> None:
        check((from_folder, name), *([(to_folder, new_name)] if flag == 2 else []))
        flags(from_folder, name, to_folder, new_name, flag)

    def rename(from_folder: int, name: str, to_folder: int, new_name: str) -> None:
        check((from_folder, name))
        plain(from_folder, name, to_folder, new_name)

    setattr(disk, "renameat2", renameat2)  # noqa: B010
    setattr(disk, "rename", rename)  # noqa: B010


def killed_at(number: int, work: Callable[[], object], prepare: Callable[[], None] = lambda: None) -> str:
    """Run `work` in a process that is killed at its step `number` (from 0); the step's name.

    Empty when it came to its end before. Fails when it raised.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            count = 0

            def watch(name: str) -> None:
                nonlocal count
                if count == number:
                    os.write(writing, name.encode())
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1

            setattr(target, "Importing", FakeImporting)  # noqa: B010
            setattr(target, "Warm", FakeWarm)  # noqa: B010
            prepare()
            place.watchers[:] = [watch]
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - the top of a process
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, "rb") as pipe:
        name = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or status == 0, f"it raised, at step {number}"
    return name if os.WIFSIGNALED(status) else ""
