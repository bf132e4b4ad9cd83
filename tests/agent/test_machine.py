"""The host section agrees with what the machine says of itself."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped]
import pytest

from dflash_console.agent import machine, mounts
from dflash_console.agent.machine import HostSection, system_name
from dflash_console.agent.mounts import filesystem, mount_of, read_mounts
from dflash_console.model import Filesystem, HostInfo, decode_cell


def read() -> HostInfo:
    section = HostSection()
    section.tick(100.0)
    return msgspec.convert(section.value, HostInfo, dec_hook=decode_cell)


def test_the_facts_are_the_machines_own() -> None:
    info = read()
    assert info.hostname == socket.gethostname()
    assert info.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert info.kernel == os.uname().release
    assert info.python == sys.version.split()[0]
    assert info.cpus == len(psutil.Process().cpu_affinity())
    assert info.user == psutil.Process().username()
    assert info.home == str(Path.home())
    memory = psutil.virtual_memory()
    assert info.memory_total == memory.total
    assert abs(info.memory_available - memory.available) < memory.total // 10
    assert abs(info.load[1] - os.getloadavg()[1]) < 1.0
    root = os.statvfs("/")
    assert isinstance(info.root, Filesystem)
    assert (info.root.mount, info.root.total) == ("/", root.f_blocks * root.f_frsize)
    assert info.root.free <= root.f_bfree * root.f_frsize
    assert isinstance(info.shm, Filesystem)
    assert info.shm.kind == "tmpfs"


def test_load_is_read_every_two_seconds_and_the_rest_every_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[float] = []
    quick: list[float] = []
    now = 0.0

    def slow_facts() -> dict[str, Any]:
        slow.append(now)
        return {}

    def quick_facts() -> dict[str, Any]:
        quick.append(now)
        return {}

    monkeypatch.setattr(machine, "_slow_facts", slow_facts)
    monkeypatch.setattr(machine, "_quick_facts", quick_facts)
    section = HostSection()
    for tick in range(1, 22):
        # Ticks come a little off their time.
        now = tick + (0.01 if tick % 2 else -0.01)
        section.tick(now)
    assert [round(at) for at in quick] == list(range(1, 22, 2))
    assert [round(at) for at in slow] == [1, 11, 21]
    section.refresh()
    now = 21.2
    section.tick(now)
    assert slow[-1] == now


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian"\n', "Debian GNU/Linux 12 (bookworm)"),
        ("NAME='Alpine Linux'\nID=alpine\n", "Alpine Linux"),
        ("# nothing\nPRETTY_NAME\n", ""),
        ("", ""),
    ],
)
def test_the_systems_name_is_the_pretty_one(text: str, name: str) -> None:
    assert system_name(text) == name


def test_a_mount_is_found_by_the_longest_path_and_the_last_one_there() -> None:
    table = [
        ("/", "ext4"),
        ("/data", "xfs"),
        ("/data", "nfs4"),
        ("/data2", "zfs"),
        ("/data/in side", "tmpfs"),
    ]
    assert mount_of("/database", table) == ("/", "ext4")
    assert mount_of("/data", table) == ("/data", "nfs4")
    assert mount_of("/data/x", table) == ("/data", "nfs4")
    assert mount_of("/data/in side/x", table) == ("/data/in side", "tmpfs")
    assert mount_of("/x", []) == ("/", "")


def test_the_table_of_mounts_agrees_with_psutil() -> None:
    ours = {(mount, kind) for mount, kind in read_mounts()}
    assert {(part.mountpoint, part.fstype) for part in psutil.disk_partitions(all=True)} <= ours


def test_odd_characters_of_a_mount_point_are_read_back() -> None:
    line = b"40 1 0:4 / /mnt/a\\040b\\134c rw,noatime shared:2 - fuse.sshfs me@host:/x rw\n"
    assert mounts._mount(line) == ("/mnt/a b\\c", "fuse.sshfs")


def test_a_path_that_is_not_there_has_no_filesystem_but_a_reason() -> None:
    assert filesystem("/nowhere", read_mounts()) == {
        "missing": "not_found",
        "detail": "No such file or directory",
    }
