"""Single GPUs: broken, asking for something, slowed, or used by nobody that can be seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from dflash_console.findings.driver import versions_apart
from dflash_console.findings.picture import Picture, numbers
from dflash_console.model import Finding, Gpu, Health, gpu_key

__all__ = [
    "broken_gpus",
    "gpus_asking",
    "hidden_processes",
    "narrow_links",
    "persistence_off",
    "shared_gpus",
    "slowed_gpus",
    "stuck_utilization",
]

BROKEN: tuple[Health, ...] = ("lost", "reset_required", "hung", "unreadable")
WORDS: dict[Health, str] = {
    "lost": "lost: the driver can't reach it any more",
    "reset_required": "needs a reset before anything can use it",
    "hung": "does not answer",
    "unreadable": "can't be read, so its health is unknown",
}
LOOK = "journalctl -k -g NVRM"
STEPS: dict[Health, str] = {
    "lost": "reboot or power-cycle the host",
    "reset_required": "stop what uses it, then nvidia-smi --gpu-reset -i {bus}; reboot if refused",
    "hung": f"{LOOK}; a hung GPU mostly needs a reboot",
    "unreadable": LOOK,
}
ACTIONS: dict[str, str] = {
    "reset": "drain it, then nvidia-smi --gpu-reset -i {bus}",
    "bus_reset": "drain it, then nvidia-smi --gpu-reset -i {bus}",
    "drain_and_reset": "drain it, then nvidia-smi --gpu-reset -i {bus}",
    "drain_p2p": "stop the jobs that use it peer to peer",
    "recover_imex": "restart the IMEX service: systemctl restart nvidia-imex",
    "reboot": "drain the host and reboot it",
    "system_reboot": "drain the host and reboot it",
}
"""The driver's recovery actions (NVML field 230) as something to do."""

BUSY = 95
ALMOST_NOTHING = 1 << 30


def judged(picture: Picture) -> list[Gpu]:
    """The GPUs that can be judged for themselves: none while the driver as a whole is in trouble."""
    report = picture.snapshot.gpu
    return [] if report.trouble is not None or versions_apart(report) else report.gpus


def usable(picture: Picture) -> list[Gpu]:
    """The judged GPUs that answer. A broken one has its alarm; nothing else about it is worth one."""
    return [gpu for gpu in judged(picture) if gpu.health not in BROKEN]


def action(gpu: Gpu) -> str:
    """What the driver officially asks for, as something to do; empty when it asks for nothing."""
    wanted = gpu.recovery_action
    if not isinstance(wanted, str) or wanted in ("", "none"):
        return ""
    return ACTIONS.get(wanted, f"the driver asks for: {wanted}").format(bus=place(gpu))


def place(gpu: Gpu) -> str:
    """What nvidia-smi's `-i` takes: the bus, else the index."""
    return gpu.bus if isinstance(gpu.bus, str) else str(gpu.index)


def one(indexes: list[int]) -> str:
    """The subject of a finding about some GPUs."""
    return f"gpu {numbers(indexes)}"


def broken_gpus(picture: Picture) -> Iterator[Finding]:
    """A GPU that is lost, needs a reset, hangs or can't be read."""
    for gpu in judged(picture):
        if gpu.health in BROKEN:
            text = WORDS[gpu.health]
            if gpu.health_detail:
                text += f" ({gpu.health_detail})"
            step = action(gpu) or STEPS[gpu.health].format(bus=place(gpu))
            yield Finding(f"gpu_{gpu.health}", "critical", one([gpu.index]), text, step)


def gpus_asking(picture: Picture) -> Iterator[Finding]:
    """A GPU that works and for which the driver asks for something."""
    for gpu in usable(picture):
        if gpu.health == "attention":
            text = gpu.health_detail or "the driver asks for attention"
            yield Finding("gpu_attention", "warning", one([gpu.index]), text, action(gpu) or LOOK)


def stuck_utilization(picture: Picture) -> Iterator[Finding]:
    """Half a minute at full load with no process and no memory.

    The counter of a Blackwell card sticks when a process is killed inside a kernel; opening and closing any
    CUDA context clears it (lium-io #1140).
    """
    for gpu in usable(picture):
        if gpu.processes != [] or gpu.hidden_memory or not is_small(gpu):
            continue
        minute = picture.utilization.get(gpu_key(gpu), ())
        recent = minute[-max(len(minute) // 2, 1) :]
        is_full = len(minute) > 1 and all(value is not None and value >= BUSY for value in recent)
        if is_full:
            yield Finding(
                "gpu_stuck_utilization",
                "warning",
                one([gpu.index]),
                f"shows {recent[-1]} % with no process and no memory in use: probably a stuck counter",
                'in a venv with torch: python -c "import torch; '
                f"torch.zeros(1, device='cuda:{gpu.index}')\" (no reset needed)",
            )


def is_small(gpu: Gpu) -> bool:
    """Whether next to no memory is in use."""
    return isinstance(gpu.memory_used, int) and gpu.memory_used < ALMOST_NOTHING


def slowed_gpus(picture: Picture) -> Iterator[Finding]:
    """Clocks held down by heat or by the power supply; a power cap is no fault."""
    causes: dict[str, list[int]] = defaultdict(list)
    for gpu in usable(picture):
        if isinstance(gpu.slowdowns, list):
            found = [name for name in gpu.slowdowns if is_fault(name)]
            if found:
                causes["power brake" if any("brake" in name for name in found) else "heat"].append(gpu.index)
    for cause, indexes in sorted(causes.items()):
        step = "check fans and airflow" if cause == "heat" else "check the power supply and its cables"
        yield Finding("gpu_slowdown", "warning", one(indexes), f"clocks are held down: {cause}", step)


def is_fault(slowdown: str) -> bool:
    """Whether a clocks event reason says that something is wrong."""
    return "thermal" in slowdown or "brake" in slowdown or slowdown == "hw_slowdown"


def narrow_links(picture: Picture) -> Iterator[Finding]:
    """A PCIe link of fewer lanes than card and slot have. A lower generation is normal when idle."""
    widths: dict[tuple[int, int], list[int]] = defaultdict(list)
    for gpu in usable(picture):
        if isinstance(gpu.pcie_width, int) and isinstance(gpu.pcie_width_max, int):
            widths[gpu.pcie_width, gpu.pcie_width_max].append(gpu.index)
    for (width, most), indexes in sorted(widths.items()):
        if not 0 < width < most:
            continue
        text = f"PCIe link is x{width} instead of x{most}: transfers are slower"
        yield Finding("gpu_pcie_width", "warning", one(indexes), text, "reseat the card, check the riser")


def persistence_off(picture: Picture) -> Iterator[Finding]:
    """Without persistence mode the driver unloads between jobs: slow starts, odd readings."""
    indexes = [gpu.index for gpu in usable(picture) if gpu.persistence is False]
    if indexes:
        text = "persistence mode is off: each first use initialises the GPU anew"
        yield Finding("gpu_persistence_off", "note", one(indexes), text, "nvidia-smi -pm 1")


def hidden_processes(picture: Picture) -> Iterator[Finding]:
    """Memory held by processes that are not visible from here: another container, or a dead process."""
    held: dict[tuple[str, ...], list[Gpu]] = defaultdict(list)
    for gpu in usable(picture):
        if gpu.hidden_memory:
            held[picture.shared.get(gpu.uuid, ()) if isinstance(gpu.uuid, str) else ()].append(gpu)
    for others, gpus in sorted(held.items()):
        size = sum(gpu.hidden_memory for gpu in gpus) / (1 << 30)
        where = f"; see {', '.join(others)}" if others else ""
        text = f"{size:.1f} GiB held by processes not visible here{where}"
        yield Finding("gpu_hidden_memory", "note", one([gpu.index for gpu in gpus]), text)


def shared_gpus(picture: Picture) -> Iterator[Finding]:
    """The same cards are shown by another host: a hypervisor and its container."""
    indexes: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for gpu in picture.snapshot.gpu.gpus:
        if isinstance(gpu.uuid, str) and picture.shared.get(gpu.uuid):
            indexes[picture.shared[gpu.uuid]].append(gpu.index)
    for others, shared in sorted(indexes.items()):
        cards = "the same card as" if len(shared) == 1 else "the same cards as"
        yield Finding("gpu_shared", "note", one(shared), f"{cards} on {', '.join(others)}")
