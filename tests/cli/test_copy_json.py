"""The JSON of `copy` and `rollback`: one object on stdout, whatever becomes of the command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from dflash_console.cli import copy as copy_module
from dflash_console.cli import rollback as rollback_module
from dflash_console.cli.copy_json import Result, results_json
from dflash_console.copies import Need, Outcome, TargetPlan, TargetRun
from dflash_console.errors import ConfigError, Unreachable
from tests.cli import plans
from tests.cli.acting import Acting, Changed

PROMISED = (
    "host",
    "venv",
    "state",
    "added",
    "changed",
    "removed",
    "bytes_sent",
    "seconds",
    "backup",
    "swap",
    "verify",
)
COMMANDS = [("copy", "ct129", "ct200", "--yes", "--json"), ("rollback", "ct200", "--yes", "--json")]
ENDS: list[tuple[BaseException, int, str, str]] = [
    (RuntimeError("nobody thought of it"), 70, "failed", "RuntimeError: nobody thought of it"),
    (ExceptionGroup("two", [OSError("gone"), ValueError()]), 70, "failed", "OSError: gone"),
    (ConfigError("name one as ct200:PATH"), 2, "refused", "name one as ct200:PATH"),
    (Unreachable("no route"), 2, "unreachable", "no route"),
    (KeyboardInterrupt(), 130, "cancelled", "stopped at once"),
]


@pytest.fixture
def acting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Acting:
    acting = Acting(monkeypatch, tmp_path)
    acting.plan = plans.plan(plans.target(look=plans.look(backups=(plans.backup(),))))
    return acting


def row_of(capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (row,) = json.loads(capfd.readouterr().out)["results"]
    assert set(PROMISED) <= row.keys()
    return dict(row)


@pytest.mark.parametrize("state", get_args(Outcome))
@pytest.mark.parametrize("look", [plans.look(), None])
def test_every_outcome_has_all_that_is_promised(state: str, look: object) -> None:
    plan = plans.target(look=look)
    began, never = plans.run(state=state), TargetRun(plan.side, state)  # type: ignore[arg-type]
    for run in (None,) if state == "planned" else (began, never):
        (row,) = json.loads(results_json([Result(plan, run)], plans.plan(plan)))["results"]
        assert set(PROMISED) <= row.keys()
        assert (row["state"], row["host"], row["venv"]) == (state, *plan.side)
        assert (row["added"], row["changed"], row["removed"]) == (2, 1, 1)


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize(("error", "code", "state", "why"), ENDS)
def test_what_ends_a_command_before_it_has_begun_is_told(
    acting: Acting,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    words: Sequence[str],
    error: BaseException,
    code: int,
    state: str,
    why: str,
) -> None:
    async def broken(*_: object) -> None:
        raise error

    for module in (copy_module, rollback_module):
        monkeypatch.setattr(module, "places", broken)
    assert acting(*words) == code
    row = row_of(capfd)
    assert (row["state"], row["host"]) == (state, "ct200")
    assert why in row["detail"]
    assert "nothing was changed" in row["detail"]


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("begun", ["sending", "swapping", "done"])
def test_a_fault_on_the_way_is_told_with_how_far_it_came(
    acting: Acting, capfd: pytest.CaptureFixture[str], words: Sequence[str], begun: str
) -> None:
    async def broken(target: TargetPlan, changed: Changed) -> None:
        swap = {} if begun == "done" else {"swap": "", "backup": ""}
        changed(plans.run(target.side, begun, **swap))
        raise RuntimeError("nobody thought of it")

    acting.work = broken
    assert acting(*words) == 70
    row = row_of(capfd)
    assert (row["state"], row["added"]) == ("done" if begun == "done" else "failed", 2)
    if begun != "done":
        assert "RuntimeError: nobody thought of it" in row["detail"]
        assert ("nothing was changed" in row["detail"]) == (begun == "sending")
        assert ("is not known" in row["detail"]) == (begun == "swapping")


@pytest.mark.parametrize(("error", "code", "state", "why"), ENDS)
def test_a_list_of_backups_that_can_not_be_had_is_told_as_well(
    acting: Acting,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    state: str,
    why: str,
) -> None:
    async def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(rollback_module, "places", broken)
    assert acting("rollback", "ct200", "--list", "--json") == code
    told = json.loads(capfd.readouterr().out)
    assert (told["host"], told["backups"]) == ("ct200", [])
    assert why in told["problem"]


def test_a_yes_alone_that_is_not_enough_is_told_with_what_is(
    acting: Acting, capfd: pytest.CaptureFixture[str]
) -> None:
    need = Need("unverified", "ct129 is not ready itself: modules: missing: worker")
    acting.plan = plans.plan(plans.target(needs=(need,)))
    for extra in ((), ("--json",)):
        assert acting("copy", "ct129", "ct200", "--yes", *extra) == 4
        out, err = capfd.readouterr()
        for stream in (out, err):
            assert "--yes alone does not cover it, it needs --allow unverified" in " ".join(stream.split())
    assert acting.carried == []
