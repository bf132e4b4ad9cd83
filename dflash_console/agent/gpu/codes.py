"""What the driver's numbers mean. NVML's errors are classified by number, never by text: pynvml and
nvidia-smi word them differently, and both change theirs."""

from __future__ import annotations

from ..section import missing

__all__ = ["Fault", "action_name", "action_words", "fault", "slowdown_names"]

UNINITIALIZED = 1
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
LOST = 15
RESET_REQUIRED = 16
OPERATING_SYSTEM = 17
MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25
GPU_NOT_FOUND = 28
UNKNOWN = 999
ODD_ANSWER = -1
"""Ours: the call went well and its answer can't be used."""

ERRORS = {
    UNINITIALIZED: ("error", "NVML is not initialized"),
    2: ("error", "invalid argument"),
    NOT_SUPPORTED: ("unsupported", "not supported"),
    NO_PERMISSION: ("permission", "insufficient permissions"),
    NOT_FOUND: ("not_found", "not found"),
    INSUFFICIENT_SIZE: ("error", "insufficient size"),
    8: ("error", "external power cables are not attached"),
    DRIVER_NOT_LOADED: ("not_found", "the NVIDIA driver is not loaded"),
    10: ("error", "timeout"),
    11: ("error", "interrupt request issue"),
    LIBRARY_NOT_FOUND: ("not_found", "libnvidia-ml.so.1 can't be loaded"),
    FUNCTION_NOT_FOUND: ("unsupported", "the driver is too old for it"),
    14: ("error", "corrupted infoROM"),
    LOST: ("lost", "GPU is lost"),
    RESET_REQUIRED: ("reset_required", "GPU requires reset"),
    OPERATING_SYSTEM: ("permission", "blocked by the operating system (device cgroup)"),
    MISMATCH: ("mismatch", "driver/library version mismatch"),
    19: ("error", "in use"),
    20: ("error", "insufficient memory"),
    21: ("error", "no data"),
    ARGUMENT_VERSION_MISMATCH: ("unsupported", "the driver does not know this version of it"),
    26: ("unsupported", "deprecated"),
    27: ("error", "not ready"),
    GPU_NOT_FOUND: ("not_found", "no GPU was found"),
    29: ("error", "invalid state"),
    UNKNOWN: ("error", "unknown error"),
}
"""Number (nvml.h, nvmlReturn_t) -> (reason of model.Missing, words as nvidia-smi has them)."""

ACTIONS = {
    0: ("none", ""),
    1: ("reset", "GPU Reset"),
    2: ("reboot", "Node Reboot"),
    3: ("drain_p2p", "Drain P2P"),
    4: ("drain_and_reset", "Drain and Reset"),
    5: ("recover_imex", "Recover IMEX"),
    6: ("bus_reset", "Bus Reset"),
    7: ("system_reboot", "System Reboot"),
}
"""NVML field 230 (nvmlDeviceGpuRecoveryAction_t) -> (model.Gpu.recovery_action, the driver's words)."""

SLOWDOWNS = (
    (0x002, "applications_clocks_setting"),
    (0x004, "sw_power_cap"),
    (0x008, "hw_slowdown"),
    (0x010, "sync_boost"),
    (0x020, "sw_thermal_slowdown"),
    (0x040, "hw_thermal_slowdown"),
    (0x080, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
    (0x200, "board_limit"),
    (0x400, "reliability"),
)
"""nvml.h's nvmlClocksEventReason bits but the first, which is an idle GPU."""

KNOWN_SLOWDOWNS = 0x7FF


class Fault:
    """A call's error: `number` as NVML gave it, `words`, and `missing`, which stands in the value's place."""

    __slots__ = ("missing", "number", "words")

    def __init__(self, number: int, words: str = "") -> None:
        reason, known = ERRORS.get(number, ("error", "error"))
        self.number = number
        self.words = words or f"{known} ({number})"
        self.missing = missing(reason, self.words)


_known: dict[int, Fault] = {}


def fault(number: int) -> Fault:
    """The one Fault of a number; made once, since lost GPUs answer every call with the same."""
    found = _known.get(number)
    if found is None:
        found = _known[number] = Fault(number)
    return found


def action_name(number: int) -> str:
    """A recovery action's name for the wire; an unknown one is `action N`."""
    return ACTIONS[number][0] if number in ACTIONS else f"action {number}"


def action_words(name: str) -> str:
    """The driver's own words for a recovery action's name."""
    for known, words in ACTIONS.values():
        if known == name:
            return words
    return name


def slowdown_names(mask: int) -> list[str]:
    """The active clocks event reasons of a mask by name; an unknown bit is named by its value."""
    names = [name for bit, name in SLOWDOWNS if mask & bit]
    unknown = mask & ~KNOWN_SLOWDOWNS
    if unknown:
        names.append(f"reason 0x{unknown:x}")
    return names
