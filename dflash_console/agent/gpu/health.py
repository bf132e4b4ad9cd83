"""Whether a GPU is fit for work, judged from what its calls answered. Pure."""

from __future__ import annotations

from .codes import (
    GPU_NOT_FOUND,
    LOST,
    NOT_FOUND,
    RESET_REQUIRED,
    UNKNOWN,
    Fault,
    action_words,
    fault,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping

__all__ = ["HANDLE", "judge"]

HANDLE = "handle"
"""The name under which the fault of nvmlDeviceGetHandleByIndex is kept."""

VITAL = ("utilization", "memory", "temperature", "power")
"""The calls of which at least one answers on any GPU that a driver runs."""

LOST_ADVICE = "reboot or power-cycle the host"
RESET_ADVICE = "stop what uses it, then reset it or reboot"


def judge(faults: Mapping[str, Fault], row: Mapping[str, Any]) -> tuple[str, str]:
    """A model.Health and its detail, worst first; the detail is empty when the GPU is ok.

    `faults` are the calls that failed in this reading, by name; the values are read from `row` (model.Gpu's
    keys). A call that the GPU does not support is no fault of the GPU's.
    """
    wants = _wants(row)
    health, cause = _verdict(faults)
    if health == "ok" and wants:
        health = "attention"
    return health, "; ".join([*cause, *wants])


def _verdict(faults: Mapping[str, Fault]) -> tuple[str, list[str]]:
    numbers = {found.number for found in faults.values()}
    handle = faults.get(HANDLE)
    if LOST in numbers:
        return "lost", [f"{fault(LOST).words}: {LOST_ADVICE}"]
    if RESET_REQUIRED in numbers:
        return "reset_required", [f"{fault(RESET_REQUIRED).words}: {RESET_ADVICE}"]
    if handle is not None:
        if handle.number in (UNKNOWN, NOT_FOUND, GPU_NOT_FOUND):
            return "lost", [f"no device handle, {handle.words}: {LOST_ADVICE}"]
        return "unreadable", [f"no device handle, {handle.words}"]
    failed = {name: faults[name] for name in VITAL if name in faults and _is_failure(faults[name])}
    if failed and not any(name not in faults for name in VITAL):
        return "unreadable", _told(failed)
    if "utilization" in failed and "power" in failed and "temperature" not in faults:
        return "attention", [f"half dead: {', '.join(_told(failed))}, while the temperature reads"]
    return ("attention", _told(failed)) if failed else ("ok", [])


def _is_failure(found: Fault) -> bool:
    return bool(found.missing["missing"] != "unsupported")


def _told(failed: Mapping[str, Fault]) -> list[str]:
    """The failed calls, those with the same words together: `utilization and power: unknown error (999)`."""
    by_words: dict[str, list[str]] = {}
    for name, found in failed.items():
        by_words.setdefault(found.words, []).append(name)
    return [f"{' and '.join(names)}: {words}" for words, names in by_words.items()]


def _wants(row: Mapping[str, Any]) -> list[str]:
    """What the driver asks for, worst first."""
    wants = []
    action = row.get("recovery_action")
    if isinstance(action, str) and action != "none":
        wants.append(f"recovery action: {action_words(action)}")
    if row.get("remap_failed") is True:
        wants.append("a row remap failed: the memory needs service")
    uncorrected = row.get("ecc_uncorrected")
    if isinstance(uncorrected, int) and uncorrected > 0:
        plural = "" if uncorrected == 1 else "s"
        wants.append(f"{uncorrected} uncorrected ECC error{plural} since the driver was loaded")
    if row.get("remap_pending") is True:
        wants.append("a row remap is pending until the next reset")
    return wants
