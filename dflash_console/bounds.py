"""How large a value from a host can be: the console decodes nothing beyond, whatever an agent sends.

The bounds are wide enough for all that a real host can say and narrow enough that every sum, ratio, clock and
gauge made of them can be computed and drawn.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

__all__ = [
    "MOST_GPUS",
    "MOST_ITEMS",
    "MOST_NAMES",
    "MOST_PROCESSES",
    "Bytes",
    "Celsius",
    "Count",
    "Index",
    "Load",
    "Percent",
    "Pid",
    "Port",
    "Seconds",
    "Time",
    "Watts",
]

_MOST = (1 << 63) - 1

Bytes: TypeAlias = Annotated[int, Meta(ge=0, le=_MOST)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=_MOST)]
Index: TypeAlias = Annotated[int, Meta(ge=0, le=9_999)]
"""Of a GPU."""
Pid: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
"""NVML tells 32 bits."""
Port: TypeAlias = Annotated[int, Meta(ge=0, le=65_535)]
Percent: TypeAlias = Annotated[int, Meta(ge=0, le=100)]
Celsius: TypeAlias = Annotated[int, Meta(ge=-273, le=999)]
Watts: TypeAlias = Annotated[float, Meta(ge=0, le=99_999)]
Load: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e11)]
"""A duration; 3000 years."""
Time: TypeAlias = Annotated[float, Meta(ge=0, le=1e11)]
"""A point in time, seconds since 1970 (UTC); up to the year 5138, which is one that `datetime` can tell."""

MOST_GPUS = 64
"""Of a host; a DGX has 16."""
MOST_PROCESSES = 256
"""On one GPU."""
MOST_ITEMS = 1000
"""Units, venvs or paths of a host."""
MOST_NAMES = 256
"""Modules or distributions of a venv, slowdowns of a GPU."""
