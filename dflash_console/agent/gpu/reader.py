"""The child that reads the GPUs: NVML while it answers, nvidia-smi where NVML can't be loaded, else the
reason."""

from __future__ import annotations

import gc
import time

from ..section import missing
from .codes import DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, LIBRARY_NOT_FOUND, MISMATCH, Fault
from .kernel import Kernel, KernelView
from .processes import Enricher, keep_biggest
from .rows import MOST_ROWS, identified, left_out
from .smi import Smi, find_smi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..child import Channel
    from .nvml import Nvml

    Report = dict[str, Any]

__all__ = ["Reader", "serve"]

FIRST_RETRY = 1.0
LONGEST_RETRY = 10.0
"""Seconds between two attempts to open NVML; each may start nvidia-modprobe."""

KERNEL_PACE = 10.0
SMI_PACE = 5.0


def serve(channel: Channel, progress: Any, root: str) -> None:
    """Answers every request with a report, until the parent closes the channel. A request is whether
    everything is to be read anew. Ends by itself when only a new process can read on; the parent starts one
    at once."""
    reader = Reader(progress, Kernel(root))
    is_first = True
    for anew in channel.receive():
        report = reader.read(bool(anew))
        if reader.is_outdated:
            return
        channel.send(report)
        if is_first:
            # What lives now lives to the end: the collector need not look at it again.
            is_first = False
            gc.collect()
            gc.freeze()


class Reader:
    """Makes one model.GpuReport after another."""

    def __init__(self, progress: Any, kernel: Kernel) -> None:
        self._progress = progress
        self._kernel = kernel
        self._view: KernelView | None = None
        self._view_at = 0.0
        self._nvml: Nvml | None = None
        self._fault: Fault | None = None
        self._library: Any = missing("not_found")
        self._is_replaced = False
        self._retry_at = 0.0
        self._retry = FIRST_RETRY
        self._smi: Smi | None = None
        self._smi_report: Report | None = None
        self._smi_at = 0.0
        self._enricher = Enricher()

    @property
    def is_outdated(self) -> bool:
        """Whether this process holds a library that does not work and was replaced on disk."""
        return self._is_replaced and self._nvml is None

    def read(self, anew: bool) -> Report:
        """The report of now. `anew` also reads what is read rarely."""
        now = time.monotonic()
        view = self._look_around(now, anew)
        report = self._by_nvml(view, now, anew)
        if report is None:
            report = self._by_smi(view, now)
        return report if report is not None else self._nothing(view)

    def _look_around(self, now: float, anew: bool) -> KernelView:
        """The kernel's list, and whether the library on disk is still the one that this process holds."""
        from .nvml import loaded_library, version_on_disk

        before = self._view
        if before is not None and not anew and now - self._view_at < KERNEL_PACE:
            return before
        self._view, self._view_at = self._kernel.view(), now
        if before is not None and before.buses != self._view.buses and self._nvml is not None:
            self._close()
        loaded = loaded_library()
        if loaded is not None:
            version, self._is_replaced = version_on_disk(loaded)
            if version is not None:
                self._library = version
        return self._view

    # ---- NVML

    def _by_nvml(self, view: KernelView, now: float, anew: bool) -> Report | None:
        from .nvml import Nvml, Unavailable, library_version

        try:
            if self._nvml is None:
                if now < self._retry_at and not anew:
                    return None
                self._nvml = Nvml(self._progress)
                self._retry = FIRST_RETRY
                anew = True
            rows = self._nvml.rows(now, anew)
        except Unavailable as unavailable:
            self._close()
            self._fault = unavailable.fault
            if self._fault.number == MISMATCH:
                self._library = _value(library_version())
            self._retry_at, self._retry = now + self._retry, min(self._retry * 2, LONGEST_RETRY)
            return None
        self._fault = None
        nvml = self._nvml
        library = self._library if self._is_replaced else _value(nvml.library)
        return self._report("nvml", rows, view, driver=nvml.driver, library=library, cuda=_value(nvml.cuda))

    def _close(self) -> None:
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None
        self._progress[0] = 0

    # ---- nvidia-smi

    def _by_smi(self, view: KernelView, now: float) -> Report | None:
        if self._fault is None or self._fault.number not in (LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND):
            self._smi = self._smi_report = None
            return None
        if self._smi is None:
            path = find_smi()
            if path is None:
                return None
            self._smi = Smi(path)
        if self._smi_report is None or now - self._smi_at >= SMI_PACE:
            rows, driver, trouble = self._smi.read([gpu.bus for gpu in view.gpus])
            self._smi_at = now
            self._smi_report = self._report("nvidia-smi", rows, view, driver=driver, trouble=trouble)
        return self._smi_report

    # ---- what all have in common

    def _nothing(self, view: KernelView) -> Report:
        found = self._fault
        if found is None or (found.number == LIBRARY_NOT_FOUND and not view.gpus and view.driver is None):
            return self._report("none", [], view)
        detail = found.words
        if found.number == DRIVER_NOT_LOADED and not view.gpus:
            detail = f"{detail}, and no NVIDIA GPU is on the PCI bus"
        if found.number == MISMATCH:
            detail = f"{detail}: running jobs keep working, new ones fail; reboot or reload the module"
        return self._report("none", [], view, trouble=missing(found.missing["missing"], detail))

    def _report(
        self,
        source: str,
        rows: list[Report],
        view: KernelView,
        driver: Any = None,
        library: Any = None,
        cuda: Any = None,
        trouble: dict[str, str] | None = None,
    ) -> Report:
        more = max(0, len(rows) - MOST_ROWS) + (self._nvml.more if self._nvml is not None else 0)
        # Of those that are left out, the kernel's list would be taken for GPUs that the driver lacks.
        rows = identified(rows[:MOST_ROWS], [] if more else view.gpus, trouble)
        more += max(0, len(rows) - MOST_ROWS)
        rows = rows[:MOST_ROWS]
        notes = left_out(more) + keep_biggest(rows)
        self._enricher.add(rows, time.monotonic())
        notes += self._enricher.notes
        count: Any = len(view.gpus)
        if rows and not view.gpus:
            count = missing("unsupported", "these GPUs are not on the PCI bus")
        return {
            "gpus": rows,
            "source": source,
            "driver": view.driver or _value(driver) or missing("not_found", "no NVIDIA driver is loaded"),
            "library": library or self._library,
            "cuda": cuda or missing("not_found"),
            "kernel_count": count,
            "passed_through": len(view.passed_through),
            "passed_through_buses": list(view.passed_through),
            "notes": notes,
            "trouble": trouble,
            "read_at": round(time.time(), 3),
        }


def _value(answer: Any) -> Any:
    return answer.missing if isinstance(answer, Fault) else answer
