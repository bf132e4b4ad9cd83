"""Hosts with one part that a test is about, and what the rules say of them."""

from __future__ import annotations

from typing import Any

from dflash_console.findings import find
from dflash_console.model import Finding, LinkStatus, Missing, Snapshot
from tests import pictures

UP = LinkStatus("up")
NOT_FOUND = Missing("not_found", "there is none")
DENIED = Missing("permission", "permission denied")


def codes(snapshot: Snapshot, **known: Any) -> list[str]:
    return [finding.code for finding in find(snapshot, known.pop("link", UP), **known)]


def only(snapshot: Snapshot, **known: Any) -> Finding:
    (finding,) = find(snapshot, known.pop("link", UP), **known)
    return finding


def with_gpus(*gpus: Any, **fields: Any) -> Snapshot:
    return pictures.snapshot(gpu=pictures.report(*gpus, **fields))


def with_venvs(*venvs: Any) -> Snapshot:
    return pictures.snapshot(venvs=list(venvs), units=[])


def with_units(*units: Any) -> Snapshot:
    return pictures.snapshot(units=list(units))
