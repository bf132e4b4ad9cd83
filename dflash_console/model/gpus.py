"""GPUs as a driver tells them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dflash_console.bounds import (
    MOST_GPUS,
    MOST_NAMES,
    MOST_PROCESSES,
    Bytes,
    Celsius,
    Count,
    Index,
    Percent,
    Pid,
    Time,
    Watts,
)
from dflash_console.model.cells import Bool, Health, Missing, Text

__all__ = ["Gpu", "GpuProcess", "GpuReport", "gpu_key"]


class GpuProcess(msgspec.Struct, frozen=True, gc=False):
    """A process that holds memory on a GPU. Its identity is (pid, started, the GPU's UUID)."""

    pid: Pid
    memory: Bytes | Missing
    kind: Literal["compute", "graphics"] = "compute"
    started: Time | Missing = Missing("not_found")
    """The host's clock."""
    user: Text = Missing("not_found")
    command: Text = Missing("not_found")
    """The command line with secrets redacted, at most 400 characters."""
    venv: str | None = None
    """The virtual environment's folder; None when the interpreter is in none."""
    unit: str | None = None
    """The systemd unit by its cgroup, such as `sglang.service`; None outside any service."""


class Gpu(msgspec.Struct, frozen=True, gc=False):
    """One GPU as the driver tells it. A GPU that was seen once keeps its row, whatever befalls it."""

    index: Index
    """NVML's index, which is PCI order; CUDA's order differs unless CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    uuid: Text
    bus: Text
    """As sysfs writes it: `0000:c9:00.0`."""
    name: Text
    utilization: Percent | Missing
    memory_used: Bytes | Missing
    """Without what the driver reserves, where the driver tells the two apart."""
    memory_total: Bytes | Missing
    temperature: Celsius | Missing
    power: Watts | Missing
    power_limit: Watts | Missing
    health: Health
    health_detail: str = ""
    """Why `health` is not ok, worst first, with the driver's own words."""
    processes: Annotated[list[GpuProcess], Meta(max_length=MOST_PROCESSES)] | Missing = Missing("not_found")
    hidden_memory: Bytes = 0
    """Bytes in use that no visible process accounts for while the process list is empty (other PID namespace)."""
    memory_reserved: Bytes | Missing = Missing("unsupported")
    power_limit_default: Watts | Missing = Missing("unsupported")
    slowdowns: Annotated[list[str], Meta(max_length=MOST_NAMES)] | Missing = Missing("unsupported")
    """The active clocks event reasons by name, such as `sw_power_cap` or `hw_thermal_slowdown`; not `gpu_idle`."""
    pcie_width: Count | Missing = Missing("unsupported")
    pcie_width_max: Count | Missing = Missing("unsupported")
    pcie_generation: Count | Missing = Missing("unsupported")
    pcie_generation_max: Count | Missing = Missing("unsupported")
    ecc_corrected: Count | Missing = Missing("unsupported")
    """Volatile count: since the driver was loaded."""
    ecc_uncorrected: Count | Missing = Missing("unsupported")
    remap_pending: Bool = Missing("unsupported")
    remap_failed: Bool = Missing("unsupported")
    recovery_action: Text = Missing("unsupported")
    """NVML field 230 by name: none, reset, reboot, drain_p2p, drain_and_reset, ...; an unknown one is `action N`."""
    persistence: Bool = Missing("unsupported")
    mig: Bool = Missing("unsupported")
    pstate: Count | Missing = Missing("unsupported")
    good_at: Time | None = None
    """The host's clock at the last sample in which the driver answered for this GPU; None if it never did."""


def gpu_key(gpu: Gpu) -> str:
    """What names a GPU over time and across hosts: its UUID, else its bus, else its index."""
    for value in (gpu.uuid, gpu.bus):
        if isinstance(value, str) and value:
            return value
    return f"index {gpu.index}"


class GpuReport(msgspec.Struct, frozen=True, gc=False):
    """All GPUs of a host, and what stands between them and us."""

    gpus: Annotated[list[Gpu], Meta(max_length=MOST_GPUS)]
    source: Literal["nvml", "nvidia-smi", "none"]
    driver: Text
    """The kernel module's version from /proc/driver/nvidia/version, else what NVML says."""
    library: Text = Missing("not_found")
    """NVML's own version; another than `driver` is the driver/library mismatch."""
    cuda: Text = Missing("not_found")
    """The newest CUDA that the driver supports, such as `13.0`."""
    kernel_count: Count | Missing = Missing("not_found")
    """NVIDIA display controllers on the PCI bus, also those that NVML does not list. Those bound to vfio-pci
    belong to a virtual machine and are counted in `passed_through`, not here."""
    passed_through: Count = 0
    trouble: Missing | None = None
    """Why the driver as a whole does not answer (no driver, mismatch, hung); None when it does."""
    read_at: Time | None = None
    """The host's clock when the values were read; older than the sample while the driver hangs."""
