"""The JSON of `status`, a contract for scripts: keys are added, never renamed or removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from dflash_console.cli.streams import harmless_json
from dflash_console.fleet import HostView
from dflash_console.model import Finding, Missing, Unit, Venv

__all__ = ["host_object", "status_json"]


def status_json(looked_at: Iterable[tuple[HostView, Sequence[Finding]]]) -> bytes:
    """`{"hosts": [...]}` in UTF-8; a value that can't be had is `{"missing": reason, "detail": text}`."""
    hosts = [host_object(view, findings) for view, findings in looked_at]
    return harmless_json(msgspec.json.encode({"hosts": hosts}))


def host_object(view: HostView, findings: Sequence[Finding]) -> dict[str, Any]:
    """One host. Its lists are empty for the sections named in `unread`, of which nothing is known."""
    snapshot, link = view.snapshot, view.link
    unknown = Missing("error", link.detail or link.state)
    report = snapshot.gpu if snapshot else None
    return {
        "name": view.config.name,
        "link": {"state": link.state, "detail": link.detail, "latency_ms": link.latency_ms},
        "hostname": snapshot.host.hostname if snapshot else unknown,
        "boot_id": snapshot.host.boot_id if snapshot else unknown,
        "gpus": report.gpus if report else [],
        "venvs": [venv_object(venv) for venv in snapshot.venvs] if snapshot else [],
        "units": [unit_object(unit) for unit in snapshot.units] if snapshot else [],
        "paths": snapshot.paths if snapshot else [],
        "findings": findings,
        "address": view.config.address,
        "role": view.config.role,
        "at": rfc3339(snapshot.at) if snapshot else unknown,
        "unread": sorted(view.unread),
        "host": snapshot.host if snapshot else unknown,
        "driver": driver_object(view),
        "shared": view.shared,
    }


def driver_object(view: HostView) -> dict[str, Any] | Missing:
    """What stands between the GPUs and us: versions, the kernel's count, why the driver does not answer."""
    if view.snapshot is None or "gpu" in view.unread:
        return Missing("error", view.link.detail or "not read")
    report = view.snapshot.gpu
    return {
        "version": report.driver,
        "library": report.library,
        "cuda": report.cuda,
        "source": report.source,
        "kernel_count": report.kernel_count,
        "passed_through": report.passed_through,
        "trouble": report.trouble,
    }


def venv_object(venv: Venv) -> dict[str, Any]:
    """An environment, with the time of its copy as text."""
    fields = msgspec.structs.asdict(venv)
    if venv.copied is not None:
        at = venv.copied.at
        copied = msgspec.structs.asdict(venv.copied)
        fields["copied"] = {**copied, "at": at if isinstance(at, Missing) else rfc3339(at)}
    return fields


def unit_object(unit: Unit) -> dict[str, Any]:
    """A unit with its point in time as text."""
    fields = msgspec.structs.asdict(unit)
    fields["since"] = None if unit.since is None else rfc3339(unit.since)
    return fields


def rfc3339(at: float) -> str | Missing:
    """Seconds since 1970 as `2026-01-31T03:12:44Z`."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return Missing("error", "not a point in time")
