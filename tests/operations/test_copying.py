"""Copies and rollbacks with real copy processes on this machine: what comes of them, and what failures leave."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dflash_console.copies import Consent, Side, TargetRun
from dflash_console.errors import CopyError, Unreachable
from dflash_console.operations.copying import roll_back
from dflash_console.operations.planning import compare, plan_roll_back, read_text
from dflash_console.operations.reaching import MOST_ON_A_HOST
from tests.operations.fleet import answer
from tests.operations.local import BY, YES, LocalFleet, content, copied, left, sides, site_of, spy, states

HOSTS = ("ct129", "ct200", "kpro6")


@pytest.fixture
def fleet(tmp_path: Path) -> LocalFleet:
    return LocalFleet(tmp_path, *HOSTS)


# ---- the ordinary flow


async def test_a_copy_leaves_the_sources_package_and_a_backup(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    before = content(target)
    seen: list[TargetRun] = []
    plan = await fleet.plan(source, target)
    (one,) = plan.targets
    assert one.difference is not None
    assert (one.difference.added, one.difference.removed) == (4, 4)
    assert ("sglang", 1, 2, 1) in one.difference.folders
    assert content(target) == before, "a plan writes nothing"
    assert not (Path(target.venv) / ".dflash-console").exists()
    (run,) = await fleet.copy(plan, changed=seen.append)
    assert run.state == "done", run
    assert content(target) == content(source)
    assert states(seen) == ["claiming", "sending", "checking", "swapping", "verifying", "done"]
    assert (run.swap, run.added, run.files) == ("exchange", one.difference.added, run.all_files)
    assert run.bytes == run.all_bytes == one.bytes
    assert run.bytes_sent > run.bytes
    assert run.verdict is not None
    assert run.verdict.is_ready
    assert {check.state for check in run.checks} == {"pass"}
    assert left(target) == []
    looked = await plan_roll_back(fleet, fleet.config, target)
    assert looked.look is not None
    assert [backup.id for backup in looked.look.backups] == [run.backup]
    assert looked.look.provenance is not None
    assert (looked.look.provenance.from_host, looked.look.provenance.by) == ("ct129", BY)


async def test_only_what_differs_travels(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    await copied(fleet, source, target)
    site = site_of(source)
    for name in ("sglang/same.py", "sglang/lang/part3.py", "sglang/srt/dflash.py"):
        (site / name).write_text(f"# patched {name}\n")
    plan = await fleet.plan(source, target)
    assert plan.targets[0].difference is not None
    assert plan.targets[0].difference.changed == 3
    (run,) = await fleet.copy(plan)
    assert (run.state, run.all_files, run.changed) == ("done", 3, 3)
    assert run.bytes_sent < 4000
    assert content(target) == content(source)
    again = await fleet.plan(source, target)
    assert again.targets[0].bytes == 0
    (run,) = await fleet.copy(again)
    assert (run.state, run.all_files) == ("done", 0)


async def test_a_copy_where_nothing_was(fleet: LocalFleet) -> None:
    source, target = sides(fleet, None)
    (run,) = await copied(fleet, source, target)
    assert run.swap == "placed"
    assert content(target) == content(source)
    back = await roll_back(
        fleet, fleet.config, target, "", YES, lambda run: None, read_only=False, by=BY, look=None
    )
    assert back.state == "done", back
    assert content(target) == {}


async def test_a_nested_mess_is_replaced_whole(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    inner = site_of(target) / "sglang" / "sglang"
    inner.mkdir()
    (inner / "__init__.py").write_text("nested = True\n")
    (inner / "extra").mkdir()
    (inner / "extra" / "x.py").write_text("x = 1\n")
    await copied(fleet, source, target)
    assert content(target) == content(source)


async def test_many_targets_are_served_by_one_reading(fleet: LocalFleet) -> None:
    source = fleet.lay("ct129", "0.5.23")
    targets = [
        fleet.lay(f"{host}-{number}", "0.5.9", host=host) for host in HOSTS[1:] for number in (1, 2, 3)
    ]
    asked: list[str] = []
    fleet.on_channel = lambda channel: spy(channel, asked)
    await copied(fleet, source, *targets)
    for target in targets:
        assert content(target) == content(source)
    assert asked.count("send") == 1


async def test_more_environments_of_a_host_than_it_has_channels_take_turns(fleet: LocalFleet) -> None:
    source = fleet.lay("ct129", "0.5.23")
    targets = [fleet.lay(f"other{number}", "0.5.9", host="ct129") for number in range(4)]
    open_now = most = 0
    channel = fleet.channel

    def counted(name: str) -> object:
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def inner():  # type: ignore[no-untyped-def]
            nonlocal open_now, most
            open_now += 1
            most = max(most, open_now)
            try:
                async with channel(name) as given:
                    yield given
            finally:
                open_now -= 1

        return inner()

    fleet.channel = counted  # type: ignore[method-assign,assignment]
    await copied(fleet, source, *targets)
    assert most <= MOST_ON_A_HOST


async def test_a_rollback_puts_back_what_was_there(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    before = content(target)
    await copied(fleet, source, target)
    fleet.answers["files"] = answer("files", "fail")
    seen: list[TargetRun] = []
    run = await roll_back(
        fleet, fleet.config, target, "", YES, seen.append, read_only=False, by=BY, look=None
    )
    assert run.state == "done", run
    assert "not ready" in run.detail, "it is said, and it stays: this is what was there before"
    assert content(target) == before
    looked = await plan_roll_back(fleet, fleet.config, target)
    assert looked.look is not None
    assert [backup.reason for backup in looked.look.backups] == ["rollback"]
    assert left(target) == []


async def test_a_rollback_that_could_not_be_verified_is_kept_and_not_called_wrong(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    before = content(target)
    await copied(fleet, source, target)
    for part in ("files", "find_spec", "service"):
        fleet.answers[part] = Unreachable("ct200: the connection was lost")
    run = await roll_back(
        fleet, fleet.config, target, "", YES, lambda run: None, read_only=False, by=BY, look=None
    )
    assert run.state == "done", run
    assert "not verified" in run.detail
    assert content(target) == before


# ---- what is refused


async def test_nothing_is_touched_without_consent(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    plan = await fleet.plan(source, target)
    before = len(fleet.channels)
    for consent, read_only in ((Consent(), False), (YES, True)):
        (run,) = await fleet.copy(plan, consent, read_only=read_only)
        assert run.state == "refused"
    assert len(fleet.channels) == before, "a host was asked"
    run = await roll_back(
        fleet, fleet.config, target, "", Consent(), lambda run: None, read_only=False, by=BY, look=None
    )
    assert run.state == "refused"


async def test_a_target_that_changed_since_the_plan_is_refused(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    plan = await fleet.plan(source, target)
    (site_of(target) / "sglang/same.py").write_text("# changed by hand\n")
    before = content(target)
    (run,) = await fleet.copy(plan)
    assert run.state == "refused"
    assert "plan again" in run.detail
    assert run.detail.count("when the plan was made") == 1
    assert content(target) == before


async def test_a_source_that_changed_since_the_plan_ends_the_copy(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    plan = await fleet.plan(source, target)
    (site_of(source) / "sglang/same.py").write_text("# changed by hand\n")
    before = content(target)
    (run,) = await fleet.copy(plan)
    assert run.state == "failed"
    assert "make a new plan" in run.detail
    assert content(target) == before
    assert left(target) == []


async def test_the_second_of_two_consoles_is_told_who_holds_the_lock(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    plan = await fleet.plan(source, target)
    async with asyncio.TaskGroup() as tasks:
        both = [tasks.create_task(fleet.copy(plan)) for _ in range(2)]
    runs = sorted((task.result()[0] for task in both), key=lambda run: run.state)
    assert [run.state for run in runs] == ["done", "refused"]
    assert f"held by {BY}" in runs[1].detail or "plan again" in runs[1].detail
    assert content(target) == content(source)


async def test_a_side_that_can_not_be_reached_is_a_problem_of_its_own(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    other = fleet.lay("kpro6", "0.5.9")
    fleet.refusals["ct200"] = Unreachable("ct200 is not connected: no route")
    plan = await fleet.plan(source, target, other)
    assert [one.is_unreachable for one in plan.targets] == [True, False]
    runs = await fleet.copy(plan)
    assert [run.state for run in runs] == ["unreachable", "done"]
    fleet.refusals = {"ct129": Unreachable("ct129 is not connected")}
    plan = await fleet.plan(source, other)
    assert plan.is_unreachable
    (run,) = await fleet.copy(plan)
    assert (run.state, run.detail) == ("unreachable", "ct129 is not connected")


# ---- comparing and reading


async def test_two_packages_are_compared_and_a_file_is_read(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    left_look, right_look, found, why = await compare(fleet, fleet.config, source, target)
    assert (why, left_look is not None, right_look is not None) == ("", True, True)
    assert found is not None
    assert {each.path for each in found.removed} >= {"sglang/only_in_0_5_9.py"}
    text = await read_text(fleet, fleet.config, source, "sglang/srt/dflash.py")
    assert text == "VERSION = '0.5.23'\n"
    (site_of(source) / "sglang/x.py").write_text("a\x1b[2J\tb\n" * 2)
    assert await read_text(fleet, fleet.config, source, "sglang/x.py") == "a       b\n" * 2
    (site_of(source) / "sglang/x.bin").write_bytes(b"\0\1")
    for path in ("sglang/x.bin", "sglang/nowhere.py", "/etc/passwd", "../../x"):
        with pytest.raises(CopyError):
            await read_text(fleet, fleet.config, source, path)


async def test_what_can_not_be_compared_is_said(fleet: LocalFleet) -> None:
    source = fleet.lay("ct129", "0.5.23")
    nowhere = Side("ct200", str(fleet.folder / "nowhere"))
    _, _, found, why = await compare(fleet, fleet.config, source, nowhere)
    assert found is None
    assert "nowhere" in why
    _, _, found, why = await compare(fleet, fleet.config, source, Side("ct999", "/x"))
    assert (found, why) == (None, "ct999 is not a host of the config")
