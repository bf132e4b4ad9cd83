"""The part `cuda`: whether CUDA can use the GPUs that NVML lists, each asked in a process with a deadline.

A GPU that is in use is only enumerated: no context is opened on it unless that is asked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time

from ..child import die_with_parent
from ..gpu.kernel import ProcessState
from ..verify.checks import check
from .cuda_codes import OUT_OF_MEMORY, UNAVAILABLE, told
from .cuda_probe import LIBRARY, NAME, probe
from .driver import driver_of

__all__ = ["work"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..child import Channel

SPARE = 3.0
"""Seconds of the limit that are left for the answer."""
GPUS_FOLDER = "/proc/driver/nvidia/gpus"
MODES = {2: "prohibited", 3: "exclusive"}
"""Compute modes that keep others out; 0 is the default."""


def work(channel: Channel, message: dict[str, Any]) -> None:
    """Sends a check `cuda GPU` for each GPU, by its UUID, else by its index; `cuda` alone when there is none."""
    deadline = time.monotonic() + max(1.0, float(message["limit"]) - SPARE)
    driver = driver_of(message)
    gpus = list(message.get("gpus") or [])
    if not gpus:
        words = "the driver lists no GPU" if driver else "no NVIDIA driver on this host"
        channel.send({"checks": [check("cuda", "unknown", words)], "facts": {}})
        return
    minors = _minors()
    probes = [_Probe(gpu, bool(message.get("force")), minors) for gpu in gpus]
    _listen(probes, deadline)
    # One that hangs inside the driver can't be ended, and is not waited for.
    channel.send({"checks": [_judge(found, driver) for found in probes], "facts": {}})


class _Probe:
    """One GPU's process, and what it has told."""

    def __init__(self, gpu: dict[str, Any], force: bool, minors: dict[str, int]) -> None:
        self.gpu = gpu
        self.is_busy = bool(gpu.get("busy"))
        self.may_open = force or not self.is_busy
        self.told: dict[str, Any] = {}
        self.steps: list[str] = []
        self.status: int | None = None
        """How the process ended; None while it has not."""
        self.started = time.monotonic()
        self.seconds = 0.0
        self.hanging: ProcessState | None = None
        """How it hung at the deadline."""
        self.stuck = _stuck(f"{NAME}{gpu.get('index', '?')}"[:15])
        """The pid of an earlier one that hangs in the driver; then none is started."""
        self.pid, self.fd = (0, -1) if self.stuck else self._start(minors.get(str(gpu.get("uuid"))))
        self._rest = b""

    @property
    def name(self) -> str:
        return f"cuda {self.gpu.get('uuid') or self.gpu.get('index')}"

    def read(self) -> bool:
        """Take what it has written; False at its end."""
        data = os.read(self.fd, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            values = json.loads(line)
            if "step" in values:
                self.steps.append(values.pop("step"))
            self.told.update(values)
        if not data:
            os.close(self.fd)
            self.fd = -1
            self.status = os.waitpid(self.pid, 0)[1]
            self.seconds = time.monotonic() - self.started
        return bool(data)

    def give_up(self) -> None:
        """Its time is over."""
        self.seconds = time.monotonic() - self.started
        self.hanging = ProcessState(self.pid)
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)

    def _start(self, minor: int | None) -> tuple[int, int]:
        reading, writing = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                die_with_parent(parent)
                os.close(reading)
                probe(self.gpu, self.may_open, minor, lambda values: _write(writing, values))
            except BaseException as error:  # noqa: BLE001 - the top of a process; told to its parent
                with contextlib.suppress(OSError):
                    _write(writing, {"failed": "probe", "words": f"{type(error).__name__}: {error}"})
            finally:
                os._exit(0)
        os.close(writing)
        return pid, reading


def _write(fd: int, values: dict[str, Any]) -> None:
    os.write(fd, json.dumps(values).encode("ascii") + b"\n")


def _listen(probes: list[_Probe], deadline: float) -> None:
    """Until all have ended, or the deadline."""
    waiting = {found.fd: found for found in probes if found.fd >= 0}
    while waiting:
        rest = deadline - time.monotonic()
        ready = select.select(list(waiting), [], [], max(0.0, rest))[0] if rest > 0 else []
        if not ready:
            break
        for fd in ready:
            if not waiting[fd].read():
                del waiting[fd]
    for found in waiting.values():
        found.give_up()


def _judge(found: _Probe, driver: str) -> dict[str, Any]:
    told_values = found.told
    nodes = [str(fault) for fault in told_values.get("nodes", ())]
    lines = [f"{step}" for step in found.steps] + nodes
    if found.stuck:
        state = ProcessState(found.stuck)
        where = f" in {state.wchan}" if state.wchan else ""
        detail = (
            f"hung: an earlier try (process {found.stuck}) still hangs in the driver{where}; not asked again"
        )
        return check(found.name, "fail", detail)
    step = found.steps[-1] if found.steps else "the start"
    if found.status is None:
        waits = found.hanging
        where = f", process {waits.pid} in state {waits.state} {waits.wchan}".rstrip() if waits else ""
        detail = (
            f"hung: no answer to {step} within {found.seconds:.0f} s{where}; look at the kernel log for Xid"
        )
        return check(found.name, "fail", detail, lines)
    if os.WIFSIGNALED(found.status):
        detail = f"{LIBRARY} crashed in {step} (signal {os.WTERMSIG(found.status)})"
        return check(found.name, "fail", detail, lines)
    if "failed" in told_values:
        return _failed(found, nodes, lines, driver)
    return _answered(found, lines)


def _failed(found: _Probe, nodes: list[str], lines: list[str], driver: str) -> dict[str, Any]:
    values = found.told
    if "number" not in values:
        words = str(values.get("words", ""))
        if values["failed"] == "load" and not driver:
            return check(found.name, "unknown", f"no NVIDIA driver on this host: {words}", lines)
        if values["failed"] == "load":
            words += f"; the driver {driver} is there, its libraries are not: in a container, pass them on"
        return check(found.name, "fail", words, lines)
    number = int(values["number"])
    words = f"{values['failed']}: {told(number, str(values.get('name', '')))}"
    lines.append(words)
    mode = MODES.get(int(values.get("mode", 0)))
    if number == UNAVAILABLE and mode == "exclusive":
        words = f"held by another process: its compute mode is exclusive ({values['failed']}: error {number})"
        return check(found.name, "warn" if found.is_busy else "fail", words, lines)
    if number == UNAVAILABLE and mode == "prohibited":
        words = f"its compute mode is prohibited (error {number}): nvidia-smi -c DEFAULT lets processes in"
        return check(found.name, "fail", words, lines)
    if number == OUT_OF_MEMORY:
        return check(found.name, "warn", words, lines)
    if nodes:
        words = f"{'; '.join(nodes)}: {words}"
    return check(found.name, "fail", words, lines)


def _answered(found: _Probe, lines: list[str]) -> dict[str, Any]:
    values = found.told
    uuid, uuids = found.gpu.get("uuid"), values.get("uuids") or []
    lines.append(f"{values['label']}, {', '.join(uuids) or 'no UUID'}, CUDA {values['cuda']}")
    if str(uuid).startswith("GPU-") and uuids and str(uuid).lower() not in map(str.lower, uuids):
        detail = f"CUDA shows another GPU in its place: {values['label']}, {uuids[0]}"
        return check(found.name, "fail", detail, lines)
    mode = MODES.get(int(values.get("mode", 0)))
    exclusive = f"; its compute mode is {mode}" if mode else ""
    if values.get("opened"):
        took = f"{found.seconds:.1f} s{exclusive}"
        detail = f"{values['label']}: CUDA {values['cuda']} opened and closed a context in {took}"
        return check(found.name, "pass", detail, lines)
    detail = (
        f"in use, not disturbed: CUDA {values['cuda']} lists {values['label']}{exclusive}; "
        "not tested: whether a context can be opened"
    )
    return check(found.name, "pass", detail, lines)


def _minors() -> dict[str, int]:
    """The number in /dev/nvidiaN of each GPU, by UUID, as far as the driver tells."""
    found = {}
    try:
        buses = os.listdir(GPUS_FOLDER)
    except OSError:
        return {}
    for bus in buses:
        facts = {}
        with contextlib.suppress(OSError), open(
            f"{GPUS_FOLDER}/{bus}/information", encoding="ascii", errors="replace"
        ) as file:
            for line in file.read(4096).splitlines():
                key, _, value = line.partition(":")
                facts[key.strip()] = value.strip()
        if facts.get("Device Minor", "").isdigit():
            found[facts.get("GPU UUID", "")] = int(facts["Device Minor"])
    return found


def _stuck(name: str) -> int:
    """The process of that name that hangs in the kernel; 0 for none."""
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError), open(
            f"/proc/{pid}/comm", encoding="utf-8", errors="replace"
        ) as file:
            if file.read().strip() == name and ProcessState(int(pid)).state == "D":
                return int(pid)
    return 0
