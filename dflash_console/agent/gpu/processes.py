"""Who holds memory on a GPU: the driver's lists merged, and each process told by what /proc knows of it."""

from __future__ import annotations

from ..procs import read_process
from ..section import missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    Process = dict[str, Any]

__all__ = ["Enricher", "hidden_memory", "merged", "most_pid"]

NOT_AVAILABLE = (1 << 64) - 1
MEBIBYTE = 1 << 20

NOISE = 256 * MEBIBYTE
"""What an idle GPU may show as used with nobody on it."""

NOISE_WITH_RESERVED = 1024 * MEBIBYTE
"""The same where the driver counts what it reserves (640 MiB on the cards known) as used."""

LOOKS_PACE = 3.0
"""Seconds for which a process that was looked up is taken to be the same one."""


def most_pid() -> int:
    """The largest pid that this kernel gives."""
    try:
        with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 1 << 22


def merged(
    listed: Iterable[tuple[str, Iterable[Any]]], memory_total: object, highest_pid: int = 1 << 22
) -> list[Process] | dict[str, str]:
    """One entry a process, by pid, of the driver's lists (`compute` or `graphics`, records with pid,
    usedGpuMemory and gpuInstanceId). A process in both lists is compute with the larger figure; its parts
    on several MIG instances add up. A list with an impossible pid or figure is Missing as a whole: some
    drivers shift the records' members.
    """
    most = memory_total if isinstance(memory_total, int) else 1 << 50
    parts: dict[int, dict[int, Process]] = {}
    for kind, records in listed:
        for record in records:
            memory = record.usedGpuMemory
            if memory is None or memory == NOT_AVAILABLE:
                memory = missing("unsupported", "not available")
            elif memory > most:
                return missing("error", f"process list unreliable: {memory} bytes of pid {record.pid}")
            if not 0 < record.pid <= highest_pid:
                return missing("error", f"process list unreliable: pid {record.pid}")
            instances = parts.setdefault(record.pid, {})
            known = instances.get(record.gpuInstanceId)
            if known is None:
                instances[record.gpuInstanceId] = {"pid": record.pid, "memory": memory, "kind": kind}
            elif not isinstance(memory, dict) and (
                isinstance(known["memory"], dict) or memory > known["memory"]
            ):
                known["memory"] = memory
    return [_sum(list(parts[pid].values())) for pid in sorted(parts)]


def _sum(instances: list[Process]) -> Process:
    total = instances[0]
    for other in instances[1:]:
        if isinstance(total["memory"], dict) or isinstance(other["memory"], dict):
            continue
        total["memory"] += other["memory"]
    return total


def hidden_memory(used: int, reserved: object, found: list[Process] | dict[str, str]) -> int:
    """Bytes in use while the list of processes is empty: they belong to processes of another PID
    namespace."""
    if found != []:
        return 0
    noise = NOISE if isinstance(reserved, int) else NOISE_WITH_RESERVED
    return used if used > noise else 0


class Enricher:
    """Adds what /proc knows (user, command, start, venv, unit) to the processes of GPU rows. `look` gives
    the facts of a pid, None when it is not in this PID namespace."""

    def __init__(self, look: Callable[[int], Process | None] = read_process) -> None:
        self._look = look
        self._known: dict[int, tuple[float, Process]] = {}

    def add(self, rows: Iterable[dict[str, Any]], now: float) -> None:
        """Completes the processes of all rows in place; forgets those that hold no GPU any more."""
        seen: dict[int, tuple[float, Process]] = {}
        for row in rows:
            found = row["processes"]
            if isinstance(found, dict):
                continue
            for process in found:
                pid = process["pid"]
                known = seen.get(pid) or self._known.get(pid)
                if known is None or now >= known[0]:
                    known = (now + LOOKS_PACE, _facts(self._look(pid)))
                seen[pid] = known
                process.update(known[1])
        self._known = seen


def _facts(told: Process | None) -> Process:
    if told is None:
        return {"command": missing("not_found", "not visible here")}
    return {key: told[key] for key in ("user", "command", "started", "venv", "unit")}
