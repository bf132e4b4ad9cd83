"""Samples put together to the whole picture of a host."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from dflash_console.fleet.view import SECTIONS, Section
from dflash_console.model import Gpu, GpuReport, Health, Missing, Sample, Snapshot

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
    row; those that went to a virtual machine do not.
    """
    rows = [with_identity(gpu, before.gpus) for gpu in report.gpus]
    if report.passed_through <= before.passed_through:
        for gpu in [gpu for gpu in before.gpus if not is_listed(gpu, rows)]:
            rows.append(lost_row(gpu, free_index(gpu.index, rows), report))
    if all(new is old for new, old in zip(rows, report.gpus, strict=False)) and len(rows) == len(report.gpus):
        return report
    return msgspec.structs.replace(report, gpus=sorted(rows, key=lambda gpu: gpu.index))


def with_identity(gpu: Gpu, before: list[Gpu]) -> Gpu:
    """The row with the UUID, bus and name of the GPU that was in its place, where the driver tells none."""
    if isinstance(gpu.uuid, str):
        return gpu
    earlier = next((old for old in before if is_same_place(gpu, old)), None)
    if earlier is None or not isinstance(earlier.uuid, str):
        return gpu
    return msgspec.structs.replace(
        gpu,
        uuid=earlier.uuid,
        bus=gpu.bus if isinstance(gpu.bus, str) else earlier.bus,
        name=gpu.name if isinstance(gpu.name, str) else earlier.name,
        good_at=earlier.good_at if gpu.good_at is None else gpu.good_at,
    )


def is_same_place(gpu: Gpu, old: Gpu) -> bool:
    """Whether two rows stand for the same slot: by bus, and by index only where a bus is not known."""
    if isinstance(gpu.bus, str) and isinstance(old.bus, str):
        return gpu.bus == old.bus
    return gpu.index == old.index


def is_listed(gpu: Gpu, rows: list[Gpu]) -> bool:
    """Whether one of the rows is this GPU; another card in the same slot takes its place."""
    if isinstance(gpu.uuid, str) and any(row.uuid == gpu.uuid for row in rows):
        return True
    if isinstance(gpu.bus, str):
        return any(row.bus == gpu.bus for row in rows)
    return any(row.index == gpu.index for row in rows)


def free_index(index: int, rows: list[Gpu]) -> int:
    """The first index from this one on that no row has; the driver numbers the GPUs that are left anew."""
    used = {row.index for row in rows}
    return next(free for free in range(index, index + len(rows) + 1) if free not in used)


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
