"""Copies onto what is there already, and of what is not ready, with real copy processes on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dflash_console.copies import Consent, Side, TargetRun
from dflash_console.operations.copying import roll_back
from dflash_console.operations.planning import plan_roll_back
from tests.operations.fleet import answer
from tests.operations.local import (
    BY,
    YES,
    LocalFleet,
    content,
    copied,
    interrupt,
    journal,
    left,
    sides,
    site_of,
    spy,
)

UNVERIFIED = Consent(True, frozenset({"unverified"}))


@pytest.fixture
def fleet(tmp_path: Path) -> LocalFleet:
    return LocalFleet(tmp_path, "ct129", "ct200", "kpro6")


def inodes(side: Side) -> dict[str, int]:
    site = site_of(side)
    return {str(path): os.lstat(path).st_ino for path in site.rglob("*") if "__pycache__" not in path.parts}


async def backups(fleet: LocalFleet, side: Side) -> list[str]:
    looked = await plan_roll_back(fleet, fleet.config, side)
    assert looked.look is not None
    return [backup.id for backup in looked.look.backups]


# ---- what is there already


async def test_what_is_there_already_is_proved_and_left_and_pushes_no_backup_out(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    await copied(fleet, source, target)
    there, kept = inodes(target), await backups(fleet, target)
    asked: list[str] = []
    fleet.on_channel = lambda channel: spy(channel, asked)
    for _ in range(2):
        (run,) = await copied(fleet, source, target)
        assert (run.swap, run.backup, run.bytes_sent) == ("", "", 0)
        assert (run.added, run.changed, run.removed) == (0, 0, 0)
        assert "already the same, nothing was changed" in run.detail
        assert run.verdict is not None
        assert run.verdict.is_ready
        assert not {"expect", "swap", "settle"} & set(asked)
    assert (inodes(target), await backups(fleet, target), left(target)) == (there, kept, [])
    assert journal(target)[-1] in ("done", "undone")


async def test_a_second_dist_info_beside_is_a_difference_and_goes_away(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    await copied(fleet, source, target)
    (site_of(target) / "sglang-0.5.8.dist-info").mkdir()
    (run,) = await copied(fleet, source, target)
    assert run.swap == "exchange"
    assert not (site_of(target) / "sglang-0.5.8.dist-info").exists()


async def test_what_is_the_same_and_not_right_is_laid_anew(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    await copied(fleet, source, target)
    there = inodes(target)
    plan = await fleet.plan(source, target)
    fleet.answers["files"] = answer("files", "fail")
    asked: list[str] = []
    fleet.on_channel = lambda channel: spy(channel, asked)
    (run,) = await fleet.copy(plan)
    assert run.state == "undone", "it is not right either once it was laid anew"
    assert "laid anew" in run.notes[-1]
    assert "swap" in asked
    assert inodes(target) == there


async def test_one_that_has_it_already_does_not_keep_another_from_getting_it(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    other = fleet.lay("kpro6", "0.5.23")
    runs = await copied(fleet, source, other, target)
    assert [run.swap for run in runs] == ["", "exchange"]
    assert content(target) == content(source) == content(other)


# ---- what is not ready at its source


async def test_a_package_without_the_modules_can_be_copied_when_that_is_allowed(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    (site_of(source) / "sglang/srt/dflash.py").unlink()
    fleet.answers["find_spec"] = answer("find_spec", "fail")
    plan = await fleet.plan(source, target)
    (run,) = await fleet.copy(plan, UNVERIFIED)
    assert run.state == "done", run
    assert "without sglang.srt.dflash: the source does not have it" in run.notes[-1]
    assert content(target) == content(source)


async def test_modules_that_are_missing_at_a_ready_source_are_never_let_pass(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    (site_of(source) / "sglang/srt/dflash.py").unlink()
    before = content(target)
    plan = await fleet.plan(source, target)
    (run,) = await fleet.copy(plan, UNVERIFIED)
    assert (run.state, "import: missing: dflash" in run.detail) == ("failed", True)
    assert content(target) == before


async def test_what_a_service_of_the_source_does_is_no_obstacle(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    service = b'{"checks":[{"name":"service x.service","state":"fail","detail":"starts another"}],"facts":{}}'
    fleet.answers["service"] = service
    plan = await fleet.plan(source, target)
    assert plan.verdict is not None
    assert plan.verdict.is_ready
    assert plan.targets[0].needs == ()
    (run,) = await fleet.copy(plan)
    assert (run.state, "starts another" in run.detail) == ("done", True)


# ---- a rollback that finds what was broken off


async def rolled_back(fleet: LocalFleet, side: Side, backup: str = "") -> TargetRun:
    return await roll_back(
        fleet,
        fleet.config,
        side,
        backup,
        YES,
        lambda run: None,
        read_only=False,
        by=BY,
        look=None,
    )


async def test_a_rollback_without_any_backup_settles_what_was_broken_off_and_says_both(
    fleet: LocalFleet,
) -> None:
    _, target = sides(fleet)
    before = content(target)
    interrupt(target)
    run = await rolled_back(fleet, target)
    assert run.state == "failed"
    assert "no backup" in run.detail
    assert "copy from ct129 by ana@desk" in run.notes[0]
    assert (content(target), left(target), journal(target)[-1]) == (before, [], "undone")
    again = await rolled_back(fleet, target)
    assert again.state == "refused", "nothing is left to settle"
    interrupt(target)
    named = await rolled_back(fleet, target, "b1")
    assert (named.state, left(target)) == ("refused", ["stage-20260101-000000-dead00"])


async def test_a_rollback_puts_back_what_is_kept_after_it_has_settled_what_was_broken_off(
    fleet: LocalFleet,
) -> None:
    source, target = sides(fleet)
    before = content(target)
    await copied(fleet, source, target)
    interrupt(target)
    run = await rolled_back(fleet, target)
    assert run.state == "done", run
    assert "copy from ct129 by ana@desk" in run.notes[0]
    assert (content(target), left(target)) == (before, [])
