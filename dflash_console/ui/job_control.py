"""Being stopped and continued by a shell, as Ctrl+Z and `fg` do it (POSIX, general terminal interface)."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["has_job_control", "is_in_foreground"]


def has_job_control() -> bool:
    """Whether a stopped process group would be noticed by a shell: it is not orphaned, in POSIX' words.

    Somebody outside the group, in the same session, has to be the parent of one in it. A console that a
    terminal, sshd or tmux started as its only program has nobody.
    """
    session, group, pid = os.getsid(0), os.getpgrp(), os.getppid()
    while pid > 0:
        try:
            if os.getsid(pid) != session:
                return False
            if os.getpgid(pid) != group:
                return True
            pid = _parent(pid)
        except (OSError, ValueError):
            return True  # not to be told here, and a kernel stops no orphaned group
    return False


def _parent(pid: int) -> int:
    """The parent of a process. Raises OSError where there is no /proc."""
    return int(Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])


def is_in_foreground(terminal: int) -> bool:
    """Whether the terminal is this group's to use; also where nobody shares it out."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return True
