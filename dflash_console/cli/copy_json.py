"""The JSON of `copy` and `rollback`, a contract for scripts: keys are added, never renamed or removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from dflash_console.cli.compare import side_object
from dflash_console.cli.consent import flag_of
from dflash_console.cli.status_json import rfc3339
from dflash_console.cli.verify import verdict_object
from dflash_console.copies import Backup, CopyPlan, Outcome, RunState, Side, TargetPlan, TargetRun

__all__ = ["Result", "backups_json", "results_json"]


class Result(NamedTuple):
    """What became of one target."""

    plan: TargetPlan
    run: TargetRun | None = None
    """None for a plan that was not to be carried out."""

    @property
    def side(self) -> Side:
        """The target."""
        return self.plan.side

    @property
    def state(self) -> Outcome | RunState:
        """How it ended."""
        return self.run.state if self.run is not None else "planned"


def results_json(results: Sequence[Result], source: CopyPlan | None = None) -> bytes:
    """`{"results": [...], "source": ...}` in UTF-8; `source` is null for a rollback."""
    origin = None
    if source is not None:
        verdict = source.verdict
        origin = {
            **side_object(source.source, source.look),
            "verify": verdict_object(verdict) if verdict is not None else None,
            "problem": source.problem or None,
            "changed_while_read": source.look.restless if source.look is not None else (),
        }
    return msgspec.json.encode({"results": [_result(result, source) for result in results], "source": origin})


def _result(result: Result, source: CopyPlan | None) -> dict[str, object]:
    plan, difference = result.plan, result.plan.difference
    # A run that was never begun has no counts: those of the plan are what it would have done.
    planned = difference if result.run is None or not result.run.began else None
    run = result.run or TargetRun(plan.side)
    return {
        "host": plan.side.host,
        "venv": plan.side.venv or None,
        "state": result.state,
        "added": planned.added if planned else run.added,
        "changed": planned.changed if planned else run.changed,
        "removed": planned.removed if planned else run.removed,
        "bytes_sent": run.bytes_sent,
        "seconds": round(run.seconds, 3),
        "backup": run.backup or None,
        "swap": run.swap or None,
        "verify": verdict_object(run.verdict) if run.verdict is not None else None,
        "detail": run.detail or plan.problem,
        "bytes": plan.bytes,
        "preflight": plan.checks,
        "checks": run.checks,
        "needs": [
            {"code": need.code, "text": need.text, "option": flag_of(need, plan.side.host)}
            for need in plan.needs
        ],
        "beside": plan.beside,
        "notes": run.notes,
        "from": None if source is None else {"host": source.source.host, "venv": source.source.venv or None},
    }


def backups_json(side: Side, backups: Sequence[Backup], problem: str = "") -> bytes:
    """`{"host", "venv", "backups": [...], "problem"}`, newest first."""
    rows = [
        {
            "id": backup.id,
            "at": rfc3339(backup.at),
            "version": backup.version or None,
            "files": backup.files,
            "size": backup.size,
            "reason": backup.reason,
            "from": _origin(backup),
            "in_use": backup.in_use or None,
        }
        for backup in backups
    ]
    return msgspec.json.encode(
        {"host": side.host, "venv": side.venv or None, "backups": rows, "problem": problem or None}
    )


def _origin(backup: Backup) -> dict[str, object] | None:
    if backup.provenance is None:
        return None
    where = backup.provenance
    return {
        "host": where.from_host,
        "venv": where.from_venv,
        "version": where.from_version,
        "at": rfc3339(where.at),
        "by": where.by,
    }
