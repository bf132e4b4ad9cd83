"""The GPUs of a host: `GpuSection` is the agent's section.

`section` minds the child, `reader` is the child, which reads by `nvml` (`device`, `calls`) or `smi`. Pure
are `codes`, `health`, `rows` and what `processes` merges; `kernel` asks the kernel instead of the driver.
"""

from __future__ import annotations

from .section import GpuSection

__all__ = ["GpuSection"]
