"""What the kernel knows of NVIDIA GPUs without asking the driver: the PCI bus, /proc/driver/nvidia, wait
channels."""

from __future__ import annotations

import os
import re

__all__ = ["Kernel", "KernelGpu", "KernelView", "driver_version", "normal_bus", "waiting_process"]

NVIDIA = "0x10de"
DISPLAY = "0x03"
"""PCI class: display controllers (0x0300 VGA, 0x0302 3D)."""

VERSION = re.compile(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)")
"""Of both `NVIDIA UNIX x86_64 Kernel Module 580.95.05` and `... UNIX Open Kernel Module for x86_64
580.95.05`."""


class KernelGpu:
    """An NVIDIA display controller; `uuid` and `name` are None where /proc/driver/nvidia does not tell."""

    def __init__(self, bus: str, driver: str | None, uuid: str | None, name: str | None) -> None:
        self.bus = bus
        self.driver = driver
        self.uuid = uuid
        self.name = name


class KernelView:
    """`gpus` in bus order, without those of virtual machines (`passed_through`, their buses) and those that
    this container may not use; `driver` is the kernel module's version."""

    def __init__(self, driver: str | None, gpus: list[KernelGpu], passed_through: list[str]) -> None:
        self.driver = driver
        self.gpus = gpus
        self.passed_through = passed_through

    @property
    def buses(self) -> list[str]:
        """The buses of `gpus`."""
        return [gpu.bus for gpu in self.gpus]


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(65536).decode("utf-8", "replace")
    except OSError:
        return ""


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def normal_bus(text: str) -> str:
    """A PCI address as sysfs writes it (`0000:c9:00.0`), of NVML's `00000000:C9:00.0`; another text as it
    is."""
    parts = text.strip().lower().split(":")
    if len(parts) != 3:
        return text
    try:
        return f"{int(parts[0], 16):04x}:{parts[1]}:{parts[2]}"
    except ValueError:
        return text


def driver_version(text: str) -> str | None:
    """The kernel module's version in the text of /proc/driver/nvidia/version."""
    found = VERSION.search(text)
    return found.group(1) if found else None


class Kernel:
    """Looks at the PCI bus below `root`; a device's class is read once, what it is bound to each time."""

    def __init__(self, root: str = "/") -> None:
        self._devices = os.path.join(root, "sys/bus/pci/devices")
        self._proc = os.path.join(root, "proc/driver/nvidia")
        self._dev = os.path.join(root, "dev")
        self._seen: dict[str, bool] = {}

    def view(self) -> KernelView:
        """What the kernel says now; empty where there is no PCI bus."""
        passed_through = []
        gpus = []
        listed = set(_names(f"{self._proc}/gpus"))
        for bus in self._buses():
            try:
                driver = os.path.basename(os.readlink(f"{self._devices}/{bus}/driver"))
            except OSError:
                driver = None
            if driver == "vfio-pci":
                passed_through.append(bus)
                continue
            facts = self._information(bus) if bus in listed else {}
            if driver != "nvidia" or (bus in listed and self._may_use(facts.get("Device Minor"))):
                gpus.append(KernelGpu(bus, driver, _whole_uuid(facts.get("GPU UUID")), facts.get("Model")))
        return KernelView(driver_version(_text(f"{self._proc}/version")), gpus, passed_through)

    def _buses(self) -> list[str]:
        names = set(_names(self._devices))
        for gone in self._seen.keys() - names:
            del self._seen[gone]
        for name in names - self._seen.keys():
            folder = f"{self._devices}/{name}"
            self._seen[name] = _text(f"{folder}/vendor").strip() == NVIDIA and _text(
                f"{folder}/class"
            ).startswith(DISPLAY)
        return sorted(name for name, is_gpu in self._seen.items() if is_gpu)

    def _information(self, bus: str) -> dict[str, str]:
        facts = {}
        for line in _text(f"{self._proc}/gpus/{bus}/information").splitlines():
            key, _, value = line.partition(":")
            facts[key.strip()] = value.strip()
        return facts

    def _may_use(self, minor: str | None) -> bool:
        """A container sees the whole PCI bus, and device nodes of its own GPUs only."""
        if minor is None or os.path.exists(f"{self._dev}/nvidia{minor}"):
            return True
        return not any(name[6:].isdigit() for name in _names(self._dev) if name.startswith("nvidia"))


def _whole_uuid(text: str | None) -> str | None:
    """The UUID; None for the question marks that stand there before the GPU was started."""
    return text if text and "?" not in text else None


class ProcessState:
    """A process as the kernel has it: `state` is a letter (`D` is uninterruptible), `wchan` where in the
    kernel it waits; both empty when it is gone or does not wait."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.state = (_text(f"/proc/{pid}/stat").rpartition(")")[2].split() or [""])[0]
        self.wchan = _text(f"/proc/{pid}/wchan").strip("0\0\n ")


def waiting_process(pid: int) -> ProcessState:
    """The process that keeps `pid` from going on: itself, or the program that it started and waits for."""
    state = ProcessState(pid)
    if state.state != "D":
        children = _text(f"/proc/{pid}/task/{pid}/children").split()
        if children:
            return ProcessState(int(children[0]))
    return state
