"""Hosts as the story has them, for drawing and for driving the console without any host."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dflash_console.config import Config, ConsoleConfig, HostConfig, PackageConfig
from dflash_console.fleet import HostView
from dflash_console.model import (
    Copied,
    Filesystem,
    Gpu,
    GpuProcess,
    GpuReport,
    HostInfo,
    LinkStatus,
    Missing,
    Origin,
    Package,
    PathInfo,
    Snapshot,
    Unit,
    Venv,
    gpu_key,
)
from dflash_console.ui.scene import Moment

GIB = 1024**3
MIB = 1024**2
WALL = 1_785_640_364.0
"""2026-08-02 03:12:44 UTC: the console's and every host's clock."""
MONO = 5_000.0
MOMENT = Moment(WALL, MONO, 1.0)

MODULES = (
    "sglang.srt.speculative.dflash_worker",
    "sglang.srt.speculative.dflash_info",
    "sglang.srt.speculative.dflash_utils",
)


def gpu(
    index: int,
    *,
    name: str = "NVIDIA RTX A6000",
    total: int = 48 * GIB,
    used: int = 600 * MIB,
    utilization: int = 0,
    temperature: int = 32,
    power: float = 16.0,
    processes: Sequence[GpuProcess] = (),
    uuid: str | None = None,
) -> Gpu:
    """A healthy GPU."""
    return Gpu(
        index=index,
        uuid=uuid or f"GPU-{name[-4:].strip()}-{index:04d}-7d1f-8a55-0c2b",
        bus=f"0000:{0x41 + index:02x}:00.0",
        name=name,
        utilization=utilization,
        memory_used=used,
        memory_total=total,
        temperature=temperature,
        power=power,
        power_limit=300.0,
        health="ok",
        processes=list(processes),
        memory_reserved=400 * MIB,
        power_limit_default=300.0,
        slowdowns=[],
        pcie_width=16,
        pcie_width_max=16,
        pcie_generation=4,
        pcie_generation_max=4,
        ecc_corrected=0,
        ecc_uncorrected=0,
        remap_pending=False,
        remap_failed=False,
        recovery_action="none",
        persistence=True,
        mig=False,
        pstate=0 if utilization else 8,
        good_at=WALL,
    )


def lost_gpu(index: int) -> Gpu:
    """A GPU that the driver lists and CUDA can't use any more."""
    gone = Missing("lost", "GPU is lost")
    return msgspec.structs.replace(
        gpu(index),
        utilization=gone,
        memory_used=gone,
        memory_total=gone,
        temperature=gone,
        power=gone,
        power_limit=gone,
        health="lost",
        health_detail="reset not supported, reboot the host",
        processes=gone,
        good_at=WALL - 873,
    )


def process(
    pid: int, command: str, *, unit: str | None = None, venv: str | None = None, memory: int = 41 * GIB
) -> GpuProcess:
    """A process on a GPU."""
    return GpuProcess(
        pid=pid, memory=memory, started=WALL - 11_520, user="root", command=command, venv=venv, unit=unit
    )


def package(
    root: str,
    *,
    version: str = "0.5.11",
    dist_version: str | None = None,
    nested: bool = False,
    there: Sequence[bool] = (True, True, True),
) -> Package:
    """sglang in `root`/site-packages, with or without its DFlash modules."""
    base = f"{root}/lib/python3.12/site-packages"
    modules: dict[str, Origin] = {
        name: f"{base}/{name.replace('.', '/')}.py" if is_there else None
        for name, is_there in zip(MODULES, there, strict=True)
    }
    return Package(
        name="sglang",
        origin=f"{base}/sglang/__init__.py",
        kind="regular",
        version=version,
        dist_version=dist_version or version,
        nested=nested,
        modules=modules,
    )


def venv(
    path: str, *, torch: str = "2.11.0+cu130", package: Package | None = None, is_there: bool = True
) -> Venv:
    """A virtual environment; without a package, one that has no sglang."""
    gone = Missing("not_found")
    return Venv(
        path=path,
        source="config",
        python="3.12.3" if is_there else gone,
        packages={"torch": torch, "transformers": "4.57.1", "flashinfer-python": "0.5.2"} if is_there else {},
        package=package or Missing("not_found", "no sglang"),
        torch_build=torch if is_there else gone,
    )


def unit(name: str = "sglang-dflash.service", *, active: str = "active", sub: str = "running") -> Unit:
    """A service; as told, it runs and listens."""
    is_up = active == "active"
    return Unit(
        name=name,
        load="loaded",
        active=active,
        sub=sub,
        result="success",
        restarts=0,
        main_pid=9981 if is_up else None,
        since=WALL - 11_520,
        description="SGLang with DFlash speculative decoding",
        enabled="enabled",
        fragment=f"/etc/systemd/system/{name}",
        command="/root/ml-env/bin/python -m sglang.launch_server --model-path /dev/shm/Qwen3.6-27B"
        " --api-key ***",
        interpreter="/root/ml-env/bin/python",
        venv="/root/ml-env",
        port=30000,
        listening=True if is_up else None,
        memory=31 * GIB if is_up else Missing("not_found"),
        tasks=214 if is_up else Missing("not_found"),
        invocation_id="5f0c3c5e8d4a4b0f9f0e0f7d8c1b2a39",
    )


def filesystem(mount: str = "/", *, free: int = 402 * GIB, total: int = 1800 * GIB) -> Filesystem:
    """A filesystem with room."""
    return Filesystem(mount=mount, kind="tmpfs" if mount == "/dev/shm" else "ext4", total=total, free=free)


SHM = filesystem("/dev/shm", free=301 * GIB, total=378 * GIB)


def path(name: str, *, size: int | None = 54 * GIB, room: Filesystem = SHM) -> PathInfo:
    """A configured path; without a size, one that is not there."""
    if size is None:
        return PathInfo(
            path=name, kind=Missing("not_found"), size=Missing("not_found"), filesystem=filesystem()
        )
    return PathInfo(path=name, kind="folder", size=size, entries=17, filesystem=room)


def machine(hostname: str) -> HostInfo:
    """The host itself."""
    return HostInfo(
        hostname=hostname,
        boot_id="0b7b6d0e-2f6e-4c3c-9f0a-7d3f0e1c2b3a",
        uptime=1_051_200.0,
        load=(3.2, 2.9, 2.4),
        cpus=64,
        memory_total=755 * GIB,
        memory_available=634 * GIB,
        root=filesystem(),
        shm=SHM,
        system="Debian GNU/Linux 12 (bookworm)",
        kernel="6.8.12-4-pve",
        python="3.11.2",
        user="root",
    )


def report(gpus: Sequence[Gpu], *, driver: str = "580.95.05", cuda: str = "13.0") -> GpuReport:
    """What NVML tells of these GPUs."""
    return GpuReport(
        gpus=list(gpus),
        source="nvml",
        driver=driver,
        library=driver,
        cuda=cuda,
        kernel_count=len(gpus),
        read_at=WALL,
    )


def snapshot(
    hostname: str,
    gpus: Sequence[Gpu] = (),
    *,
    venvs: Sequence[Venv] = (),
    units: Sequence[Unit] = (),
    paths: Sequence[PathInfo] = (),
) -> Snapshot:
    """A whole picture of a host."""
    return Snapshot(
        at=WALL,
        host=machine(hostname),
        gpu=report(gpus),
        venvs=list(venvs),
        units=list(units),
        paths=list(paths),
    )


UP = LinkStatus(state="up", latency_ms=2.1, since=WALL - 4_000)


def wave(index: int, mean: int, newest: int = 60) -> tuple[int | None, ...]:
    """A minute of utilization around `mean`."""
    if not mean:
        return (0,) * 60
    return tuple(
        max(0, min(100, mean + (step * 7 + index * 13) % 23 - 11)) for step in range(newest - 60, newest)
    )


def view(
    config: HostConfig,
    snapshot: Snapshot | None,
    *,
    link: LinkStatus = UP,
    heard: float | None = MONO - 0.4,
    shared: dict[str, tuple[str, ...]] | None = None,
    revision: int = 1,
) -> HostView:
    """What the fleet knows of a host."""
    utilization: dict[str, tuple[int | None, ...]] = {}
    for card in snapshot.gpu.gpus if snapshot is not None else ():
        mean = card.utilization
        utilization[gpu_key(card)] = wave(card.index, mean) if isinstance(mean, int) else (None,) * 60
    return HostView(
        config=config,
        link=link,
        snapshot=snapshot,
        heard=heard if snapshot is not None else None,
        utilization=utilization,
        shared=shared or {},
        unread=frozenset(),
        revision=revision,
    )


# ---- the story's hosts

BLACKWELL = "NVIDIA RTX PRO 6000 Blackwell Server Edition"


def blackwells() -> list[Gpu]:
    """CT200's eight cards, which kpro6 sees too: a DDTree wrapper on the first, the others idle."""
    ddtree = process(
        41177, "/root/venv/bin/python /root/ddtree/ddtree.py --budget 64", venv="/root/venv", memory=71 * GIB
    )
    cards = []
    for index in range(8):
        is_busy = index == 0
        cards.append(
            gpu(
                index,
                name=BLACKWELL,
                total=97_887 * MIB,
                used=72_900 * MIB if is_busy else 614 * MIB,
                utilization=52 if is_busy else 0,
                temperature=64 if is_busy else 31 + index % 3,
                power=412.0 if is_busy else 16.0,
                processes=[ddtree] if is_busy else [],
                uuid=f"GPU-b1ac-{index:04d}",
            )
        )
    return cards


def ct129() -> HostView:
    """The source: one healthy GPU that serves, one that CUDA lost."""
    serving = process(9981, "python -m sglang.launch_server", unit="sglang-dflash.service")
    cards = [
        gpu(0, used=42_200 * MIB, utilization=62, temperature=71, power=274.0, processes=[serving]),
        lost_gpu(1),
    ]
    return view(
        HostConfig("ct129", address="10.1.230.172", role="source"),
        snapshot(
            "llm-two",
            cards,
            venvs=[venv("/root/ml-env", package=package("/root/ml-env"))],
            units=[unit()],
            paths=[path("/dev/shm/Qwen3.6-27B"), path("/root/models/Qwen3.6-27B-DFlash", size=3 * GIB)],
        ),
    )


def ct200() -> HostView:
    """The target, in production: eight GPUs, a nested copy of the package, a stopped service."""
    nested = package(
        "/root/venv_sglang", version="0.5.9", nested=True, there=(False, False, False), dist_version="0.5.9"
    )
    stopped = msgspec.structs.replace(
        unit(active="inactive", sub="dead"),
        venv="/root/venv_sglang",
        interpreter="/root/venv_sglang/bin/python",
    )
    cards = blackwells()
    return view(
        HostConfig(
            "ct200",
            address="10.1.2.200",
            role="target",
            production=True,
            paths=["/dev/shm/Qwen3.6-27B", "/root/sglang"],
        ),
        snapshot(
            "dflash-train",
            cards,
            venvs=[
                venv("/root/venv_sglang", torch="2.9.1+cu128", package=nested),
                venv("/root/venv", torch="2.9.1+cu128"),
                venv("/root/ml-env", is_there=False),
            ],
            units=[stopped],
            paths=[path("/dev/shm/Qwen3.6-27B"), path("/root/sglang", size=None)],
        ),
        shared={str(card.uuid): ("kpro6",) for card in cards},
    )


def kpro6() -> HostView:
    """CT200's hypervisor: the same cards, and it has not answered for nine seconds."""
    cards = blackwells()
    link = LinkStatus(
        state="stale",
        detail="the heartbeat got no answer within 5 s; the connection is kept and tried again",
        latency_ms=3.4,
        since=WALL - 9,
        next_try=WALL + 4,
    )
    return view(
        HostConfig("kpro6", address="10.1.2.6", role="observe"),
        snapshot("kpro6", cards),
        link=link,
        heard=MONO - 9,
        shared={str(card.uuid): ("ct200",) for card in cards},
    )


KEY_TEXT = (
    "The host's key is in no known_hosts file: ED25519 SHA256:2nq9cQy5mCN9oVf1m1yFvP5Q1x2C0m6Yx0q0m8Z7v3E. "
    "Compare it with the one that the host's console shows "
    "(ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), "
    "then connect once by hand: ssh newbox. Nothing was trusted and nothing was sent."
)


def unknown_key() -> HostView:
    """A host whose key nobody has confirmed."""
    link = LinkStatus(state="host_key_unknown", detail=KEY_TEXT, since=WALL - 30, next_try=WALL + 270)
    return view(HostConfig("newbox", address="10.1.2.77"), None, link=link)


def connecting() -> HostView:
    """A host that has just been asked."""
    return view(
        HostConfig("ct201", address="10.1.2.201", role="target"),
        None,
        link=LinkStatus("connecting", since=WALL),
    )


def no_python() -> HostView:
    """A host without a usable Python."""
    link = LinkStatus(
        state="no_python",
        detail="no Python 3.8 or newer: python3 is 3.6.8; set `python` for this host to another interpreter",
        since=WALL - 60,
        next_try=WALL + 240,
    )
    return view(HostConfig("oldbox", address="10.1.2.9"), None, link=link)


def looping() -> HostView:
    """A host whose service crashes again and again, with a unit that is not installed and a masked one."""
    loop = msgspec.structs.replace(
        unit(active="activating", sub="auto-restart"),
        is_looping=True,
        restarts=14,
        exit_status="exited 1",
        result="exit-code",
        since=WALL - 3,
        needs_reload=True,
    )
    absent = Unit("vllm.service", "not-found", "inactive", "dead", "success", 0, None, None)
    masked = Unit("ddtree.service", "masked", "inactive", "dead", "success", 0, None, None)
    editable = msgspec.structs.replace(
        package("/opt/env"), kind="editable", editable_from="/root/src/sglang/python", outside=True
    )
    return view(
        HostConfig("ct202", address="10.1.2.202", role="target"),
        snapshot(
            "spare-one",
            [gpu(index, temperature=30 + index) for index in range(4)],
            venvs=[venv("/opt/env", package=editable)],
            units=[loop, absent, masked],
        ),
    )


def copied(**fields: object) -> HostView:
    """A host whose package was copied here, with two files edited since, and another copy that was cut short."""
    whole = {
        "copied": Copied("ct129", "/root/ml-env", "0.5.11", WALL - 11_520, "kim@laptop", 2),
        "interrupted": "copy from ct129 by sam@desk since 2026-08-02 02:41:07, staged",
        **fields,
    }
    plain = venv("/root/venv_sglang", torch="2.11.0+cu130", package=package("/root/venv_sglang"))
    return view(
        HostConfig("ct203", address="10.1.2.203", role="target"),
        snapshot("spare-two", [gpu(0)], venvs=[msgspec.structs.replace(plain, **whole)]),
    )


def story() -> tuple[HostView, ...]:
    """The three hosts of the story."""
    return ct129(), ct200(), kpro6()


def every_kind() -> tuple[HostView, ...]:
    """The story's hosts and every state of a link that looks different."""
    return *story(), looping(), unknown_key(), connecting(), no_python()


HOSTILE = (
    "[/usr/bin/x] [bold]b[/] \x1b]0;owned\x07\x1b[2J\x9b31m [@click=app.quit]q[/] "
    "\u202egnp.exe\u202c \u200b中文e\u0301"
)


def hostile() -> HostView:
    """A host all of whose words are meant to do harm."""
    bad = msgspec.structs.replace(unit(HOSTILE), problem=HOSTILE, load="bad-setting", venv=HOSTILE)
    card = msgspec.structs.replace(
        gpu(0, name=HOSTILE, processes=[process(1, HOSTILE, unit=HOSTILE)]), health_detail=HOSTILE
    )
    sick = msgspec.structs.replace(lost_gpu(1), health_detail=HOSTILE, name=HOSTILE)
    return view(
        HostConfig("mallory", address="10.1.2.66", paths=["/x"]),
        snapshot(
            HOSTILE,
            [card, sick],
            venvs=[venv(HOSTILE, torch=HOSTILE, package=package(HOSTILE, version=HOSTILE))],
            units=[bad],
            paths=[path(HOSTILE)],
        ),
        link=LinkStatus("stale", detail=HOSTILE, since=WALL, next_try=WALL + 3),
    )


def many(count: int, tick: int = 0) -> tuple[HostView, ...]:
    """`count` hosts with eight GPUs each, every value different at each tick."""
    return tuple(_numbered(number, tick) for number in range(count))


def _numbered(number: int, tick: int) -> HostView:
    name = f"gpu{number:03d}"
    serving = process(9981, "python -m sglang.launch_server", unit="sglang-dflash.service")
    cards = [
        gpu(
            index,
            name=BLACKWELL,
            total=97_887 * MIB,
            used=(40_000 + (tick * 37 + index * 101 + number * 7) % 9_000) * MIB,
            utilization=(tick * 11 + index * 17 + number * 5) % 101,
            temperature=50 + (tick + index + number) % 30,
            power=200.0 + (tick * 3 + index * 7 + number) % 200,
            processes=[serving],
            uuid=f"GPU-{number:04d}-{index:04d}",
        )
        for index in range(8)
    ]
    picture = snapshot(
        f"node-{number}",
        cards,
        venvs=[venv("/root/ml-env", package=package("/root/ml-env"))],
        units=[unit()],
    )
    return view(HostConfig(name, role="target"), picture, revision=tick + 1)


def config(views: Sequence[HostView]) -> Config:
    """The config that names these hosts."""
    return Config(ConsoleConfig(), PackageConfig(), {item.config.name: item.config for item in views})
