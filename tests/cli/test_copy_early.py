"""`copy` of one who has said yes to all: it does not wait for the source's verification before it begins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dflash_console.copies import CopyPlan, Need, TargetPlan
from dflash_console.verdict import Check
from tests.cli import plans
from tests.cli.acting import Acting, Changed

COPY = ("copy", "ct129", "ct200")
UNVERIFIED = Need("unverified", "ct129:/root/ml-env is not ready itself: modules: missing")


@pytest.fixture
def acting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Acting:
    made = Acting(monkeypatch, tmp_path)
    made.early = msgspec.structs.replace(plans.plan(), verdict=None, is_proving=True)
    return made


def not_ready() -> CopyPlan:
    late = plans.plan(plans.target(needs=(UNVERIFIED,)))
    return msgspec.structs.replace(
        late, verdict=plans.verdict(plans.SOURCE, Check("modules", "fail", "missing"))
    )


async def refuse(target: TargetPlan, changed: Changed) -> None:
    changed(plans.run(target.side, "refused", began=1e9, detail="as the gate says it", verdict=None))


def result(capfd: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    told = json.loads(capfd.readouterr().out)
    return told["results"][0], told["source"]


def test_the_verdict_that_came_meanwhile_is_told(acting: Acting, capfd: pytest.CaptureFixture[str]) -> None:
    assert acting(*COPY, "--yes", "--json") == 0
    row, source = result(capfd)
    assert row["state"] == "done"
    assert source["verify"]["ready"] is True


def test_a_source_that_turns_out_not_to_be_ready_is_refused_with_the_option_that_allows_it(
    acting: Acting, capfd: pytest.CaptureFixture[str]
) -> None:
    acting.plan, acting.work = not_ready(), refuse
    assert acting(*COPY, "--yes", "--json") == 4
    row, source = result(capfd)
    assert row["state"] == "refused"
    assert "--allow unverified" in row["detail"]
    assert UNVERIFIED.text in row["detail"]
    assert [need["option"] for need in row["needs"]] == ["--allow unverified"]
    assert source["verify"]["ready"] is False


@pytest.mark.parametrize("words", [("--dry-run",), ()])
def test_without_a_yes_the_whole_plan_is_waited_for(
    acting: Acting, capfd: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    acting.plan = not_ready()
    assert acting(*COPY, *words, "--json") == (0 if words else 4)
    row, _ = result(capfd)
    assert [need["option"] for need in row["needs"]] == ["--allow unverified"]
    assert acting.carried == []
