"""CUDA's error numbers (cuda.h, cudaError_enum) as an operator needs them: what it means, and what to do."""

from __future__ import annotations

__all__ = ["NO_DEVICE", "OUT_OF_MEMORY", "UNAVAILABLE", "told"]

OUT_OF_MEMORY = 2
UNAVAILABLE = 46
NO_DEVICE = 100

CODES = {
    1: ("INVALID_VALUE", "an invalid argument", ""),
    OUT_OF_MEMORY: ("OUT_OF_MEMORY", "its memory is full", "it is in use, not broken: see who holds it"),
    3: (
        "NOT_INITIALIZED",
        "the driver could not be initialised",
        "look at /dev/nvidia-uvm and the kernel log; in a container, pass the device on again",
    ),
    4: ("DEINITIALIZED", "the driver is shutting down", "try again"),
    UNAVAILABLE: (
        "DEVICE_UNAVAILABLE",
        "busy or unavailable",
        "another process holds it exclusively, or it must be reset: see who holds it, then nvidia-smi --gpu-reset, "
        "else reboot",
    ),
    NO_DEVICE: (
        "NO_DEVICE",
        "CUDA sees no GPU",
        "look at its device nodes in /dev, and at the kernel log for RmInitAdapter and Xid",
    ),
    101: ("INVALID_DEVICE", "CUDA knows no such GPU", "look at the kernel log for Xid"),
    201: ("INVALID_CONTEXT", "an invalid context", ""),
    214: (
        "ECC_UNCORRECTABLE",
        "an uncorrectable memory error",
        "reset the GPU; if it comes back, replace it",
    ),
    219: (
        "NVLINK_UNCORRECTABLE",
        "an uncorrectable NVLink error",
        "reset the GPU; if it comes back, look at the link",
    ),
    304: (
        "OPERATING_SYSTEM",
        "the operating system refused a call",
        "look at limits and at the device cgroup",
    ),
    600: ("NOT_READY", "not ready", "try again"),
    700: ("ILLEGAL_ADDRESS", "an illegal address", "reset the GPU"),
    719: ("LAUNCH_FAILED", "a launch failed", "reset the GPU"),
    800: ("NOT_PERMITTED", "not permitted", "look at who may use the device"),
    801: ("NOT_SUPPORTED", "not supported", ""),
    802: (
        "SYSTEM_NOT_READY",
        "the system is not ready",
        "start nvidia-fabricmanager (HGX, NVSwitch), of the driver's version",
    ),
    803: (
        "SYSTEM_DRIVER_MISMATCH",
        "kernel module and library are of different versions",
        "reboot, or load the new module; in a container, use the host's libraries",
    ),
    804: (
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "the cuda-compat libraries do not serve this GPU",
        "take cuda-compat off LD_LIBRARY_PATH, or update the driver",
    ),
    999: (
        "UNKNOWN",
        "unknown error",
        "mostly /dev/nvidia-uvm is missing or of another major number: nvidia-modprobe -u, or pass it on again",
    ),
}
"""Number -> (name without CUDA_ERROR_, meaning, what to do)."""


def told(number: int, name: str = "") -> str:
    """An error in words: number, name, meaning and what to do. `name` is the driver's, for one not known here."""
    known, meaning, remedy = CODES.get(number, (name.replace("CUDA_ERROR_", "") or "not known here", "", ""))
    words = f"error {number} {known}"
    if meaning:
        words += f", {meaning}"
    return f"{words}: {remedy}" if remedy else words
