"""The stand-in libnvidia-ml on hosts: the story's cards, and how a test puts them into another state."""

from __future__ import annotations

import platform
from pathlib import Path

from tests.hosts.host import Host
from tests.hosts.layout import put
from tests.nvml import STATE_PATH, StandinGpu, State

__all__ = ["CARDS", "driver", "install_library"]

KEPT = "/var/lib/standin-nvml"
"""Where the state really is: on the disk, so that it outlives a reboot and can be written from outside."""


def _cards(name: str, kind: str, count: int, memory: int, limit: float) -> tuple[StandinGpu, ...]:
    return tuple(
        StandinGpu(
            name=name,
            uuid=f"GPU-{kind}{number:03x}-0000-4000-8000-{number:012x}",
            bus=f"00000000:{0x01 + 0x20 * number:02X}:00.0",
            memory_total=memory << 20,
            power_limit=limit,
        )
        for number in range(count)
    )


A6000 = _cards("NVIDIA RTX A6000", "a6000", 2, 49140, 300)
BLACKWELL = _cards("NVIDIA RTX PRO 6000 Blackwell Server Edition", "b6000", 8, 97887, 600)
CARDS = {"ct129": A6000, "ct200": BLACKWELL, "kpro6": BLACKWELL}
"""kpro6 is the hypervisor of ct200 and sees the same eight cards."""


def install_library(host: Host, library: Path) -> None:
    """Puts the stand-in where Debian has the driver's library."""
    put(host.root, f"/usr/lib/{platform.machine()}-linux-gnu/libnvidia-ml.so.1", library.read_bytes(), 0o755)
    put(host.root, "/etc/tmpfiles.d/standin-nvml.conf", f"L+ {STATE_PATH.parent} - - - - {KEPT}\n")
    driver(host).write()


def driver(host: Host) -> State:
    """What the library on the host answers: all cards idle and well, once it is written."""
    return State(host.root / KEPT.lstrip("/") / STATE_PATH.name, CARDS[host.name])
