"""A run's own place among the runs on this machine: a number, and from it a folder, a bridge and a network.

Whoever holds the lock of a number owns all that carries it; the kernel lets go of the lock when the owner
dies, however it dies. So remains are told from a run that lives without asking for process ids.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path

from tests.hosts import cgroup
from tests.hosts.commands import sh
from tests.waiting import until_sync

__all__ = ["Slot"]

BASE = Path("/run/dflash-console-hosts")
NUMBERS = range(100, 200)


class Slot:
    """One number, held until `release`."""

    def __init__(self, number: int, lock: int) -> None:
        self.number = number
        self.folder = BASE / str(number)
        self.bridge = f"br-dfc{number}"
        self.network = f"198.18.{number}"
        """The first three parts of every address; the bridge itself is `.1`."""
        self._lock = lock

    @classmethod
    def claim(cls) -> Slot:
        """Clears what ended runs left behind, then takes a number that nobody holds."""
        BASE.mkdir(parents=True, exist_ok=True)
        for remains in [int(entry.name) for entry in BASE.iterdir() if entry.name.isdigit()]:
            slot = cls._try(remains)
            if slot:
                slot.release()
        used = sh("ip", "-4", "-o", "addr")
        for number in NUMBERS:
            slot = cls._try(number)
            if slot and f"inet {slot.network}." not in used:
                slot._begin()
                return slot
            if slot:
                slot.release()
        raise RuntimeError(f"no free network: every number from {NUMBERS[0]} to {NUMBERS[-1]} is held")

    @classmethod
    def _try(cls, number: int) -> Slot | None:
        lock = os.open(BASE / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return cls(number, lock)

    def _begin(self) -> None:
        self._clear()
        self.folder.mkdir(mode=0o700)
        sh("ip", "link", "add", self.bridge, "type", "bridge")
        sh("ip", "addr", "add", f"{self.network}.1/24", "dev", self.bridge)
        sh("ip", "link", "set", self.bridge, "up")

    def release(self) -> None:
        """Ends and removes all that carries the number, and lets go of it."""
        if self._lock >= 0:
            self._clear()
            os.close(self._lock)
            self._lock = -1

    def _clear(self) -> None:
        until_sync(
            lambda: cgroup.remove(f"dfc{self.number}-*"), 30, f"no process of run {self.number} is left"
        )
        for mount in reversed(_mounts(self.folder)):
            sh("umount", mount, check=False)
        for mount in reversed(_mounts(self.folder)):
            sh("umount", "--lazy", mount)
        for port in json.loads(sh("ip", "-j", "link", "show", "master", self.bridge, check=False) or "[]"):
            sh("ip", "link", "del", port["ifname"], check=False)
        sh("ip", "link", "del", self.bridge, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def _mounts(folder: Path) -> list[str]:
    """Mount points under a folder, in the order in which they were mounted."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if point.startswith(f"{folder}/")]
