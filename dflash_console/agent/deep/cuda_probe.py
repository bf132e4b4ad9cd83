"""Asks CUDA for one GPU, in a process of its own: one bad GPU can fail or hang what is asked about all.

The process is forked and has loaded nothing of CUDA before. It tells each step before it takes it, so that its
parent knows where it hangs.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat

__all__ = ["NAME", "nodes_of", "probe"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    Tell = Callable[[dict[str, Any]], None]

NAME = "dflash-cuda-"
"""How the process is called (its comm), before the GPU's index."""
LIBRARY = "libcuda.so.1"
COMPUTE_MODE = 20
"""CU_DEVICE_ATTRIBUTE_COMPUTE_MODE."""
_PR_SET_NAME = 15


class Failed(Exception):
    """A call that gave an error."""

    def __init__(self, call: str, number: int) -> None:
        super().__init__(call, number)
        self.call = call
        self.number = number


def probe(gpu: dict[str, Any], may_open: bool, minor: int | None, tell: Tell) -> None:
    """Look at one GPU; `tell` gets {"step"} before each call, then {"failed", ...} or {"done": True, ...}."""
    _rename(f"{NAME}{gpu.get('index', '?')}")
    tell({"step": "open its device nodes"})
    tell({"nodes": nodes_of(minor)})
    # Both are read by cuInit. PCI order is the order of NVML's indexes.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu.get("uuid") or gpu.get("index", 0))
    tell({"step": f"load {LIBRARY}"})
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError as error:
        tell({"failed": "load", "words": str(error)})
        return
    try:
        _ask(cuda, gpu, may_open, tell)
    except Failed as failed:
        tell({"failed": failed.call, "number": failed.number, "name": _name_of(cuda, failed.number)})
    except AttributeError as error:
        tell({"failed": "load", "words": f"{LIBRARY} is too old or no driver's: {error}"})


def nodes_of(minor: int | None, folder: str = "/dev") -> list[str]:
    """What is wrong with the device nodes that CUDA needs."""
    names = ["nvidiactl", "nvidia-uvm", *([f"nvidia{minor}"] if minor is not None else [])]
    faults = []
    for name in names:
        path = f"{folder}/{name}"
        try:
            if not stat.S_ISCHR(os.stat(path).st_mode):
                faults.append(f"{path} is no device")
                continue
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
        except OSError as error:
            why = (
                "is not there"
                if error.errno == errno.ENOENT
                else f"can't be opened: {os.strerror(error.errno or 0)}"
            )
            if error.errno in (errno.EPERM, errno.EACCES):
                why += " (rights, or a container's device cgroup)"
            faults.append(f"{path} {why}")
    return faults


def _ask(cuda: Any, gpu: dict[str, Any], may_open: bool, tell: Tell) -> None:
    def call(name: str, *arguments: Any) -> None:
        tell({"step": name})
        number = getattr(cuda, name)(*arguments)
        if number:
            raise Failed(name, number)

    version, count, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    call("cuDriverGetVersion", ctypes.byref(version))
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    if count.value < 1:
        raise Failed("cuDeviceGetCount", 100)
    call("cuDeviceGet", ctypes.byref(device), 0)
    label = ctypes.create_string_buffer(256)
    call("cuDeviceGetName", label, 256, device)
    seen = _uuids(cuda, device, tell)
    found: dict[str, Any] = {
        "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
        "count": count.value,
        "label": label.value.decode("utf-8", "replace"),
        "uuids": seen,
    }
    mode = ctypes.c_int()
    call("cuDeviceGetAttribute", ctypes.byref(mode), COMPUTE_MODE, device)
    found["mode"] = mode.value
    tell(found)
    if may_open:
        context = ctypes.c_void_p()
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        call(
            "cuDevicePrimaryCtxRelease_v2"
            if hasattr(cuda, "cuDevicePrimaryCtxRelease_v2")
            else "cuDevicePrimaryCtxRelease",
            device,
        )
    tell({"done": True, "opened": may_open})


def _uuids(cuda: Any, device: Any, tell: Tell) -> list[str]:
    """The device's UUIDs as NVML writes them. With MIG, the newer call gives the instance's, the older the GPU's."""
    found = []
    for name in ("cuDeviceGetUuid_v2", "cuDeviceGetUuid"):
        if hasattr(cuda, name):
            data = (ctypes.c_ubyte * 16)()
            tell({"step": name})
            if getattr(cuda, name)(ctypes.byref(data), device) == 0:
                text = bytes(data).hex()
                parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
                found.append("GPU-" + "-".join(parts))
    return found


def _name_of(cuda: Any, number: int) -> str:
    text = ctypes.c_char_p()
    try:
        cuda.cuGetErrorName(number, ctypes.byref(text))
    except AttributeError:
        return ""
    return text.value.decode("ascii", "replace") if text.value else ""


def _rename(name: str) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode("ascii", "replace")[:15], 0, 0, 0)
