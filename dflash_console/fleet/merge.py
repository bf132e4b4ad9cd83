"""Samples put together to the whole picture of a host."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET

from dflash_console.bounds import MOST_GPUS
from dflash_console.model import SECTIONS, Gpu, GpuReport, Health, Missing, Sample, Section, Snapshot

__all__ = ["absorb", "keep_rows", "snapshot_of", "unread_in"]

NOT_READ = GpuReport(gpus=[], source="none", driver=Missing("not_found", "not read yet"))


def absorb(known: Sample | None, sample: Sample) -> Sample:
    """All that is known after `sample`: its sections over those of `known`, GPU rows kept."""
    if known is None:
        return sample
    news: dict[str, Any] = {name: getattr(sample, name) for name in came_with(sample)}
    if sample.gpu is not UNSET and known.gpu is not UNSET:
        news["gpu"] = keep_rows(known.gpu, sample.gpu)
    return msgspec.structs.replace(known, at=sample.at, **news)


def came_with(sample: Sample) -> list[Section]:
    """The sections that a sample carries."""
    return [name for name in SECTIONS if getattr(sample, name) is not UNSET]


def unread_in(known: Sample | None) -> frozenset[Section]:
    """The sections that never came."""
    return frozenset(SECTIONS) if known is None else frozenset(SECTIONS) - frozenset(came_with(known))


def snapshot_of(known: Sample) -> Snapshot | None:
    """The picture of a host; None until its host section came. Sections that never came are empty."""
    if known.host is UNSET:
        return None
    return Snapshot(
        at=known.at,
        host=known.host,
        gpu=NOT_READ if known.gpu is UNSET else known.gpu,
        venvs=[] if known.venvs is UNSET else known.venvs,
        units=[] if known.units is UNSET else known.units,
        paths=[] if known.paths is UNSET else known.paths,
    )


# ---- GPU rows


def keep_rows(before: GpuReport, report: GpuReport) -> GpuReport:
    """`report` with what only the console still knows: a fresh agent never saw a GPU that was lost before.

    Rows without an identity get the one that was on their bus, and GPUs that are not listed any more keep a
    row, the `MOST_GPUS` that answered last; those that went to a virtual machine do not.
    """
    earlier = Places(before.gpus)
    rows = [with_identity(gpu, earlier) for gpu in report.gpus]
    if report.passed_through <= before.passed_through:
        listed = Places(rows)
        gone = [gpu for gpu in before.gpus if not listed.has(gpu)]
        if len(gone) > MOST_GPUS:
            latest = sorted(gone, key=lambda gpu: gpu.good_at or 0.0)[-MOST_GPUS:]
            gone = sorted(latest, key=lambda gpu: gpu.index)
        used = {row.index for row in rows}
        for gpu in gone:
            # The driver numbers the GPUs that are left anew.
            index = next(free for free in count(gpu.index) if free not in used)
            used.add(index)
            rows.append(lost_row(gpu, index, report))
    if all(new is old for new, old in zip(rows, report.gpus, strict=False)) and len(rows) == len(report.gpus):
        return report
    return msgspec.structs.replace(report, gpus=sorted(rows, key=lambda gpu: gpu.index))


class Places:
    """Rows by what names them, the first of each."""

    def __init__(self, rows: list[Gpu]) -> None:
        self.uuids = {row.uuid for row in rows if isinstance(row.uuid, str)}
        self.buses = {row.bus: row for row in reversed(rows) if isinstance(row.bus, str)}
        self.indexes = {row.index: row for row in reversed(rows)}
        self._without_bus = {row.index: row for row in reversed(rows) if not isinstance(row.bus, str)}

    def same_place(self, gpu: Gpu) -> Gpu | None:
        """The row of the same slot: by bus, and by index only where a bus is not known."""
        if isinstance(gpu.bus, str):
            return self.buses.get(gpu.bus) or self._without_bus.get(gpu.index)
        return self.indexes.get(gpu.index)

    def has(self, gpu: Gpu) -> bool:
        """Whether one of the rows is this GPU; another card in the same slot takes its place."""
        if isinstance(gpu.uuid, str) and gpu.uuid in self.uuids:
            return True
        return gpu.bus in self.buses if isinstance(gpu.bus, str) else gpu.index in self.indexes


def with_identity(gpu: Gpu, before: Places) -> Gpu:
    """The row with the UUID, bus and name of the GPU that was in its place, where the driver tells none."""
    if isinstance(gpu.uuid, str):
        return gpu
    earlier = before.same_place(gpu)
    if earlier is None or not isinstance(earlier.uuid, str):
        return gpu
    return msgspec.structs.replace(
        gpu,
        uuid=earlier.uuid,
        bus=gpu.bus if isinstance(gpu.bus, str) else earlier.bus,
        name=gpu.name if isinstance(gpu.name, str) else earlier.name,
        good_at=earlier.good_at if gpu.good_at is None else gpu.good_at,
    )


def lost_row(gpu: Gpu, index: int, report: GpuReport) -> Gpu:
    """The row of a GPU that the driver does not list any more: who it was, else a reason in every cell."""
    gone = report.trouble or Missing("lost", "the driver does not list it any more")
    health: Health = "lost" if report.trouble is None else "unreadable"
    return Gpu(
        index=index,
        uuid=gpu.uuid,
        bus=gpu.bus,
        name=gpu.name,
        utilization=gone,
        memory_used=gone,
        memory_total=gone,
        temperature=gone,
        power=gone,
        power_limit=gone,
        health=health,
        health_detail=gone.detail,
        processes=gone,
        good_at=gpu.good_at,
    )
