"""Copies between real hosts whose processes and links die on the way, or are slow."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_console.copies import Side, TargetRun
from tests.hosts.copies import (
    Console,
    at,
    console,
    content,
    journal,
    kill_copying,
    lay,
    left,
    pair,
    settled,
    whole,
)
from tests.hosts.fleet import Fleet
from tests.hosts.host import Host
from tests.hosts.proofs import OLD, STABLE, site_of
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)

SLOW = "40mbit"


async def test_a_source_that_dies_mid_stream_costs_nothing_on_any_target(
    places: Fleet, tmp_path: Path
) -> None:
    source, target = pair(places, new=STABLE)
    other = lay(places["ct129"], "other", OLD)
    here = places["kpro6"]
    old = content(places["ct200"], target)
    silent = "kpro6: no answer to `ping` in 6 s; network, host or agent hangs"
    words = {"kill": "the agent on kpro6 ended by signal KILL", "cut": silent, "freeze": silent}
    async with console(tmp_path, places, source, target, other) as one:
        await one.watch.until_whole("kpro6", "ct200", "ct129")
        for fault in ("kill", "cut", "freeze"):
            watchers = {min(agent.pid for agent in here.agents())}
            strike: dict[str, Callable[[], object]] = {
                "kill": functools.partial(kill_copying, here, watchers),
                "cut": here.cut,
                "freeze": here.freeze,
            }
            here.speed_up()
            plan = await one.plan(source, target, other)
            # So that it is in the middle when the first of it has arrived.
            here.slow_down(SLOW)
            runs = await one.copy(plan, at("sending", strike[fault], received=1))
            here.mend()
            here.thaw()
            for run in runs:
                assert run.state == "unreachable", run
                assert run.detail == f"the source: {words[fault]}; nothing was changed"
                assert 0 < run.bytes < run.all_bytes
                await gone(places[run.side.host], run.side)
                assert content(places[run.side.host], run.side) == old
            await one.watch.until_link("kpro6", "up")
        here.speed_up()
        await one.copied(source, target, other)
    new = but_record(content(here, source))
    assert [but_record(content(places[run.side.host], run.side)) == new for run in runs] == [True, True]


async def gone(host: Host, side: Side) -> None:
    """Waits until a copy that broke off has cleared up by itself."""
    await until(lambda: not left(host, side), 60, "the stage is gone by itself")
    assert journal(host, side)[-1] == "undone"


def but_record(tree: dict[str, str]) -> dict[str, str]:
    """Of the programs in bin/ that this release has, a copy brings none, and its RECORD names none."""
    return tree | {f"sglang-{STABLE}.dist-info/RECORD": ""}


async def test_a_target_whose_copy_process_is_killed_at_any_step_has_a_whole_package(
    places: Fleet, tmp_path: Path
) -> None:
    source, target = pair(places, new=STABLE)
    other = lay(places["ct129"], "other", OLD)
    host, here = places["ct200"], places["kpro6"]
    old, new = content(host, target), but_record(content(here, source))
    async with console(tmp_path, places, source, target, other) as one:
        run = await killed(one, host, "sending", source, target, other)
        assert "nothing was changed" in run.detail
        assert whole(host, target, old) == 0
        assert but_record(content(places["ct129"], other)) == new, "the other target went on"

        run = await killed(one, host, "checking", source, target)
        assert any("was cut short while sending" in note for note in run.notes), run
        assert "nothing was changed" in run.detail
        assert whole(host, target, old) == 0

        run = await killed(one, host, "swapping", source, target)
        assert any("was cut short while " in note for note in run.notes), run
        assert content(host, target) == old or but_record(content(host, target)) == new

        patched = site_of(here, source.venv) / "sglang/version.py"
        text = patched.read_text()
        patched.unlink()
        patched.write_text(f"{text}\n# patched\n")
        new = but_record(content(here, source))
        run = await killed(one, host, "verifying", source, target)
        assert run.notes, "what the one before left is told"
        assert "it had been swapped" in run.detail
        assert but_record(content(host, target)) == new
        plan = await one.plan(source, target)
        look = plan.targets[0].look
        assert look is not None
        assert look.unsettled is not None
        assert look.unsettled.outlook == "will be finished: the new package is in place"
        (again,) = await settled(one, host, source, target)
        assert again.notes
    assert but_record(content(host, target)) == new


async def killed(
    one: Console, host: Host, state: str, source: Side, target: Side, *others: Side
) -> TargetRun:
    """A copy whose process on the target's host is killed in a state; the other targets must get theirs."""
    await one.watch.until_whole(source.host, host.name, *(other.host for other in others))
    watchers = {min(agent.pid for agent in host.agents())}
    plan = await one.plan(source, target, *others)
    counts: list[int] = []

    def strike(run: TargetRun) -> None:
        if run.side == target:
            kill(run)

    kill = at(state, lambda: counts.append(kill_copying(host, watchers)), received=int(state == "sending"))
    run, *rest = await one.copy(plan, strike)
    assert counts == [1], "the one that copied was killed"
    assert run.state == "unreachable", run
    assert {other.state for other in rest} <= {"done"}, rest
    return run


async def test_a_slow_link_is_given_less_to_carry(places: Fleet, tmp_path: Path, figures: list[str]) -> None:
    source, slow = pair(places)
    fast = lay(places["ct129"], "fast", OLD)
    wire = {}
    async with console(tmp_path, places, source, slow, fast) as one:
        for side in (fast, slow):
            host = places[side.host]
            plan = await one.plan(source, side)
            if side is slow:
                host.slow_down(SLOW)
            before = host.bytes_in
            (run,) = await one.copy(plan)
            assert run.state == "done", run.detail
            wire[side] = host.bytes_in - before
    assert wire[fast] > plan.targets[0].bytes, "nothing is compressed that goes fast as it is"
    figures.append(
        f"{plan.targets[0].bytes >> 20} MiB over {SLOW}: {wire[slow] >> 20} MiB on the wire, "
        f"{wire[fast] >> 20} MiB on a fast one: 1/{wire[fast] / wire[slow]:.1f}"
    )
    assert wire[fast] > 1.5 * wire[slow]
