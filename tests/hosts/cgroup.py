"""A control group of its own for each host: two hosts' systemds never manage the same tree, and all that a
host runs can be found and ended, also when the test run that booted it is long gone."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

__all__ = ["enter", "remove"]

MOUNT = Path("/sys/fs/cgroup")


def _hierarchies() -> Iterator[Path]:
    """Those that systemd manages: the unified one, and the named one of version 1 where there is one."""
    for folder in (MOUNT, MOUNT / "unified", MOUNT / "systemd"):
        if (folder / "cgroup.procs").exists():
            yield folder


def enter(name: str) -> str:
    """The shell words that make the group and move the shell into it."""
    lines = []
    for hierarchy in _hierarchies():
        group = shlex.quote(str(hierarchy / name))
        lines.append(f"mkdir -p {group} && echo $$ > {group}/cgroup.procs")
    return " && ".join(lines)


def remove(pattern: str) -> bool:
    """Kills all that runs in the groups that match and removes them; whether none is left.

    Processes take a moment to end: call it until it says so.
    """
    tops = [top for hierarchy in _hierarchies() for top in hierarchy.glob(pattern)]
    for top in tops:
        # A walk that does not mind groups that vanish under it; the innermost first.
        for group in sorted((Path(folder) for folder, _, _ in os.walk(top)), reverse=True):
            with contextlib.suppress(OSError):
                for pid in (group / "cgroup.procs").read_text().split():
                    if pid != "0":  # one that this machine can not see
                        os.kill(int(pid), signal.SIGKILL)
                group.rmdir()
    return not any(top.exists() for top in tops)
