"""NVML as a whole: opened once and kept, its GPUs counted anew each time. Imports pynvml, so only the
reader's child may import it."""

from __future__ import annotations

import os

import pynvml

from .calls import ProcessList, Versions, call, text_of
from .codes import UNINITIALIZED, Fault, fault
from .device import SLOW_PACE, Device
from .rows import MOST_ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Nvml", "Unavailable", "library_version", "loaded_library", "version_on_disk"]


class Unavailable(Exception):
    """NVML as a whole does not answer; `fault` says why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.words)
        self.fault = fault


def _memory_v2(handle: Any) -> tuple[int, int, int | None]:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
    return memory.total, memory.used, memory.reserved


def _memory_v1(handle: Any) -> tuple[int, int, int | None]:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return memory.total, memory.used, None


def _temperature(handle: Any) -> int:
    return int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))


def _temperature_v(handle: Any) -> int:
    return int(pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU))


def _process_list(kind: str) -> Versions:
    name = f"nvmlDeviceGet{kind}RunningProcesses_v"
    return Versions(ProcessList(f"{name}3"), ProcessList(f"{name}2"))


class Nvml:
    """NVML, initialized and kept: opening it anew can take seconds a GPU.

    `progress[0]` is set to index + 1 of the GPU being read, 0 between, so that the parent can name the one
    that hangs. Raises Unavailable when NVML can't be opened, or when it stops answering as a whole.
    """

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        _check(call(pynvml.nvmlInit))
        self.driver = text_of("nvmlSystemGetDriverVersion")
        self.library = library_version()
        cuda = call(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        self.cuda: Any = cuda if isinstance(cuda, Fault) else f"{cuda // 1000}.{cuda % 1000 // 10}"
        self.memory = Versions(_memory_v2, _memory_v1)
        self.temperature = Versions(_temperature, _temperature_v)
        self.reasons = Versions(
            pynvml.nvmlDeviceGetCurrentClocksEventReasons, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons
        )
        self.compute = _process_list("Compute")
        self.graphics = _process_list("Graphics")
        self.more = 0
        """How many GPUs NVML counts beyond MOST_ROWS; those are not asked for."""
        self._devices: list[Device] = []

    def close(self) -> None:
        """Let go of the driver."""
        call(pynvml.nvmlShutdown)

    def rows(self, now: float, anew: bool) -> list[dict[str, Any]]:
        """A row (model.Gpu's keys) for each GPU that NVML counts. `anew` reads also what is read rarely."""
        counted = _check(call(pynvml.nvmlDeviceGetCount))
        count = min(counted, MOST_ROWS)
        self.more = counted - count
        if count != len(self._devices):
            self._devices = [Device(self, index, now + index * SLOW_PACE / count) for index in range(count)]
        rows = []
        for device in self._devices:
            self._progress[0] = min(device.index + 1, 255)
            rows.append(device.row(now, anew))
        self._progress[0] = 0
        if any(device.is_uninitialized for device in self._devices):
            raise Unavailable(fault(UNINITIALIZED))
        return rows


def _check(answer: Any) -> Any:
    if isinstance(answer, Fault):
        raise Unavailable(answer)
    return answer


def library_version() -> Any:
    """NVML's own version, or a Fault; it answers also when it can't be opened."""
    return text_of("nvmlSystemGetNVMLVersion")


def loaded_library() -> str | None:
    """The path of the libnvidia-ml that this process holds; None when none is loaded."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                if "libnvidia-ml.so" in line:
                    return line.split(None, 5)[5].strip()
    except OSError:
        pass
    return None


def version_on_disk(loaded: str) -> tuple[str | None, bool]:
    """The version that the library beside `loaded` has by its file's name, and whether that is another
    file: an upgrade replaces the library, and programs started from then on meet another version than the
    kernel module's."""
    path = loaded[: -len(" (deleted)")] if loaded.endswith(" (deleted)") else loaded
    newest = os.path.realpath(os.path.join(os.path.dirname(path), "libnvidia-ml.so.1"))
    version = os.path.basename(newest).partition(".so.")[2]
    return (version if version.count(".") else None), newest != os.path.realpath(loaded)
