"""The machine itself: name, boot, load, memory, its root filesystem and shared memory."""

from __future__ import annotations

import os
import sys
import time

from .mounts import filesystem, read_mounts
from .procs import boot_id
from .regular import read_regular
from .section import Section

__all__ = ["HostSection", "system_name"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A tenth less than meant, so that a tick that comes a little early still counts.
QUICK = 1.9
"""Seconds between two looks at load, memory and uptime."""
SLOW = 9.9
"""Seconds between two looks at all the rest."""
FILE_LIMIT = 1 << 20


class HostSection(Section):
    """The HostInfo of the machine that the agent runs on."""

    name = "host"

    def __init__(self) -> None:
        self._quick_at = 0.0
        self._slow_at = 0.0
        self._slow: dict[str, Any] = {}

    def refresh(self) -> None:
        self._quick_at = self._slow_at = 0.0

    def tick(self, now: float) -> None:
        if now < self._quick_at:
            return
        if now >= self._slow_at:
            self._slow = _slow_facts()
            self._slow_at = now + SLOW
        self.value = {**self._slow, **_quick_facts()}
        self._quick_at = now + QUICK


def system_name(text: str) -> str:
    """PRETTY_NAME of /etc/os-release (os-release(5)), else its NAME; empty when neither is there."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key in ("PRETTY_NAME", "NAME"):
            found[key] = value.strip().strip("\"'")
    return found.get("PRETTY_NAME") or found.get("NAME", "")


def _quick_facts() -> dict[str, Any]:
    memory = _read("/proc/meminfo")
    load = _read("/proc/loadavg").split()[:3]
    return {
        "uptime": round(time.clock_gettime(time.CLOCK_BOOTTIME), 1),
        "load": [float(part) for part in load] if len(load) == 3 else list(os.getloadavg()),
        "memory_total": _kilobytes(memory, "MemTotal:"),
        # Kernels before 3.14 do not estimate what is available.
        "memory_available": _kilobytes(memory, "MemAvailable:") or _kilobytes(memory, "MemFree:"),
    }


def _slow_facts() -> dict[str, Any]:
    system = os.uname()
    mounts = read_mounts()
    return {
        "hostname": _clean(system.nodename),
        "boot_id": boot_id(),
        "cpus": len(os.sched_getaffinity(0)),
        "root": filesystem("/", mounts),
        "shm": filesystem("/dev/shm", mounts),
        "system": system_name(_file("/etc/os-release") or _file("/usr/lib/os-release")),
        "kernel": _clean(system.release),
        "python": "{}.{}.{}".format(*sys.version_info),
        "user": _own_name(),
        "home": _clean(os.path.expanduser("~")),
    }


def _own_name() -> str:
    """The user of the agent, without a question to a directory service, which may be slow to answer."""
    uid = os.getuid()
    for line in _file("/etc/passwd").splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2] == str(uid):
            return fields[0]
    return _clean(os.environ.get("LOGNAME") or str(uid))


def _file(path: str) -> str:
    """The text of a file that someone writes, empty when it can't be read."""
    try:
        return read_regular(path, FILE_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""


def _read(path: str) -> str:
    """The text of a small file of the kernel's, empty when it can't be read; without the layers of open(), which
    cost more."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 1 << 16).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def _kilobytes(text: str, key: str) -> int:
    at = text.find(key)
    return int(text[at + len(key) :].split(None, 1)[0]) * 1024 if at >= 0 else 0


def _clean(text: str) -> str:
    return os.fsencode(text).decode("utf-8", "replace")
