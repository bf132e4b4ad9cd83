"""The check `driver`: whether the NVIDIA driver is new enough for the CUDA that torch was built for.

NVIDIA's rule (CUDA Compatibility): a driver runs all CUDA of its own major version and older ones; a newer major
version needs the first driver of that version, unless the cuda-compat package stands in.
"""

from __future__ import annotations

import re

from ..gpu.kernel import driver_version
from ..verify.checks import check

__all__ = ["check_driver", "driver_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .environment import Environment

VERSION_FILE = "/proc/driver/nvidia/version"
FIRST = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
"""CUDA's major version -> the first Linux driver for all of it (CUDA toolkit release notes, table 2)."""


def check_driver(environment: Environment, message: dict[str, Any]) -> dict[str, Any]:
    """The check."""
    torch, cuda = environment.torch, environment.torch_cuda
    driver = driver_of(message)
    if not torch:
        return check("driver", "unknown", "no torch whose CUDA could be compared")
    if not driver:
        built = f"CUDA {cuda}" if cuda else "no CUDA"
        return check(
            "driver", "unknown", f"no NVIDIA driver on this host; torch {torch} is built for {built}"
        )
    if not cuda:
        return check("driver", "fail", f"torch {torch} is built without CUDA: it can't use the GPUs here")
    most = str((message.get("driver") or {}).get("cuda") or "")
    lines = [f"driver {driver}, up to CUDA {most or 'not told'}", f"torch {torch}, built for CUDA {cuda}"]
    wanted = int(cuda.partition(".")[0])
    first = FIRST.get(wanted)
    needs = f" (needs {'.'.join(map(str, first))} or newer)" if first else ""
    if re.fullmatch(r"\d+\.\d+", most):
        is_new_enough = int(most.partition(".")[0]) >= wanted
    elif first:
        is_new_enough = _numbers(driver) >= first
    else:
        return check(
            "driver", "unknown", f"the driver {driver} does not tell its CUDA; torch wants {cuda}", lines
        )
    if not is_new_enough:
        detail = (
            f"driver {driver} is too old for torch {torch}, built for CUDA {cuda}{needs}: update the driver"
        )
        return check("driver", "fail", detail, lines)
    if most and _numbers(most) < _numbers(cuda) and int(most.partition(".")[0]) == wanted:
        lines.append(
            "of the same major version, which is enough for compiled kernels; newer PTX is not translated"
        )
    return check("driver", "pass", f"driver {driver} runs CUDA {cuda}", lines)


def driver_of(message: dict[str, Any]) -> str:
    """The kernel module's version: as the console knows it, else as it says itself; empty without one."""
    told = (message.get("driver") or {}).get("version")
    if told:
        return str(told)
    try:
        with open(VERSION_FILE, encoding="utf-8", errors="replace") as file:
            return driver_version(file.read(4096)) or ""
    except OSError:
        return ""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
