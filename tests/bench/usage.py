"""CPU time and memory of what runs on a host or here, from the kernel's own books."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["cpu_seconds", "group_cpu_seconds", "group_of", "memory"]

UNIFIED = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of processes so far, all their threads, to the nanosecond; without ended children."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(task.read_text().split()[0])
    return total / 1e9


def group_of(pid: int) -> Path:
    """The folder of a process's control group."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    path = next(line for line in lines if line.startswith("0::"))[3:]
    return next(mount / path.lstrip("/") for mount in UNIFIED if (mount / "cgroup.procs").exists())


def group_cpu_seconds(group: Path) -> float:
    """CPU time of all that ever ran in a control group, ended processes too."""
    words = (group / "cpu.stat").read_text().split()
    return int(words[words.index("usage_usec") + 1]) / 1e6


def memory(pids: Iterable[int]) -> tuple[float, float]:
    """Resident memory of processes in MB: summed up, and with what they share split up."""
    resident = split = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Rss:"):
                    resident += int(line.split()[1])
                elif line.startswith("Pss:"):
                    split += int(line.split()[1])
    return resident / 1000, split / 1000
