"""Verdicts that are kept: filled in, told apart by time, and stale when what they stand on changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from dflash_console.config import Config, ConsoleConfig, PackageConfig
from dflash_console.errors import Unreachable
from dflash_console.model import LinkStatus
from dflash_console.operations import verdicts as kept
from dflash_console.operations.verdicts import Verdicts
from tests import pictures
from tests.fleet.virtual import run_virtual
from tests.operations.fleet import VENV, StubFleet, answer

CONFIG = Config(ConsoleConfig(), PackageConfig(), {})


def virtual(story: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test on a loop whose clock jumps."""

    def test() -> None:
        run_virtual(story())

    return test


@asynccontextmanager
async def running(fleet: StubFleet) -> AsyncIterator[Verdicts]:
    verdicts = Verdicts(fleet, CONFIG)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(verdicts.run())
        yield verdicts
        task.cancel()


async def until(claim: Callable[[], object]) -> None:
    async with asyncio.timeout(600):
        while not claim():  # noqa: ASYNC110 - the clock jumps
            await asyncio.sleep(0.01)


async def complete(verdicts: Verdicts, host: str = "ct200") -> None:
    await until(lambda: verdicts.of(host) and not any(verdict.waiting for verdict in verdicts.of(host)))


@virtual
async def test_a_key_starts_it_and_it_fills_in() -> None:
    fleet = StubFleet()
    fleet.held = {"find_spec"}
    async with running(fleet) as verdicts:
        assert verdicts.ask("ct200") == ""
        await until(lambda: verdicts.of("ct200") and verdicts.of("ct200")[0].waiting == ("find_spec",))
        assert verdicts.ask("ct200") == "ct200 is being verified already"
        fleet.release.set()
        await complete(verdicts)
        (verdict,) = verdicts.of("ct200")
        assert verdict.is_ready
        assert verdict.venv == VENV
        assert verdicts.ask("ct200") == ""


@virtual
async def test_what_can_not_be_verified_says_why() -> None:
    fleet = StubFleet("ct200", "bare")
    fleet.pictures["bare"] = msgspec.structs.replace(pictures.snapshot(), venvs=[])
    async with running(fleet) as verdicts:
        assert verdicts.ask("nobody") == "nobody is not connected"
        assert verdicts.ask("bare") == "bare has no environment to verify"
        fleet.links["ct200"] = LinkStatus("unreachable")
        assert verdicts.ask("ct200") == "ct200 is not connected: unreachable"
        fleet.links["ct200"] = LinkStatus("unreachable", "no route to host")
        assert verdicts.ask("ct200") == "ct200 is not connected: no route to host"


@virtual
async def test_many_hosts_are_proved_side_by_side() -> None:
    names = [f"h{number}" for number in range(32)]
    fleet = StubFleet(*names)
    async with running(fleet) as verdicts:
        assert {verdicts.ask(name) for name in names} == {""}
        for name in names:
            await complete(verdicts, name)
    assert fleet.most_at_once > 32


@virtual
async def test_a_verdict_goes_stale_when_a_file_of_the_tree_changes() -> None:
    fleet = StubFleet()
    async with running(fleet) as verdicts:
        verdicts.ask("ct200")
        await complete(verdicts)
        await asyncio.sleep(2 * kept.RECHECK + 1)
        assert verdicts.of("ct200")[0].stale == ""
        fleet.answers["fingerprint"] = b'{"fingerprint":"two"}'
        await until(lambda: verdicts.of("ct200")[0].stale)
        assert verdicts.of("ct200")[0].stale == "files of the package changed"
        assert verdicts.of("ct200")[0].is_ready
        fleet.answers["files"] = answer("files", fingerprint="two")
        verdicts.ask("ct200")
        await until(lambda: not verdicts.of("ct200")[0].stale and not verdicts.of("ct200")[0].waiting)


@virtual
async def test_a_verdict_goes_stale_at_once_when_the_environment_or_a_unit_changes() -> None:
    fleet = StubFleet()
    for change, words in (
        ({"venvs": [pictures.venv(VENV, torch_build="2.9.1+cu128")]}, "the environment changed"),
        ({"units": [pictures.unit(invocation_id="another")]}, "a unit changed"),
        ({"units": []}, "a unit changed"),
        ({"venvs": []}, "the environment changed"),
    ):
        fleet.pictures["ct200"] = pictures.snapshot()
        async with running(fleet) as verdicts:
            verdicts.ask("ct200")
            await complete(verdicts)
            verdicts.refresh()
            assert verdicts.of("ct200")[0].stale == ""
            fleet.pictures["ct200"] = msgspec.structs.replace(pictures.snapshot(), **change)
            fleet.links["ct200"] = LinkStatus("unreachable")
            verdicts.refresh()
            assert verdicts.of("ct200")[0].stale == ""
            fleet.links["ct200"] = LinkStatus("up")
            verdicts.refresh()
            assert verdicts.of("ct200")[0].stale == words


@virtual
async def test_a_host_that_can_not_be_asked_again_leaves_its_verdict_as_it_is() -> None:
    fleet = StubFleet()
    async with running(fleet) as verdicts:
        verdicts.ask("ct200")
        await complete(verdicts)
        fleet.answers["fingerprint"] = Unreachable("gone")
        await asyncio.sleep(3 * kept.RECHECK)
        assert verdicts.of("ct200")[0].stale == ""


@virtual
async def test_a_host_that_does_not_answer_holds_up_the_looking_after_of_no_other() -> None:
    fleet = StubFleet("ct129", "ct200")
    async with running(fleet) as verdicts:
        for name in ("ct129", "ct200"):
            verdicts.ask(name)
            await complete(verdicts, name)
        fleet.silent = {"ct129"}
        fleet.answers["fingerprint"] = b'{"fingerprint":"two"}'
        await until(lambda: verdicts.of("ct200")[0].stale)
        assert verdicts.of("ct129")[0].stale == ""


@virtual
async def test_a_fault_of_our_own_is_told_on_its_environment_and_ends_nothing_else() -> None:
    fleet = StubFleet()
    fleet.faults["find_spec"] = RuntimeError("boom")
    async with running(fleet) as verdicts:
        verdicts.ask("ct200")
        await complete(verdicts)
        (verdict,) = verdicts.of("ct200")
        assert not verdict.is_ready
        assert any("RuntimeError" in check.detail for check in verdict.checks if check.state == "unknown")
        fleet.faults.clear()
        assert verdicts.ask("ct200") == ""
        await complete(verdicts)
        await until(lambda: verdicts.of("ct200")[0].is_ready)
