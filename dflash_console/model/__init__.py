"""The vocabulary of the console, and its wire format.

The agent's JSON decodes straight into these frozen structs, and nothing beyond their bounds does. Sizes are
bytes, temperatures Celsius, power watts, shares percent, durations seconds; points in time are seconds since 1970
(UTC) of the clock that the docstring names.
"""

from __future__ import annotations

from dflash_console.model.cells import (
    SECTIONS,
    Health,
    Level,
    LinkState,
    Missing,
    Reason,
    Role,
    Section,
    is_missing,
)
from dflash_console.model.console import Finding, LinkStatus
from dflash_console.model.gpus import Gpu, GpuProcess, GpuReport, gpu_key
from dflash_console.model.host import (
    Copied,
    Filesystem,
    HostInfo,
    Origin,
    Package,
    PathInfo,
    Snapshot,
    Unit,
    Venv,
    decode_cell,
)
from dflash_console.model.messages import PROTOCOL, Answer, FromAgent, Hello, Note, Sample, WatchSpec

__all__ = [
    "PROTOCOL",
    "SECTIONS",
    "Answer",
    "Copied",
    "Filesystem",
    "Finding",
    "FromAgent",
    "Gpu",
    "GpuProcess",
    "GpuReport",
    "Health",
    "Hello",
    "HostInfo",
    "Level",
    "LinkState",
    "LinkStatus",
    "Missing",
    "Note",
    "Origin",
    "Package",
    "PathInfo",
    "Reason",
    "Role",
    "Sample",
    "Section",
    "Snapshot",
    "Unit",
    "Venv",
    "WatchSpec",
    "decode_cell",
    "gpu_key",
    "is_missing",
]
