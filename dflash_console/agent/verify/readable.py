"""Which files of a package another user may not read."""

from __future__ import annotations

import json
import os
import select
import signal
import time

__all__ = ["find_unreadable"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from .tree import Tree

LIMIT = 10.0
"""Seconds after which nothing is known."""
MOST = 200
"""Names that are told."""


def find_unreadable(tree: Tree, prepare: Callable[[], None]) -> list[str]:
    """Folders of the tree in which nothing can be found, and files that Python may import and not read, as the user
    that a process is after `prepare`; none when that can't be told."""
    answers, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(answers)
            prepare()
            _write(told, json.dumps(_look(tree)).encode("ascii"))
        finally:
            os._exit(0)
    os.close(told)
    data = b""
    until = time.monotonic() + LIMIT
    while select.select([answers], [], [], max(0.0, until - time.monotonic()))[0]:
        more = os.read(answers, 1 << 16)
        if not more:
            break
        data += more
    os.close(answers)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        return [str(name) for name in json.loads(data)]
    except ValueError:
        return []


def _look(tree: Tree) -> list[str]:
    found = []
    folders: dict[str, bool] = {}
    for name in tree.code:
        folder = os.path.dirname(name)
        if folder not in folders:
            above = os.path.dirname(folder)
            may = os.access(f"{tree.root}/{folder}", os.R_OK | os.X_OK)
            folders[folder] = may
            if not may and folders.get(above, True):
                found.append(f"{folder or '.'}/")
        if folders[folder] and not os.access(f"{tree.root}/{name}", os.R_OK):
            found.append(name)
        if len(found) >= MOST:
            break
    return found


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
