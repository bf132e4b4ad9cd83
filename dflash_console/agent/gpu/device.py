"""One GPU through NVML: a row in model.Gpu's keys, with a value or a reason in every cell."""

from __future__ import annotations

import time

import pynvml

from ..section import missing
from . import health, processes
from .calls import call, field_value, text_of
from .codes import (
    LOST,
    ODD_ANSWER,
    OPERATING_SYSTEM,
    RESET_REQUIRED,
    UNINITIALIZED,
    UNKNOWN,
    Fault,
    action_name,
    slowdown_names,
)
from .kernel import normal_bus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .nvml import Nvml

    Row = dict[str, Any]

__all__ = ["SLOW_PACE", "Device"]

SLOW_PACE = 5.0
"""Seconds between two readings of what changes seldom."""

RARE_PACE = 60.0
"""Seconds between two readings of what nearly never changes, or costs much (MIG mode alone is 160
microseconds)."""

HANDLE_PACE = 10.0
"""Seconds between two attempts to get the handle of a GPU that fails."""

SLUGGISH = 5.0
"""Seconds that one GPU's reading may take. Beyond that the driver ran into time-outs of its firmware (6 to
45 s each), and every question adds an Xid: the GPU is then left alone for SLUGGISH_PAUSE."""

SLUGGISH_PAUSE = 60.0

RECOVERY_ACTION = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"""

SPOILS_HANDLE = (LOST, RESET_REQUIRED, OPERATING_SYSTEM, UNKNOWN)

MOST_MEMORY = 1 << 50
MOST_MILLIWATTS = 10_000_000
MOST_COUNT = 1 << 62
"""Sentinels such as 2^63 - 14 come as numbers; each number is checked against what can be."""


class Device:
    """One GPU: its handle, what never changes, what was read rarely, and when to read that again."""

    def __init__(self, nvml: Nvml, index: int, slow_at: float) -> None:
        self.index = index
        self._nvml = nvml
        self._handle: Any = None
        self._handle_fault: Fault | None = None
        self._handle_at: float | None = None
        self._identity: Row = {}
        self._graphics: list[tuple[int, int, int]] = []
        self._slow: Row = {}
        self._slow_at = slow_at
        self._rare_at = 0.0
        self._slow_faults: dict[str, Fault] = {}
        self._faults: dict[str, Fault] = {}
        self._is_sluggish = False
        self._asleep_until = 0.0
        self._asleep_detail = ""

    @property
    def is_uninitialized(self) -> bool:
        """Whether NVML forgot that it was initialized."""
        return any(found.number == UNINITIALIZED for found in self._faults.values())

    def row(self, now: float, anew: bool) -> Row:
        """The GPU's row. What is read rarely is read when due, and when other calls fail than did last
        time."""
        if now < self._asleep_until:
            return self._empty_row(missing("hung", self._asleep_detail), "hung", self._asleep_detail)
        self._take_handle(now, anew)
        if self._handle_fault is not None:
            self._faults = {health.HANDLE: self._handle_fault}
            return self._empty_row(self._handle_fault.missing, *health.judge(self._faults, {}))
        began = time.monotonic()
        before, self._faults = _numbers(self._faults), {}
        fast = self._read_fast()
        if anew or not self._slow or _numbers(self._faults) != before:
            self._rare_at = now
        if now >= min(self._rare_at, self._slow_at):
            self._refresh_slow(now)
        row = {"index": self.index, **self._slow, **self._identity, **fast}
        if row["mig"] is True and isinstance(row["utilization"], dict):
            row["utilization"] = missing("unsupported", "MIG: not defined")
        row["health"], row["health_detail"] = health.judge({**self._slow_faults, **self._faults}, row)
        has_answered = any(name not in self._faults for name in health.VITAL)
        row["good_at"] = round(time.time(), 3) if has_answered else None
        self._mind(now, time.monotonic() - began)
        return row

    def _take_handle(self, now: float, anew: bool) -> None:
        """Get the handle when there is none or it may be worthless; the second time in a row at a pace."""
        is_spoilt = any(found.number in SPOILS_HANDLE for found in self._faults.values())
        if self._handle is not None and not is_spoilt:
            self._handle_at = None
            return
        if anew or self._handle_at is None or now - self._handle_at >= HANDLE_PACE:
            answer = call(pynvml.nvmlDeviceGetHandleByIndex, self.index)
            self._handle_at = now
            is_fault = isinstance(answer, Fault)
            self._handle, self._handle_fault = (None, answer) if is_fault else (answer, None)

    def _mind(self, now: float, took: float) -> None:
        """Leave a GPU alone that takes too long: at once when it failed, else when it does so twice in a
        row."""
        was_sluggish, self._is_sluggish = self._is_sluggish, took > SLUGGISH
        if self._is_sluggish and (was_sluggish or any(name in self._faults for name in health.VITAL)):
            self._asleep_until = now + took + SLUGGISH_PAUSE
            self._asleep_detail = f"took {took:.0f} s to answer, now left alone for {SLUGGISH_PAUSE:.0f} s"

    def _empty_row(self, why: dict[str, str], state: str, detail: str) -> Row:
        cells = ("uuid", "bus", "name", "utilization", "memory_used", "memory_total", "temperature", "power")
        row = dict.fromkeys((*cells, "power_limit", "processes"), why)
        return {
            **row,
            **self._identity,
            "index": self.index,
            "health": state,
            "health_detail": detail,
            "good_at": None,
        }

    # ---- each tick

    def _read_fast(self) -> Row:
        handle = self._handle
        utilization = call(pynvml.nvmlDeviceGetUtilizationRates, handle)
        if not isinstance(utilization, Fault):
            utilization = utilization.gpu
        row = {
            "utilization": self._number("utilization", utilization, 100),
            "temperature": self._number("temperature", self._nvml.temperature(handle), 200, -50),
            "power": self._watts("power", pynvml.nvmlDeviceGetPowerUsage),
        }
        self._read_memory(row)
        self._read_processes(row)
        return row

    def _read_memory(self, row: Row) -> None:
        answer = self._nvml.memory(self._handle)
        if isinstance(answer, Fault):
            row["memory_total"] = self._identity.get("memory_total", answer.missing)
            row["memory_used"] = row["memory_reserved"] = self._keep("memory", answer)
            return
        total, used, reserved = answer
        if not 0 < total < MOST_MEMORY or used > total:
            odd = Fault(ODD_ANSWER, f"out of range: {used} of {total} bytes used")
            row["memory_total"] = row["memory_used"] = row["memory_reserved"] = self._keep("memory", odd)
            return
        row["memory_total"] = self._identity["memory_total"] = total
        row["memory_used"] = used
        row["memory_reserved"] = missing("unsupported", "counted as used") if reserved is None else reserved

    def _read_processes(self, row: Row) -> None:
        compute = self._nvml.compute(self._handle)
        row["hidden_memory"] = 0
        if isinstance(compute, Fault):
            row["processes"] = self._keep("processes", compute)
            return
        found = processes.merged([("compute", compute), ("graphics", self._graphics)], row["memory_total"])
        row["processes"] = found
        if isinstance(row["memory_used"], int):
            row["hidden_memory"] = processes.hidden_memory(row["memory_used"], row["memory_reserved"], found)

    # ---- now and then

    def _refresh_slow(self, now: float) -> None:
        fast_faults, self._faults = self._faults, {}
        if now >= self._rare_at:
            self._rare_at = now + RARE_PACE
            self._read_identity()
        graphics = self._nvml.graphics(self._handle)
        self._graphics = [] if isinstance(graphics, Fault) else graphics
        self._slow = self._read_slow()
        self._slow_faults, self._faults = self._faults, fast_faults
        if now >= self._slow_at:
            self._slow_at = max(self._slow_at, now - SLOW_PACE / 2) + SLOW_PACE

    def _read_identity(self) -> None:
        handle = self._handle
        mig = call(pynvml.nvmlDeviceGetMigMode, handle)
        answers = {
            "mig": mig if isinstance(mig, Fault) else bool(mig[0]),
            "name": text_of("nvmlDeviceGetName", handle),
            "uuid": text_of("nvmlDeviceGetUUID", handle),
            "bus": call(_bus_of, handle),
            "pcie_width_max": call(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
            "pcie_generation_max": call(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        }
        for key, answer in answers.items():
            if isinstance(answer, Fault):
                self._identity.setdefault(key, answer.missing)
            else:
                self._identity[key] = answer

    def _read_slow(self) -> Row:
        handle = self._handle
        remap = call(pynvml.nvmlDeviceGetRemappedRows, handle)
        mask = self._number("reasons", self._nvml.reasons(handle), MOST_COUNT)
        action = self._number("recovery action", field_value(handle, RECOVERY_ACTION), 1 << 16)
        width = call(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle)
        generation = call(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle)
        return {
            "power_limit": self._watts("power limit", pynvml.nvmlDeviceGetPowerManagementLimit),
            "power_limit_default": self._watts(
                "power limit", pynvml.nvmlDeviceGetPowerManagementDefaultLimit
            ),
            "pcie_width": self._number("PCIe", width, 64),
            "pcie_generation": self._number("PCIe", generation, 16),
            "ecc_corrected": self._number(
                "ECC", call(pynvml.nvmlDeviceGetTotalEccErrors, handle, 0, 0), MOST_COUNT
            ),
            "ecc_uncorrected": self._number(
                "ECC", call(pynvml.nvmlDeviceGetTotalEccErrors, handle, 1, 0), MOST_COUNT
            ),
            "remap_pending": self._flag("remap", remap if isinstance(remap, Fault) else remap[2]),
            "remap_failed": self._flag("remap", remap if isinstance(remap, Fault) else remap[3]),
            "recovery_action": action_name(int(action)) if not isinstance(action, dict) else action,
            "persistence": self._flag("persistence", call(pynvml.nvmlDeviceGetPersistenceMode, handle)),
            "pstate": self._number("pstate", call(pynvml.nvmlDeviceGetPerformanceState, handle), 15),
            "slowdowns": slowdown_names(mask) if isinstance(mask, int) else mask,
        }

    # ---- a value, or what stands in its place

    def _keep(self, name: str, answer: Any) -> Any:
        if isinstance(answer, Fault):
            self._faults[name] = answer
            return answer.missing
        return answer

    def _number(self, name: str, answer: Any, most: int, least: int = 0) -> Any:
        if not isinstance(answer, Fault) and not least <= answer <= most:
            answer = Fault(ODD_ANSWER, f"out of range: {answer}")
        return self._keep(name, answer)

    def _watts(self, name: str, function: Callable[..., Any]) -> Any:
        milliwatts = self._number(name, call(function, self._handle), MOST_MILLIWATTS)
        return milliwatts / 1000 if isinstance(milliwatts, int) else milliwatts

    def _flag(self, name: str, answer: Any) -> Any:
        return self._keep(name, answer if isinstance(answer, Fault) else bool(answer))


def _numbers(faults: dict[str, Fault]) -> dict[str, int]:
    return {name: found.number for name, found in faults.items()}


def _bus_of(handle: Any) -> str:
    return normal_bus(str(pynvml.nvmlDeviceGetPciInfo_v3(handle).busId))
