"""A GPU keeps its row: what was known of it stands in for what a lost, hung or unlisted one no longer
tells. Pure but for the memory of the last good rows."""

from __future__ import annotations

from ..section import missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from .kernel import KernelGpu

    Row = dict[str, Any]

__all__ = ["MOST_ROWS", "Rows", "bare_row", "identified", "left_out"]

MOST_ROWS = 64
"""GPUs of a host, as the console takes them (bounds.MOST_GPUS)."""
MOST_GOOD = 4 * MOST_ROWS

IDENTITY = ("uuid", "bus", "name", "memory_total")
VALUES = ("utilization", "memory_used", "temperature", "power", "power_limit", "processes")
"""With IDENTITY, the keys that model.Gpu has no default for, and the processes."""

NOT_LISTED = "on the PCI bus, not listed by the driver: see the kernel log for why it failed to start"
NOT_LISTED_ANY_MORE = "no longer listed by the driver: it has fallen off the bus or was removed"

USABLE = ("ok", "attention")


def left_out(more: int) -> list[str]:
    """What to tell, for people, when there are `more` GPUs than MOST_ROWS."""
    return [f"{more} more GPUs not shown (limit {MOST_ROWS})"] if more > 0 else []


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
            row = bare_row(index, trouble, "unreadable", trouble["detail"])
        elif gpu.driver == "nvidia":
            row = bare_row(index, missing("lost", NOT_LISTED), "lost", NOT_LISTED)
        else:
            detail = f"bound to {gpu.driver}" if gpu.driver else "no driver is bound to it"
            row = bare_row(index, missing("not_found", detail), "unreadable", detail)
        rows.append({**row, **_told(gpu)})
    return rows


def _told(gpu: KernelGpu) -> Row:
    told = {"bus": gpu.bus, "uuid": gpu.uuid, "name": gpu.name}
    return {key: value for key, value in told.items() if value is not None}


class Rows:
    """The last good row of every GPU seen, by UUID (else bus), and the rows that were last shown."""

    def __init__(self) -> None:
        self._good: dict[str, Row] = {}
        self._shown: list[Row] = []

    def keep(
        self, fresh: Iterable[Row], passed_through: Iterable[str], trouble: dict[str, str] | None
    ) -> list[Row]:
        """All GPUs known, by index: the fresh rows, failing ones completed from the last good one, and
        those that are listed no more; of these there may be more than MOST_ROWS. One that was given to a virtual
        machine is not ours any more and is forgotten."""
        self._forget(passed_through)
        fresh = list(fresh)
        taken = {_key(row) for row in fresh}
        rows = []
        for row in fresh:
            key = _key(row)
            if row["health"] in USABLE:
                if key is not None:
                    self._good[key] = row
            else:
                good = self._good.get(key) if key is not None else None
                good = good or self._same_place(row, taken)
                if good is not None:
                    taken.add(_key(good))
                    row = _completed(row, good)
            rows.append(row)
        used = {row["index"] for row in rows}
        rows += [_unlisted(good, trouble, used) for key, good in self._good.items() if key not in taken]
        while len(self._good) > MOST_GOOD:
            # Whatever names its GPUs anew each time is not remembered for ever.
            del self._good[next(iter(self._good))]
        rows.sort(key=_index)
        self._shown = rows[:MOST_ROWS]
        return rows

    def _forget(self, buses: Iterable[str]) -> None:
        for key in [key for key, good in self._good.items() if good["bus"] in buses]:
            del self._good[key]

    def all_without_values(self, stuck: int | None, why: dict[str, str]) -> list[Row]:
        """The rows shown last, while the driver hangs: on the one of index `stuck`, when that is known. A GPU
        that was lost before stays lost."""
        rows = []
        for row in self._shown:
            is_stuck = stuck is None or row["index"] == stuck
            health = "hung" if is_stuck else "unreadable"
            detail = why["detail"] if is_stuck else f"not read: the driver hangs on GPU {stuck}"
            is_lost = row["health"] in ("lost", "reset_required")
            rows.append(row if is_lost else _worthless(row, row["index"], why, health, detail))
        return rows

    def _same_place(self, row: Row, taken: set[str | None]) -> Row | None:
        """The GPU that a failing one without UUID was, by its bus, else its index; no other row of now may
        have claimed it."""
        by = "bus" if isinstance(row["bus"], str) else "index"
        for key, good in self._good.items():
            if good[by] == row[by] and key not in taken:
                return good
        return None


def _completed(row: Row, good: Row) -> Row:
    known = {name: good[name] for name in IDENTITY if isinstance(row[name], dict)}
    return {**row, **known, "good_at": row["good_at"] or good["good_at"]}


def _unlisted(good: Row, trouble: dict[str, str] | None, used: set[int]) -> Row:
    """The row of a GPU that was there once, with its own index or the next that no other row has."""
    index = good["index"]
    while index in used:
        index += 1
    used.add(index)
    if trouble is not None:
        return _worthless(good, index, trouble, "unreadable", trouble["detail"])
    why = missing("lost", NOT_LISTED_ANY_MORE)
    return _worthless(good, index, why, "lost", NOT_LISTED_ANY_MORE)


def _worthless(good: Row, index: int, why: dict[str, str], health: str, detail: str) -> Row:
    known = {name: good[name] for name in IDENTITY}
    return {**bare_row(index, why, health, detail), **known, "good_at": good["good_at"]}


def _index(row: Row) -> int:
    return int(row["index"])


def _key(row: Row) -> str | None:
    if isinstance(row["uuid"], str):
        return str(row["uuid"])
    return str(row["bus"]) if isinstance(row["bus"], str) else None
