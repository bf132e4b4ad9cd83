"""A GPU keeps its row: what was known of it stands in for what a lost, hung or unlisted one no longer
tells. Pure but for the memory of the last good rows."""

from __future__ import annotations

from ..section import missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from .kernel import KernelGpu

    Row = dict[str, Any]

__all__ = ["Rows", "bare_row", "identified"]

IDENTITY = ("uuid", "bus", "name", "memory_total")
VALUES = ("utilization", "memory_used", "temperature", "power", "power_limit", "processes")
"""With IDENTITY, the keys that model.Gpu has no default for, and the processes."""

USABLE = ("ok", "attention")


def bare_row(index: int, why: dict[str, str], health: str, detail: str) -> Row:
    """The row of a GPU of which nothing is known: `why` stands in every cell."""
    cells = dict.fromkeys((*IDENTITY, *VALUES), why)
    return {"index": index, **cells, "health": health, "health_detail": detail, "good_at": None}


def identified(rows: Iterable[Row], gpus: Iterable[KernelGpu], trouble: dict[str, str] | None) -> list[Row]:
    """The rows, completed by the kernel's PCI list: a GPU without a bus gets that of its place when the
    places are beyond doubt, and a GPU of the kernel's that NVML does not list gets a row, with the next
    free index."""
    rows = [dict(row) for row in rows]
    listed = {row["bus"] for row in rows if isinstance(row["bus"], str)}
    unlisted = [gpu for gpu in gpus if gpu.bus not in listed]
    nameless = [row for row in rows if not isinstance(row["bus"], str)]
    if len(nameless) == len(unlisted):
        for row, gpu in zip(nameless, unlisted):
            row.update(_told(gpu))
        return rows
    if nameless:
        return rows
    for index, gpu in enumerate(unlisted, len(rows)):
        if trouble is not None:
            why, detail = trouble, trouble["detail"]
        else:
            detail = "on the PCI bus, not listed by the driver" if gpu.driver else "no driver is bound to it"
            why = missing("not_found", detail)
        rows.append({**bare_row(index, why, "unreadable", detail), **_told(gpu)})
    return rows


def _told(gpu: KernelGpu) -> Row:
    told = {"bus": gpu.bus, "uuid": gpu.uuid, "name": gpu.name}
    return {key: value for key, value in told.items() if value is not None}


class Rows:
    """The last good row of every GPU seen, by UUID (else bus)."""

    def __init__(self) -> None:
        self._good: dict[str, Row] = {}

    def keep(
        self, fresh: Iterable[Row], passed_through: Iterable[str], trouble: dict[str, str] | None
    ) -> list[Row]:
        """All GPUs known, by index: the fresh rows, failing ones completed from the last good one, and
        those that are listed no more. One that was given to a virtual machine is not ours any more and is
        forgotten."""
        fresh = list(fresh)
        for key in [key for key, row in self._good.items() if row["bus"] in passed_through]:
            del self._good[key]
        taken = {key for key in map(_key, fresh) if key is not None}
        rows = []
        for row in fresh:
            key = _key(row)
            if row["health"] not in USABLE:
                key = key if key in self._good else self._key_of_index(row, taken)
                row = self._completed(row, key)
            elif key is not None:
                self._good[key] = row
            if key is not None:
                taken.add(key)
            rows.append(row)
        used = {row["index"] for row in rows}
        for key in self._good.keys() - taken:
            rows.append(self._unlisted(self._good[key], trouble, used))
        return sorted(rows, key=lambda row: row["index"])

    def all_without_values(self, stuck: int | None, why: dict[str, str]) -> list[Row]:
        """All GPUs known while the driver hangs: on the one of index `stuck`, when that is known."""
        rows = []
        for good in self._good.values():
            is_stuck = stuck is None or good["index"] == stuck
            health = "hung" if is_stuck else "unreadable"
            detail = why["detail"] if is_stuck else f"not read: the driver hangs on GPU {stuck}"
            rows.append(_worthless(good, good["index"], why, health, detail))
        return sorted(rows, key=lambda row: row["index"])

    def _key_of_index(self, row: Row, taken: set[str]) -> str | None:
        """The GPU that this failing one was, by its place: no other row of now may have claimed it."""
        for key, good in self._good.items():
            is_same_bus = not isinstance(row["bus"], str) or row["bus"] == good["bus"]
            if good["index"] == row["index"] and key not in taken and is_same_bus:
                return key
        return None

    def _completed(self, row: Row, key: str | None) -> Row:
        good = self._good.get(key) if key is not None else None
        if good is None:
            return row
        known = {name: good[name] for name in IDENTITY if isinstance(row[name], dict)}
        return {**row, **known, "good_at": row["good_at"] or good["good_at"]}

    def _unlisted(self, good: Row, trouble: dict[str, str] | None, used: set[int]) -> Row:
        index = good["index"]
        while index in used:
            index += 1
        used.add(index)
        if trouble is not None:
            return _worthless(good, index, trouble, "unreadable", trouble["detail"])
        detail = "no longer listed by the driver: it has fallen off the bus or was removed"
        return _worthless(good, index, missing("lost", detail), "lost", detail)


def _worthless(good: Row, index: int, why: dict[str, str], health: str, detail: str) -> Row:
    known = {name: good[name] for name in IDENTITY}
    return {**bare_row(index, why, health, detail), **known, "good_at": good["good_at"]}


def _key(row: Row) -> str | None:
    if isinstance(row["uuid"], str):
        return str(row["uuid"])
    return str(row["bus"]) if isinstance(row["bus"], str) else None
