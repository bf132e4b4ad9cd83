"""Builders of what an agent tells: a healthy part by default, with the fields that a test is about."""

from __future__ import annotations

from typing import Any

import msgspec

from dflash_console.model import (
    Filesystem,
    Gpu,
    GpuProcess,
    GpuReport,
    HostInfo,
    Missing,
    Package,
    PathInfo,
    Snapshot,
    Unit,
    Venv,
)

GIB = 1 << 30
SITE = "/root/ml-env/lib/python3.12/site-packages"
WORKER, INFO, UTILS = (f"sglang.srt.speculative.dflash_{part}" for part in ("worker", "info", "utils"))
NOT_THERE = Missing("not_found", "no such folder")


def gpu(index: int = 0, **fields: Any) -> Gpu:
    """A healthy, idle RTX PRO 6000."""
    whole: dict[str, Any] = {
        "uuid": f"GPU-0000000{index}-aaaa-bbbb-cccc-dddddddddddd",
        "bus": f"0000:{index + 1:02x}:00.0",
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "utilization": 0,
        "memory_used": 0,
        "memory_total": 97887 << 20,
        "temperature": 31,
        "power": 16.0,
        "power_limit": 600.0,
        "health": "ok",
        "processes": [],
        "persistence": True,
        "slowdowns": [],
        "pcie_width": 16,
        "pcie_width_max": 16,
        "recovery_action": "none",
        "good_at": 1_700_000_000.0,
    }
    return Gpu(index=index, **{**whole, **fields})


def lost(index: int = 0, **fields: Any) -> Gpu:
    """A GPU that fell off the bus: identity kept, a reason in each cell."""
    gone = Missing("lost", "GPU is lost")
    cells = dict.fromkeys(
        ("utilization", "memory_used", "memory_total", "temperature", "power", "power_limit", "processes"),
        gone,
    )
    return gpu(index, **{**cells, "health": "lost", "health_detail": "GPU is lost", **fields})


def process(pid: int = 4711, **fields: Any) -> GpuProcess:
    """A process that holds 40 GiB."""
    return GpuProcess(
        pid=pid, **{"memory": 40 * GIB, "user": "root", "command": "python3 serve.py", **fields}
    )


def report(*gpus: Gpu, **fields: Any) -> GpuReport:
    """What NVML tells of these GPUs; of one healthy GPU when none is named."""
    rows = list(gpus) or [gpu()]
    whole = {"source": "nvml", "driver": "580.95.05", "library": "580.95.05", "kernel_count": len(rows)}
    return GpuReport(gpus=rows, **{**whole, **fields})


def package(**fields: Any) -> Package:
    """A patched sglang with all its DFlash modules."""
    folder = f"{SITE}/sglang/srt/speculative"
    whole: dict[str, Any] = {
        "name": "sglang",
        "origin": f"{SITE}/sglang/__init__.py",
        "kind": "regular",
        "version": "0.5.11",
        "dist_version": "0.5.11",
        "nested": False,
        "modules": {name: f"{folder}/{name.rpartition('.')[2]}.py" for name in (WORKER, INFO, UTILS)},
    }
    return Package(**{**whole, **fields})


def venv(path: str = "/root/ml-env", **fields: Any) -> Venv:
    """A venv of the config with a whole sglang in it."""
    whole = {
        "source": "config",
        "python": "3.12.3",
        "packages": {"sglang": "0.5.11", "torch": "2.11.0"},
        "package": package(),
        "torch_build": "2.11.0+cu130",
    }
    return Venv(path=path, **{**whole, **fields})


def unit(name: str = "sglang-dflash.service", **fields: Any) -> Unit:
    """A running service."""
    whole: dict[str, Any] = {
        "load": "loaded",
        "active": "active",
        "sub": "running",
        "result": "success",
        "restarts": 0,
        "main_pid": 4711,
        "since": 1_700_000_000.0,
        "venv": "/root/ml-env",
        "port": 30000,
        "listening": True,
    }
    return Unit(name=name, **{**whole, **fields})


def filesystem(mount: str = "/", used: int = 50, **fields: Any) -> Filesystem:
    """A disk of 1000 GiB of which `used` percent are not free."""
    whole = {"kind": "ext4", "total": 1000 * GIB, "free": (100 - used) * 10 * GIB}
    return Filesystem(mount=mount, **{**whole, **fields})


def path(name: str = "/dev/shm/Qwen3.6-27B", **fields: Any) -> PathInfo:
    """A folder of a model."""
    return PathInfo(path=name, **{"kind": "folder", "size": 50 * GIB, "entries": 12, **fields})


def host(**fields: Any) -> HostInfo:
    """The story's target."""
    whole: dict[str, Any] = {
        "hostname": "dflash-train",
        "boot_id": "boot-1",
        "uptime": 86_400.0,
        "load": (0.5, 0.4, 0.3),
        "cpus": 64,
        "memory_total": 256 * GIB,
        "memory_available": 200 * GIB,
        "root": filesystem("/"),
        "shm": filesystem("/dev/shm", kind="tmpfs"),
    }
    return HostInfo(**{**whole, **fields})


def snapshot(**sections: Any) -> Snapshot:
    """A host with nothing to complain about."""
    whole: dict[str, Any] = {
        "at": 1_700_000_060.0,
        "host": host(),
        "gpu": report(),
        "venvs": [venv()],
        "units": [unit()],
        "paths": [path()],
    }
    return Snapshot(**{**whole, **sections})


replace = msgspec.structs.replace
