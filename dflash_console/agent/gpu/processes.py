"""Who holds memory on a GPU: the driver's lists merged, and each process told by what /proc knows of it."""

from __future__ import annotations

import time

from ..procs import read_process, start_ticks
from ..section import missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    Process = dict[str, Any]

__all__ = ["Enricher", "hidden_memory", "keep_biggest", "merged"]

MOST_PROCESSES = 256
"""On one GPU, as the console takes them (bounds.MOST_PROCESSES)."""

NOT_AVAILABLE = (1 << 64) - 1
UNKNOWN_MEMORY = missing("unsupported", "not available")
MOST_MEMORY = 1 << 50
MOST_PID = 1 << 22
"""The kernel's own limit for /proc/sys/kernel/pid_max; ours says nothing of pids of another namespace."""
MEBIBYTE = 1 << 20

NOISE = 256 * MEBIBYTE
"""What an idle GPU may show as used with nobody on it."""

NOISE_WITH_RESERVED = 1024 * MEBIBYTE
"""The same where the driver counts what it reserves (640 MiB on the cards known) as used."""

SAME = 3.0
"""Seconds for which a pid that holds a GPU is taken to be the same process."""

FRESH = 2.0
SETTLED = 60.0
"""Seconds for which what /proc told is reused: of a process younger than a minute, of others."""


def merged(
    listed: Iterable[tuple[str, Iterable[tuple[int, int, int]]]], memory_total: object
) -> list[Process] | dict[str, str]:
    """One entry a process, by pid, of the driver's lists: their kind (`compute` or `graphics`) and tuples
    of pid, bytes and MIG instance. A process in both lists is compute with the larger figure; its parts on
    several MIG instances add up. A list with an impossible pid or figure is Missing as a whole: some
    drivers shift the records' members against each other.
    """
    most = memory_total if isinstance(memory_total, int) else MOST_MEMORY
    kinds: dict[int, str] = {}
    parts: dict[tuple[int, int], int] = {}
    for kind, records in listed:
        for pid, memory, instance in records:
            if not 0 < pid <= MOST_PID:
                return missing("error", f"process list unreliable: pid {pid}")
            if memory == NOT_AVAILABLE:
                memory = -1
            elif memory > most:
                return missing("error", f"process list unreliable: {memory} bytes of pid {pid}")
            kinds.setdefault(pid, kind)
            parts[pid, instance] = max(memory, parts.get((pid, instance), -1))
    totals: dict[int, int] = {}
    for (pid, _), memory in parts.items():
        known = totals.get(pid, -1)
        totals[pid] = max(memory, known) if min(memory, known) < 0 else memory + known
    return [
        {"pid": pid, "memory": total if total >= 0 else UNKNOWN_MEMORY, "kind": kinds[pid]}
        for pid, total in sorted(totals.items())
    ]


def hidden_memory(used: int, reserved: object, found: list[Process] | dict[str, str]) -> int:
    """Bytes in use while the list of processes is empty: they belong to processes of another PID
    namespace."""
    if found != []:
        return 0
    noise = NOISE if isinstance(reserved, int) else NOISE_WITH_RESERVED
    return used if used > noise else 0


def keep_biggest(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Leaves each row no more than MOST_PROCESSES, those with the most memory; what is left out, for people."""
    notes = []
    for row in rows:
        found = row["processes"]
        if isinstance(found, dict) or len(found) <= MOST_PROCESSES:
            continue
        biggest = sorted(found, key=_memory, reverse=True)[:MOST_PROCESSES]
        row["processes"] = sorted(biggest, key=lambda process: int(process["pid"]))
        more = len(found) - MOST_PROCESSES
        notes.append(f"GPU {row['index']}: {more} more processes not shown (limit {MOST_PROCESSES})")
    return notes


def _memory(process: Process) -> int:
    return process["memory"] if isinstance(process["memory"], int) else -1


class Enricher:
    """Adds what /proc knows (user, command, start, venv, unit) to the processes of GPU rows. `look` gives
    the facts of a pid, None when it is not in this PID namespace; `started` tells one process of a pid from
    the next."""

    def __init__(
        self,
        look: Callable[[int], Process | None] = read_process,
        started: Callable[[int], int | None] = start_ticks,
    ) -> None:
        self._look = look
        self._started = started
        self._known: dict[int, _Known] = {}

    @property
    def notes(self) -> list[str]:
        """What was left out in looking at the processes, for people."""
        return [
            f"process {pid}: its environment is not known, {known.unsearched} more folders on its PATH not looked at"
            for pid, known in sorted(self._known.items())
            if known.unsearched
        ]

    def add(self, rows: Iterable[dict[str, Any]], now: float) -> None:
        """Completes the processes of all rows in place; forgets those that hold no GPU any more."""
        seen: dict[int, _Known] = {}
        for row in rows:
            found = row["processes"]
            if isinstance(found, dict):
                continue
            for process in found:
                pid = process["pid"]
                known = seen.get(pid)
                if known is None:
                    known = seen[pid] = self._current(pid, self._known.get(pid), now)
                process.update(known.facts)
        self._known = seen

    def _current(self, pid: int, known: _Known | None, now: float) -> _Known:
        if known is not None and now < known.same_until:
            return known
        started = self._started(pid)
        if known is None or started != known.started or now >= known.read_until:
            known = _Known(started, self._look(pid), now)
        known.same_until = now + SAME
        return known


class _Known:
    """A process that holds a GPU."""

    __slots__ = ("facts", "read_until", "same_until", "started", "unsearched")

    def __init__(self, started: int | None, told: Process | None, now: float) -> None:
        self.started = started
        self.same_until = now
        self.unsearched = int(told.get("unsearched", 0)) if told is not None else 0
        if told is None:
            self.facts: Process = {"command": missing("not_found", "not visible here")}
            self.read_until = now + FRESH
            return
        self.facts = {key: told[key] for key in ("user", "command", "started", "venv", "unit")}
        self.read_until = now + (SETTLED if time.time() - told["started"] > 60 else FRESH)
