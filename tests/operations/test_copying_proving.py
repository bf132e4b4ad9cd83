"""A copy that is begun while its source is still verified, and what verifies the package in its place."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dflash_console.copies import Consent, Side, TargetRun
from dflash_console.errors import Unreachable
from dflash_console.operations.copying import copy
from dflash_console.operations.planning import Planned, planning
from tests.operations.fleet import answer
from tests.operations.local import BY, YES, LocalFleet, content, copied, journal, left, sides, site_of, states
from tests.waiting import until

WAIT = 30.0


@pytest.fixture
def fleet(tmp_path: Path) -> LocalFleet:
    return LocalFleet(tmp_path, "ct129", "ct200", "kpro6")


class Begun:
    """A copy under way from a source whose verification is held up."""

    def __init__(self, fleet: LocalFleet, planned: Planned) -> None:
        self.planned = planned
        self.seen: list[TargetRun] = []
        self.runs: tuple[TargetRun, ...] = ()
        self._fleet = fleet

    async def carry_out(self, consent: Consent) -> None:
        self.runs = await copy(
            self._fleet,
            self._fleet.config,
            self.planned.plan,
            consent,
            self.seen.append,
            read_only=False,
            by=BY,
            whole=self.planned.whole,
        )

    def is_waiting(self) -> bool:
        """Whether the stage is ready, and only the verdict is not there."""
        return bool(self.seen) and self.seen[-1].detail.startswith("waiting for the verification")


@asynccontextmanager
async def begun(
    fleet: LocalFleet, source: Side, target: Side, consent: Consent = YES
) -> AsyncIterator[Begun]:
    """One whose stage is ready at the beginning of the block, and that is over at its end."""
    fleet.held = {"find_spec"}
    async with planning(fleet, fleet.config, source, [target]) as planned:
        assert planned.plan.is_proving
        work = Begun(fleet, planned)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(work.carry_out(consent))
            await until(work.is_waiting, WAIT, "all but the verdict is there")
            yield work
            fleet.held = set()
            fleet.release.set()


async def test_what_is_staged_meanwhile_is_swapped_when_the_source_is_ready(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    before = content(target)
    async with begun(fleet, source, target) as work:
        (check,) = [check for check in work.planned.plan.targets[0].checks if check.name == "source"]
        assert (check.state, "still being verified" in check.detail) == ("unknown", True)
        assert "sending" in states(work.seen)
        assert content(target) == before
        assert journal(target)[-1] == "claimed"
    assert [run.state for run in work.runs] == ["done"]
    assert content(target) == content(source)
    whole = work.planned.plan
    assert whole.verdict is not None
    assert whole.verdict.is_ready
    assert [check.state for check in whole.targets[0].checks if check.name == "source"] == ["pass"]


Fault = Callable[[LocalFleet], None]


def _not_ready(fleet: LocalFleet) -> None:
    fleet.answers["find_spec"] = answer("find_spec", "fail")


def _lost(fleet: LocalFleet) -> None:
    fleet.answers["find_spec"] = Unreachable("ct129: the connection was lost")


@pytest.mark.parametrize("fault", [_not_ready, _lost])
async def test_nothing_is_swapped_from_a_source_that_turns_out_not_to_be_ready(
    fleet: LocalFleet, fault: Fault
) -> None:
    source, target = sides(fleet)
    before = content(target)
    async with begun(fleet, source, target) as work:
        fault(fleet)
    (run,) = work.runs
    assert run.state == "refused"
    assert "needs a yes of its own (unverified)" in run.detail
    assert content(target) == before
    assert journal(target)[-1] == "undone"
    assert left(target) == []


async def test_a_source_that_is_not_ready_is_copied_when_that_was_allowed(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    async with begun(fleet, source, target, Consent(True, frozenset({"unverified"}))) as work:
        _not_ready(fleet)
        assert "checking" not in states(work.seen), "what is checked depends on what is wrong there"
    assert [run.state for run in work.runs] == ["done"]
    assert content(target) == content(source)


async def test_the_same_package_is_not_left_before_its_source_is_judged(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    await copied(fleet, source, target)
    async with begun(fleet, source, target) as work:
        _not_ready(fleet)
    assert [run.state for run in work.runs] == ["refused"]


async def test_what_begins_to_run_while_the_source_is_verified_is_seen(fleet: LocalFleet) -> None:
    """Who runs from the target is looked for after that."""
    source, target = sides(fleet)
    before = content(target)
    say = "print('ready', flush=True); import time; time.sleep(1000)"
    async with begun(fleet, source, target) as work:
        process = await asyncio.create_subprocess_exec(
            f"{target.venv}/bin/python", "-c", say, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    process.kill()
    await process.communicate()
    (run,) = work.runs
    assert run.state == "refused"
    assert f"process {process.pid} " in run.detail
    assert "began to run" in run.detail
    assert [check.state for check in run.checks if check.name == "importers"] == ["warn"]
    assert content(target) == before
    assert left(target) == []


async def test_a_plan_that_is_given_up_ends_its_questions(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    fleet.held = {"find_spec"}
    with pytest.raises(RuntimeError, match="given up"):
        async with planning(fleet, fleet.config, source, [target]):
            raise RuntimeError("given up")
    assert fleet.at_once == 0


# ---- the verification of what was put in its place


async def test_an_interpreter_that_got_ready_for_it_answers_for_the_package_in_its_place(
    fleet: LocalFleet,
) -> None:
    source, target = sides(fleet)
    plan = await fleet.plan(source, target)
    fleet.asked.clear()
    (run,) = await fleet.copy(plan)
    assert {what for _, what, _ in fleet.asked} == {"files", "service"}
    assert run.verdict is not None
    (check,) = [check for check in run.verdict.checks if check.name == "find_spec"]
    assert check.state == "pass"
    assert f"{target.venv}/lib/" in check.detail
    assert "sglang/__init__.py; dflash (" in check.detail


async def test_what_it_does_not_let_pass_is_asked_of_the_agent(fleet: LocalFleet) -> None:
    source, target = sides(fleet)
    with (site_of(source) / "sglang/__init__.py").open("a") as file:
        file.write("if '.dflash-console' not in __file__:\n    raise ValueError('only here')\n")
    plan = await fleet.plan(source, target)
    fleet.asked.clear()
    (run,) = await fleet.copy(plan)
    assert run.state == "done"
    assert [what for _, what, _ in fleet.asked].count("find_spec") == 1
