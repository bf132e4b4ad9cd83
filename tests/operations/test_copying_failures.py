"""Copies that go wrong on the way, with real copy processes on this machine: what is left, and how it is said."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from dflash_console.copies import Consent, RunState, Side, TargetRun
from dflash_console.errors import Unreachable
from dflash_console.link import Channel
from dflash_console.link.channel import Progress
from dflash_console.operations import remote
from tests import pictures
from tests.agent.copy.mounts import layered
from tests.agent.environments import make_venv, pythons
from tests.operations.fleet import answer
from tests.operations.local import MINOR, LocalFleet, content, copied, journal, left, sides, site_of, when


@pytest.fixture
def fleet(tmp_path: Path) -> LocalFleet:
    return LocalFleet(tmp_path, "ct129", "ct200", "kpro6")


@pytest.mark.usefixtures("asked_of_the_agent")
async def test_a_package_that_does_not_prove_right_is_undone(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    before = content(target)
    plan = await fleet.plan(source, target)
    fleet.answers["find_spec"] = answer("find_spec", "fail")
    (run,) = await fleet.copy(plan)
    assert run.state == "undone", run
    assert "not ready" in run.detail
    assert content(target) == before
    assert journal(target)[-1] == "undone"
    assert left(target) == []


@pytest.mark.usefixtures("asked_of_the_agent")
async def test_what_was_not_ready_at_its_source_stays_when_that_was_allowed(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    fleet.answers["find_spec"] = answer("find_spec", "fail")
    plan = await fleet.plan(source, target)
    assert [need.code for need in plan.targets[0].needs] == ["unverified"]
    (run,) = await fleet.copy(plan)
    assert run.state == "refused"
    (run,) = await fleet.copy(plan, Consent(True, frozenset({"unverified"})))
    assert run.state == "done"
    assert "not ready, as its source" in run.detail


async def test_a_service_that_runs_the_old_package_does_not_undo_the_new_one(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    plan = await fleet.plan(source, target)
    fleet.answers["service"] = (
        b'{"checks":[{"name":"service sglang.service","state":"fail","detail":"restart needed"}],"facts":{}}'
    )
    (run,) = await fleet.copy(plan)
    assert run.state == "done"
    assert "restart needed" in run.detail


async def test_a_stage_that_does_not_import_is_never_swapped_in(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    before = content(target)
    (site_of(source) / "sglang/__init__.py").write_text("import a_module_that_is_nowhere\n")
    plan = await fleet.plan(source, target)
    (run,) = await fleet.copy(plan)
    assert run.state == "failed"
    assert run.detail.startswith("nothing was changed: import:")
    assert content(target) == before
    assert left(target) == []
    assert "swapping" not in journal(target)


async def test_a_flipped_byte_in_transit_is_named_and_nothing_is_changed(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    before = content(target)
    plan = await fleet.plan(source, target)

    def spoil(channel: Channel) -> None:
        if channel.name == "ct200":
            write = channel.write

            def flipped(frame: bytes) -> None:
                is_block = len(frame) > 5000 and frame[4] == 1
                write(frame[:-100] + bytes([frame[-100] ^ 1]) + frame[-99:] if is_block else frame)

            channel.write = flipped  # type: ignore[method-assign]

    fleet.on_channel = spoil
    (run,) = await fleet.copy(plan)
    assert run.state == "failed"
    assert "sglang" in run.detail
    assert content(target) == before
    assert left(target) == []


async def test_a_source_that_changes_while_it_is_read_ends_the_copy_in_words(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    before = content(target)
    plan = await fleet.plan(source, target)
    changed = site_of(source) / "sglang/lang/part7.py"

    def meddle(channel: Channel) -> None:
        when(channel, "send", lambda: changed.write_text("# another now\n"))

    fleet.on_channel = meddle
    (run,) = await fleet.copy(plan)
    assert run.state == "failed"
    assert "sglang/lang/part7.py changed while it was read" in run.detail
    assert content(target) == before
    assert left(target) == []


STEPS = ("claim", "expect", "want", "fill", "check", "swap", "settle")


@pytest.mark.parametrize("step", STEPS)
async def test_an_agent_that_is_killed_leaves_a_whole_package_and_the_next_copy_goes_on(
    fleet: LocalFleet, step: str
) -> None:
    source, target = sides(fleet)
    before = content(target)
    plan = await fleet.plan(source, target)

    def kill(channel: Channel) -> None:
        if channel.name == "ct200":
            when(channel, step, lambda: os.kill(channel.hello.pid, signal.SIGKILL))

    fleet.on_channel = kill
    (run,) = await fleet.copy(plan)
    assert run.state == "unreachable", run
    assert content(target) in (before, content(source))
    fleet.on_channel = lambda channel: None
    runs = await copied(fleet, source, target)
    assert content(target) == content(source)
    assert left(target) == []
    assert bool(runs[0].notes) == (step not in ("claim",)), runs[0].notes


@pytest.mark.parametrize("step", STEPS)
async def test_a_console_that_is_gone_leaves_a_whole_package_and_nothing_that_was_begun(
    fleet: LocalFleet, step: str
) -> None:
    """As SIGKILL of the console does: the pipe of the copy process is closed, nothing else."""
    source, target = sides(fleet)
    before = content(target)
    plan = await fleet.plan(source, target)

    def vanish(channel: Channel) -> None:
        if channel.name == "ct200":
            when(channel, step, channel._process.write_eof)

    fleet.on_channel = vanish
    (run,) = await fleet.copy(plan)
    assert run.state == "unreachable", run
    is_new = content(target) == content(source)
    assert is_new or content(target) == before
    assert left(target) == []
    fleet.on_channel = lambda channel: None
    await copied(fleet, source, target)


CANCELLED: tuple[RunState, ...] = ("claiming", "sending", "checking")


@pytest.mark.parametrize("state", CANCELLED)
async def test_cancelling_before_the_swap_leaves_all_as_it_was(fleet: LocalFleet, state: RunState) -> None:
    source, target = sides(fleet)
    before = content(target)
    plan = await fleet.plan(source, target)
    seen: list[TargetRun] = []
    reached = asyncio.Event()

    def changed(run: TargetRun) -> None:
        seen.append(run)
        if run.state == state:
            reached.set()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(fleet.copy(plan, changed=changed))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert seen[-1].state == "cancelled"
    assert content(target) == before
    assert left(target) == []
    (run,) = await fleet.copy(await fleet.plan(source, target))
    assert run.state == "done"
    assert run.notes == (), "the lock and the journal were left settled"


@pytest.mark.parametrize("state", ["swapping", "verifying"])
async def test_cancelling_from_the_swap_on_changes_nothing_any_more(fleet: LocalFleet, state: str) -> None:
    source, target = sides(fleet)
    plan = await fleet.plan(source, target)
    seen: list[TargetRun] = []
    reached = asyncio.Event()

    def changed(run: TargetRun) -> None:
        seen.append(run)
        if run.state == state:
            reached.set()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(fleet.copy(plan, changed=changed))
        await reached.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
    assert seen[-1].state == "done"
    assert content(target) == content(source)
    assert journal(target)[-1] == "done"


async def test_a_loop_that_is_ended_while_a_target_is_swapped_does_not_call_it_unchanged(
    fleet: LocalFleet,
) -> None:
    """As a second Ctrl-C does: every task of the loop is cancelled."""
    source, target = sides(fleet)
    plan = await fleet.plan(source, target)
    fleet.held = {"files"}
    seen: list[TargetRun] = []
    reached = asyncio.Event()

    def changed(run: TargetRun) -> None:
        seen.append(run)
        if run.state == "verifying":
            reached.set()

    async with asyncio.TaskGroup() as tasks:
        ours = asyncio.all_tasks()
        task = tasks.create_task(fleet.copy(plan, changed=changed))
        await reached.wait()
        for each in asyncio.all_tasks() - ours:
            each.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert seen[-1].state == "failed"
    assert "stopped at once" in seen[-1].detail
    assert "it had been swapped" in seen[-1].detail
    assert content(target) == content(source)
    assert journal(target)[-1] == "done"


async def test_what_could_not_be_verified_since_the_session_ended_is_kept_and_said(
    fleet: LocalFleet,
) -> None:
    source, target = sides(fleet)
    plan = await fleet.plan(source, target)
    for part in ("files", "find_spec", "service"):
        fleet.answers[part] = Unreachable("ct200: the connection was lost")
    (run,) = await fleet.copy(plan)
    assert run.state == "done", run
    assert "not verified" in run.detail
    assert "the connection was lost" in run.detail
    assert content(target) == content(source)
    assert journal(target)[-1] == "done"


@pytest.mark.usefixtures("asked_of_the_agent")
async def test_what_was_seen_to_be_wrong_is_undone_whatever_could_not_be_asked(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    before = content(target)
    plan = await fleet.plan(source, target)
    fleet.answers["files"] = Unreachable("ct200: the connection was lost")
    fleet.answers["find_spec"] = answer("find_spec", "fail")
    (run,) = await fleet.copy(plan)
    assert run.state == "undone"
    assert content(target) == before


@pytest.mark.parametrize("step", ["claim", "check"])
async def test_what_begins_to_run_after_the_plan_needs_a_yes(fleet: LocalFleet, step: str) -> None:
    source, target = sides(fleet)
    before = content(target)
    plan = await fleet.plan(source, target)

    def start() -> None:
        unit = msgspec.structs.replace(
            pictures.snapshot().units[0], name="late.service", venv=target.venv, active="active"
        )
        fleet.pictures["ct200"] = msgspec.structs.replace(fleet.pictures["ct200"], units=[unit])

    def meddle(channel: Channel) -> None:
        if channel.name == "ct200":
            when(channel, step, start)

    fleet.on_channel = meddle
    (run,) = await fleet.copy(plan)
    assert run.state == "refused", run
    assert "late.service" in run.detail
    assert content(target) == before
    assert left(target) == []
    (run,) = await fleet.copy(plan, Consent(True, frozenset({"running"})))
    assert run.state == "done", run


@pytest.mark.parametrize("step", ["claim", "check"])
async def test_a_process_that_begins_to_run_from_there_after_the_plan_needs_a_yes(
    fleet: LocalFleet, step: str
) -> None:
    source, target = sides(fleet)
    before = content(target)
    plan = await fleet.plan(source, target)
    say = "print('ready', flush=True); import sys; sys.stdin.read()"
    argv = [f"{target.venv}/bin/python", "-c", say]
    with ExitStack() as started:

        def start() -> None:
            process = started.enter_context(
                subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            assert process.stdin is not None
            assert process.stdout is not None
            started.callback(process.stdin.close)
            assert process.stdout.readline() == b"ready\n"

        def meddle(channel: Channel) -> None:
            if channel.name == "ct200":
                when(channel, step, start)

        fleet.on_channel = meddle
        (run,) = await fleet.copy(plan)
        assert run.state == "refused", run
        assert "bin/python -c" in run.detail
        assert "began to run from" in run.detail
        assert content(target) == before
        assert left(target) == []
        fleet.on_channel = lambda channel: None
        again = await fleet.plan(source, target)
        assert [need.code for need in again.targets[0].needs] == ["running"]
        (run,) = await fleet.copy(again, Consent(True, frozenset({"running"})))
        assert run.state == "done", run


async def test_what_can_only_be_copied_aside_is_told_in_the_plan_and_needs_a_yes(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    """A package of an image's layer."""
    source = fleet.lay("ct129", "0.5.23")
    in_image = fleet.lay("image/venv", "0.5.9")
    with layered(tmp_path / "layers", Path(in_image.venv).parent) as merged:
        target = Side("ct200", str(merged / "venv"))
        before = content(target)
        plan = await fleet.plan(source, target)
        (need,) = plan.targets[0].needs
        assert need.code == "layer"
        assert "can't be renamed" in need.text
        (run,) = await fleet.copy(plan)
        assert (run.state, "(layer)" in run.detail) == ("refused", True), run
        # Whatever the plan says: the host has heard of no yes.
        blind = msgspec.structs.replace(plan.targets[0], needs=())
        (run,) = await fleet.copy(msgspec.structs.replace(plan, targets=(blind,)))
        assert (run.state, "(layer)" in run.detail) == ("failed", True), run
        assert content(target) == before
        assert left(target) == []
        (run,) = await fleet.copy(plan, Consent(True, frozenset({"layer"})))
        assert (run.state, run.swap) == ("done", "copied"), run
        assert content(target) == content(source)
        again = await fleet.plan(source, target)
        assert again.targets[0].needs == ()


@pytest.mark.parametrize("minor", [minor for minor in pythons() if minor != MINOR][-1:])
async def test_another_python_needs_a_yes(fleet: LocalFleet, tmp_path: Path, minor: str) -> None:
    source = fleet.lay("ct129", "0.5.23")
    target = Side("ct200", str(tmp_path / "ct200"))
    site = make_venv(Path(target.venv), pythons()[minor])
    plan = await fleet.plan(source, target)
    assert [need.code for need in plan.targets[0].needs] == ["python"]
    (run,) = await fleet.copy(plan)
    assert (run.state, "(python)" in run.detail) == ("refused", True), run
    assert [*site.iterdir()] == []
    (run,) = await fleet.copy(plan, Consent(True, frozenset({"python"})))
    assert run.state == "done", run
    (site_of(source) / "sglang" / "secret.pyc").write_bytes(b"no source")
    plan = await fleet.plan(source, target)
    assert [check.name for check in plan.targets[0].failed] == ["compiled"]


@pytest.mark.parametrize("answered", ["want", "fill"])
@pytest.mark.parametrize("is_link", [False, True])
async def test_a_target_that_wants_what_is_no_file_ends_for_itself_alone(
    fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch, answered: str, is_link: bool
) -> None:
    source, target = sides(fleet)
    other = fleet.lay("kpro6", "0.5.9")
    (site_of(source) / "sglang/link.py").symlink_to("same.py")
    plan = await fleet.plan(source, target, other)
    kinds = [entry.kind for entry in plan.entries]
    odd = kinds.index("link") if is_link else len(kinds)
    real_want, real_fill = remote.want, remote.fill

    async def want(channel: Channel) -> remote.Wanted:
        told = await real_want(channel)
        if channel.name == "ct200" and answered == "want":
            told = msgspec.structs.replace(told, wanted=(*told.wanted, odd))
        return told

    async def fill(channel: Channel, number: int, progress: Progress) -> remote.Missing:
        told = await real_fill(channel, number, progress)
        if channel.name == "ct200" and answered == "fill":
            told = msgspec.structs.replace(told, missing=(odd,))
        return told

    monkeypatch.setattr(remote, "want", want)
    monkeypatch.setattr(remote, "fill", fill)
    runs = await fleet.copy(plan)
    assert [run.state for run in runs] == ["unreachable", "done"], runs
    assert "no file of the plan" in runs[0].detail
    assert content(other) == content(source)
    assert left(target) == []


async def test_one_target_that_fails_leaves_the_others_alone(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    other = fleet.lay("kpro6", "0.5.9")
    plan = await fleet.plan(source, target, other)

    def kill(channel: Channel) -> None:
        if channel.name == "ct200":
            when(channel, "fill", lambda: os.kill(channel.hello.pid, signal.SIGKILL))

    fleet.on_channel = kill
    runs = await fleet.copy(plan)
    assert [run.state for run in runs] == ["unreachable", "done"]
    assert content(other) == content(source)
