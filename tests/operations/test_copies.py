"""Copies as the screen asks for them: at once, looked at on every tick, with real copy processes behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dflash_console.config import HostConfig
from dflash_console.copies import Consent, CopyPlan, Side, TargetRun
from dflash_console.errors import Unreachable
from dflash_console.model import Missing, Venv
from dflash_console.operations import copies as copies_module
from dflash_console.operations.copies import Copies
from dflash_console.operations.planning import plan_roll_back
from tests.operations.fleet import answer
from tests.operations.local import (
    YES,
    LocalFleet,
    content,
    copied,
    lay_package,
    left,
    running,
    show,
    site_of,
    when,
)
from tests.waiting import until

WAIT = 60.0


@pytest.fixture
def fleet(tmp_path: Path) -> LocalFleet:
    return LocalFleet(tmp_path, "ct129", "ct200")


async def planned(copies: Copies, source: Side, target: Side) -> CopyPlan:
    assert copies.plan(source, [target]) == ""
    assert copies.plan_now is None
    assert copies.is_planning
    assert copies.steps
    return await until(lambda: copies.plan_now, WAIT, "the plan is made")


def asked_for_files(fleet: LocalFleet) -> asyncio.Event:
    """Set once a target is asked which files it wants: at that very time, however fast the rest would be."""
    asked = asyncio.Event()
    fleet.on_channel = lambda channel: when(channel, "want", asked.set)
    return asked


async def test_a_plan_is_made_and_carried_out_and_its_verdict_is_kept(fleet: LocalFleet) -> None:
    source, target = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")
    async with running(fleet) as (copies, verdicts):
        assert copies.start(YES) == "there is no plan"
        plan = await planned(copies, source, target)
        assert not copies.is_planning
        assert plan.targets[0].side == target
        assert copies.start(Consent()) == "not confirmed"
        assert copies.start(YES) == ""
        assert copies.is_running
        assert copies.start(YES) in ("there is no plan", "another copy is under way")
        assert copies.roll_back(target, "", YES, None) == "another copy is under way"
        await until(lambda: not copies.is_running, WAIT, "it is done")
        (run,) = copies.runs
        assert run.state == "done", run
        assert content(target) == content(source)
        (verdict,) = verdicts.of("ct200")
        assert verdict.is_ready
        assert "ct200" in fleet.refreshed
        assert copies.plan_now is None, "what it stands on is another now"
        assert copies.roll_back(target, "", Consent(), None) == "not confirmed"
        assert copies.roll_back(target, "", YES, None) == ""
        await until(lambda: not copies.is_running, WAIT, "it is put back")
        assert [run.state for run in copies.runs] == ["done"]
        assert content(target) != content(source)


async def test_a_verdict_after_a_copy_is_not_stale_because_the_picture_comes_later(fleet: LocalFleet) -> None:
    source, target = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")
    async with running(fleet) as (copies, verdicts):
        await planned(copies, source, target)
        assert copies.start(YES) == ""
        await until(lambda: not copies.is_running, WAIT, "it is done")
        verdicts.refresh()
        show(fleet, "ct200", Venv(target.venv, "config", "3.11.2", {}, Missing("not_found")))
        verdicts.refresh()
        assert verdicts.of("ct200")[0].stale == "", "this is the change that the copy made"
        show(fleet, "ct200", Venv(target.venv, "config", "3.12.0", {}, Missing("not_found")))
        verdicts.refresh()
        assert verdicts.of("ct200")[0].stale == "the environment changed"


async def test_a_read_only_console_plans_and_changes_nothing(fleet: LocalFleet) -> None:
    source, target = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")
    before = content(target)
    async with running(fleet, read_only=True) as (copies, _):
        await planned(copies, source, target)
        assert "read-only" in copies.start(YES)
        assert "read-only" in copies.roll_back(target, "", YES, None)
        assert copies.runs == ()
    assert content(target) == before


async def test_a_cancelled_copy_leaves_all_as_it_was_and_the_next_one_goes(fleet: LocalFleet) -> None:
    source, target = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")
    before = content(target)
    async with running(fleet) as (copies, _):
        await planned(copies, source, target)
        under_way = asked_for_files(fleet)
        assert copies.start(YES) == ""
        await under_way.wait()
        assert [run.state for run in copies.runs] == ["sending"]
        copies.cancel()
        await until(lambda: not copies.is_running, WAIT, "it is cancelled")
        assert [run.state for run in copies.runs] == ["cancelled"]
        assert (content(target), left(target)) == (before, [])
        await planned(copies, source, target)
        assert copies.start(YES) == ""
        await until(lambda: not copies.is_running, WAIT, "it is done")
        assert copies.runs[0].state == "done"


async def test_a_plan_that_is_not_wanted_any_more_is_given_up(fleet: LocalFleet) -> None:
    source, target = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")
    async with running(fleet) as (copies, _):
        assert copies.plan(source, [target]) == ""
        copies.cancel()
        assert copies.plan(target, [source]) == ""
        plan = await until(lambda: copies.plan_now, WAIT, "the second plan is made")
        assert plan.source == target
        assert copies.plan(source, [source]) == f"{source} is the source itself"
        assert copies.plan(source, []) == "no host to copy to"


async def test_a_cancelled_plan_is_over(fleet: LocalFleet) -> None:
    source, target = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")
    fleet.held = {"find_spec"}
    async with running(fleet) as (copies, _):
        assert copies.plan(source, [target]) == ""
        await until(lambda: any(asked[1] == "find_spec" for asked in fleet.asked), WAIT, "it is under way")
        copies.cancel()
        await until(lambda: not copies.is_planning, WAIT, "it is over")
        assert (copies.plan_now, copies.steps) == (None, "cancelled")


async def test_a_console_that_ends_gives_up_its_copy_tidily(fleet: LocalFleet) -> None:
    source, target = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")
    before = content(target)
    async with running(fleet) as (copies, _):
        await planned(copies, source, target)
        under_way = asked_for_files(fleet)
        assert copies.start(YES) == ""
        await under_way.wait()
        assert [run.state for run in copies.runs] == ["sending"]
    assert (content(target), left(target)) == (before, [])
    assert copies.runs[0].state == "cancelled"


async def test_a_rollback_is_of_what_the_operator_was_shown(fleet: LocalFleet) -> None:
    source, target = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")
    await copied(fleet, source, target)
    shown = await plan_roll_back(fleet, fleet.config, target)
    (site_of(target) / "sglang/same.py").write_text("# changed by hand\n")
    before = content(target)
    async with running(fleet) as (copies, _):
        assert copies.roll_back(target, "", YES, shown.look) == ""
        await until(lambda: not copies.is_running, WAIT, "it is over")
        (run,) = copies.runs
        assert run.state == "refused", run
        assert "not as it was shown" in run.detail
    assert content(target) == before


async def test_a_host_that_is_away_is_said_in_the_run(fleet: LocalFleet) -> None:
    source, target = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")
    async with running(fleet) as (copies, _):
        await planned(copies, source, target)
        fleet.refusals["ct200"] = Unreachable("ct200 is not connected: no route")
        assert copies.start(YES) == ""
        await until(lambda: not copies.is_running, WAIT, "it is over")
        (run,) = copies.runs
        assert (run.state, "nothing was changed" in run.detail) == ("unreachable", True)


async def test_runs_of_several_copies_are_kept_the_latest_first(fleet: LocalFleet) -> None:
    fleet.config.hosts["kpro6"] = HostConfig("kpro6", local=True, role="target")
    fleet.pictures["kpro6"] = fleet.pictures["ct200"]
    source, one, two = (fleet.lay(name, "0.5.23") for name in ("ct129", "ct200", "kpro6"))
    lay_package(site_of(one), "0.5.9")
    lay_package(site_of(two), "0.5.9")
    async with running(fleet) as (copies, _):
        for target in (one, two):
            await planned(copies, source, target)
            assert copies.start(YES) == ""
            await until(lambda: not copies.is_running, WAIT, "it is done")
        assert [run.side for run in copies.runs] == [two, one]
        assert {run.state for run in copies.runs} == {"done"}


async def test_what_is_not_ready_after_the_copy_is_undone_and_leaves_no_verdict(fleet: LocalFleet) -> None:
    source, target = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")
    await copied(fleet, source, target)
    lay_package(site_of(target), "0.5.9")
    async with running(fleet) as (copies, verdicts):
        await planned(copies, source, target)
        fleet.answers["files"] = answer("files", "fail")
        assert copies.start(YES) == ""
        await until(lambda: not copies.is_running, WAIT, "it is over")
        assert copies.runs[0].state == "undone"
        assert verdicts.of("ct200") == ()


# ---- what nobody thought of


@pytest.mark.parametrize("name", ["copy", "roll_back"])
@pytest.mark.parametrize("is_begun", [False, True])
async def test_a_fault_of_the_console_ends_every_run_and_says_so(
    fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch, name: str, is_begun: bool
) -> None:
    source, target = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")

    async def broken(*given: Any, **_: object) -> None:
        changed = next(each for each in given if callable(each))
        if is_begun:
            changed(TargetRun(target, "swapping"))
        raise RuntimeError("nobody thought of it")

    monkeypatch.setattr(copies_module, name, broken)
    async with running(fleet) as (copies, _):
        await planned(copies, source, target)
        assert (copies.start(YES) if name == "copy" else copies.roll_back(target, "", YES, None)) == ""
        await until(lambda: not copies.is_running, WAIT, "it is over")
        (run,) = copies.runs
        assert (run.state, run.is_over) == ("failed", True)
        assert "RuntimeError: nobody thought of it" in run.detail
        assert ("is not known" if is_begun else "nothing was changed") in run.detail
        assert "nobody thought of it" in await until(copies.take_notice, WAIT, "it is said")


async def test_a_rollback_that_is_cancelled_while_it_looks_is_over(
    fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = fleet.lay("ct200", "0.5.9")

    async def endless(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(copies_module, "roll_back", endless)
    async with running(fleet) as (copies, _):
        assert copies.roll_back(target, "", YES, None) == ""
        await until(lambda: copies._copying is not None, WAIT, "it is begun")
        copies.cancel()
        await until(lambda: not copies.is_running, WAIT, "it is over")
        assert [run.state for run in copies.runs] == ["cancelled"]
