"""A verdict as it fills in from the parts that an agent answers."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from dflash_console.agent import jobs
from dflash_console.config import Config, ConsoleConfig, HostConfig, PackageConfig
from dflash_console.errors import AgentFailed, Unreachable
from dflash_console.operations.orders import order
from dflash_console.operations.verify import AT_ONCE, FILES_AT_ONCE, Turns, prove
from dflash_console.verdict import DEEP_PARTS, QUICK_PARTS, Verdict
from tests import pictures
from tests.operations.fleet import VENV, StubFleet, answer
from tests.waiting import until

CONFIG = Config(ConsoleConfig(), PackageConfig(), {})


async def proved(fleet: StubFleet, *, is_deep: bool = False, told: list[Verdict] | None = None) -> Verdict:
    views = fleet.views()
    what = order(views[0], CONFIG, VENV, views, is_deep=is_deep)
    return await prove(fleet, what, (told if told is not None else []).append, clock=lambda: 5.0)


async def test_all_parts_are_asked_side_by_side_and_the_verdict_is_ready() -> None:
    fleet = StubFleet()
    verdict = await proved(fleet)
    assert verdict.is_ready
    assert (verdict.at, verdict.fingerprint, verdict.waiting) == (5.0, "one", ())
    assert {what for _, what, _ in fleet.asked} == set(QUICK_PARTS)
    assert fleet.most_at_once == len(QUICK_PARTS)


async def test_the_fast_answers_are_shown_before_the_slow_ones() -> None:
    fleet = StubFleet()
    fleet.held = {"find_spec"}
    told: list[Verdict] = []
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(proved(fleet, told=told))
        await until(lambda: (told and told[-1].waiting == ("find_spec",)) or None, 10, "the fast answers")
        assert {check.name for check in told[-1].checks} == {"python", "origin", "modules"}
        assert not told[-1].is_ready
        fleet.release.set()
    assert running.result().is_ready
    assert told[0].checks == ()


@pytest.mark.parametrize("part", QUICK_PARTS)
async def test_a_part_that_could_not_be_asked_is_unknown_and_never_ready_where_it_is_needed(
    part: str,
) -> None:
    fleet = StubFleet()
    fleet.answers[part] = Unreachable("no answer in 70 s")
    verdict = await proved(fleet)
    (check,) = [check for check in verdict.checks if check.state == "unknown"]
    assert (check.name, check.detail) == (part, "no answer in 70 s")
    assert verdict.is_ready == (part == "service")


async def test_a_nonsense_answer_is_unknown_and_says_what_was_wrong_with_it() -> None:
    fleet = StubFleet()
    fleet.answers["files"] = b'{"checks":[{"name":"origin","state":"splendid"}]}'
    verdict = await proved(fleet)
    assert not verdict.is_ready
    assert "splendid" in next(check.detail for check in verdict.checks if check.name == "files")


async def test_a_deep_verification_brings_its_libraries_first() -> None:
    fleet = StubFleet()
    verdict = await proved(fleet, is_deep=True)
    assert verdict.is_ready
    asked = [what for _, what, _ in fleet.asked]
    assert all(asked.index("ship") < asked.index(part) for part in DEEP_PARTS)
    (shipped,) = [fields for _, what, fields in fleet.asked if what == "ship"]
    assert shipped["modules"]


async def test_without_its_libraries_the_quick_parts_still_answer() -> None:
    fleet = StubFleet()
    fleet.answers["ship"] = AgentFailed("no room")
    verdict = await proved(fleet, is_deep=True)
    states = {check.name: check.state for check in verdict.checks}
    assert states["origin"] == "pass"
    assert {states[part] for part in DEEP_PARTS} == {"unknown"}
    assert not verdict.is_ready


async def test_the_pins_are_held_against_the_metadata_of_the_packages_source() -> None:
    fleet = StubFleet("ct129", "ct200")
    fleet.roles["ct129"] = HostConfig("ct129", role="source")
    here = pictures.venv(VENV, package=pictures.package(version="0.5.11", dist_version="0.5.9"))
    fleet.pictures["ct200"] = msgspec.structs.replace(pictures.snapshot(), venvs=[here])
    fleet.answers["metadata"] = answer("metadata", metadata=["Name: sglang", "Version: 0.5.11"])
    views = fleet.views()
    what = order(views[1], CONFIG, VENV, views, is_deep=True)
    await prove(fleet, what, lambda verdict: None)
    pins = next(fields for _, part, fields in fleet.asked if part == "pins")
    assert pins["source_metadata"] == "Name: sglang\nVersion: 0.5.11"
    assert pins["source"] == {"host": "ct129", "venv": VENV, "torch": "2.11.0+cu130", "python": "3.12.3"}
    fleet.answers["metadata"] = Unreachable("gone")
    fleet.asked.clear()
    await prove(fleet, what, lambda verdict: None)
    pins = next(fields for _, part, fields in fleet.asked if part == "pins")
    assert pins["source_problem"] == "ct129 could not be asked: gone"


def asked(fleet: StubFleet, part: str) -> int:
    return sum(what == part for _, what, _ in fleet.asked)


async def test_no_more_is_asked_of_a_host_than_its_agent_does_at_once() -> None:
    assert (AT_ONCE, FILES_AT_ONCE) == (jobs.PLACES, jobs.QUICK_PLACES)
    fleet = StubFleet("ct129", "ct200")
    fleet.held = {"find_spec"}
    views = fleet.views()
    orders = [
        order(view, CONFIG, f"/venv/{number}", views, is_deep=False) for view in views for number in range(20)
    ]
    turns = Turns()
    async with asyncio.TaskGroup() as tasks:
        proofs = [tasks.create_task(prove(fleet, one, lambda _: None, turns=turns)) for one in orders]
        # An import that hangs holds up those behind it and no look at files, and no other host.
        await until(lambda: asked(fleet, "files") == 40 or None, 10, "the files of all")
        await until(lambda: asked(fleet, "find_spec") == 2 * AT_ONCE or None, 10, "as many as may be asked")
        assert fleet.most_at_once <= 2 * (AT_ONCE + FILES_AT_ONCE)
        fleet.release.set()
    assert all(proof.result().is_ready for proof in proofs)
    assert asked(fleet, "find_spec") == 40
