"""Copies that were broken off and are seen again: who settles them, when, and how often it is tried."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dflash_console.copies import Side
from dflash_console.errors import Unreachable
from dflash_console.link import Channel
from dflash_console.model import Copied, Missing, Venv
from dflash_console.operations import copies as copies_module
from tests.operations.local import LocalFleet, content, interrupt, left, running, show
from tests.waiting import until

WAIT = 60.0


@pytest.fixture
def fleet(tmp_path: Path) -> LocalFleet:
    return LocalFleet(tmp_path, "ct129", "ct200")


@pytest.mark.parametrize("read_only", [False, True])
async def test_an_interrupted_copy_that_is_seen_is_settled_once_and_said(
    fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    monkeypatch.setattr(copies_module, "LOOK_PAUSE", 0.05)
    target = fleet.lay("ct200", "0.5.9")
    before = content(target)
    interrupt(target)
    seen = Venv(target.venv, "config", "3.11.2", {}, Missing("not_found"))
    show(fleet, "ct200", msgspec.structs.replace(seen, interrupted="copy from ct129 by ana@desk"))
    async with running(fleet, read_only=read_only) as (copies, _):
        notice = await until(copies.take_notice, WAIT, "it is said")
        assert str(target) in notice
        assert ("left as it is" in notice) == read_only
        assert (left(target) == ["stage-20260101-000000-dead00"]) == read_only
        assert content(target) == before
        assert copies.take_notice() == ""
        assert len(fleet.channels) == (0 if read_only else 1)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"role": "observe"}, "only observed"),
        ({"production": True}, "the next copy or rollback there settles it"),
    ],
)
async def test_where_nobody_said_yes_an_interrupted_copy_is_told_and_left(
    fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(copies_module, "LOOK_PAUSE", 0.05)
    target = fleet.lay("ct200", "0.5.9")
    interrupt(target)
    fleet.config.hosts["ct200"] = msgspec.structs.replace(fleet.config.hosts["ct200"], **fields)
    show_interrupted(fleet, target)
    async with running(fleet) as (copies, _):
        assert words in await until(copies.take_notice, WAIT, "it is said")
        assert left(target) == ["stage-20260101-000000-dead00"]
        assert fleet.channels == []


def show_interrupted(fleet: LocalFleet, *targets: Side) -> None:
    """Has the hosts' pictures hold these environments, each with a copy that was broken off."""
    for host in {target.host for target in targets}:
        venvs = [
            Venv(
                target.venv,
                "config",
                "3.11.2",
                {},
                Missing("not_found"),
                interrupted="copy from ct129 by ana@desk",
            )
            for target in targets
            if target.host == host
        ]
        fleet.pictures[host] = msgspec.structs.replace(fleet.pictures[host], venvs=venvs)


async def test_what_can_not_be_settled_is_tried_again_later_and_not_for_ever(
    fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies_module, "LOOK_PAUSE", 0.01)
    monkeypatch.setattr(copies_module, "FIRST_PAUSE", 0.05)
    target = fleet.lay("ct200", "0.5.9")
    interrupt(target)
    show_interrupted(fleet, target)
    opened: list[str] = []
    channel = fleet.channel

    def noted(name: str) -> AbstractAsyncContextManager[Channel]:
        opened.append(name)
        return channel(name)

    monkeypatch.setattr(fleet, "channel", noted)
    fleet.refusals["ct200"] = Unreachable("ct200 is not connected: no route")
    async with running(fleet) as (copies, _):
        assert "tried again" in await until(copies.take_notice, WAIT, "the first try is said")
        last = await until(copies.take_notice, WAIT, "the last one is said")
        assert "the next copy or rollback there does it" in last
        assert len(opened) == copies_module.TRIES
        assert not copies._is_due(target, "copy from ct129 by ana@desk")


async def test_a_try_that_fails_is_not_the_last_word_and_what_is_settled_is_verified(
    fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies_module, "LOOK_PAUSE", 0.01)
    monkeypatch.setattr(copies_module, "FIRST_PAUSE", 0.05)
    target = fleet.lay("ct200", "0.5.9")
    interrupt(target)
    show_interrupted(fleet, target)
    fleet.refusals["ct200"] = Unreachable("ct200 is not connected: no route")
    async with running(fleet) as (copies, verdicts):
        await until(copies.take_notice, WAIT, "the first try is said")
        fleet.refusals.clear()
        async with asyncio.TaskGroup() as tasks:
            verifying = tasks.create_task(verdicts.run())
            await until(lambda: left(target) == [], WAIT, "it is settled")
            (verdict,) = await until(lambda: verdicts.of("ct200"), WAIT, "it is verified")
            assert verdict.venv == target.venv
            verifying.cancel()


@pytest.mark.parametrize("verified", [False, True])
async def test_a_copy_whose_console_was_gone_before_its_verify_is_verified_once(
    fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch, verified: bool
) -> None:
    monkeypatch.setattr(copies_module, "LOOK_PAUSE", 0.01)
    target = fleet.lay("ct200", "0.5.9")
    came = Copied("ct129", "/root/ml-env", "0.5.9", 1e9, "kim@laptop", 0, verified=verified)
    venv = Venv(target.venv, "config", "3.11.2", {}, Missing("not_found"))
    show(fleet, "ct200", msgspec.structs.replace(venv, copied=came))
    asked: list[tuple[str, str | None]] = []
    async with running(fleet) as (copies, verdicts):
        monkeypatch.setattr(verdicts, "ask", lambda host, venv: asked.append((host, venv)))
        if not verified:
            assert "never verified" in await until(copies.take_notice, WAIT, "it is said")
        await asyncio.sleep(10 * copies_module.LOOK_PAUSE)
    assert asked == ([] if verified else [("ct200", target.venv)])
    assert copies.take_notice() == ""


async def test_a_host_settles_one_at_a_time(fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies_module, "LOOK_PAUSE", 0.01)
    targets = [fleet.lay(f"ct200-{number}", "0.5.9", host="ct200") for number in range(3)]
    for target in targets:
        interrupt(target)
    show_interrupted(fleet, *targets)
    now = most = 0
    channel = fleet.channel

    @asynccontextmanager
    async def counted(name: str) -> AsyncIterator[object]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        async with channel(name) as given:
            yield given
        now -= 1

    monkeypatch.setattr(fleet, "channel", counted)
    async with running(fleet):
        await until(lambda: now == 0 and not any(map(left, targets)), WAIT, "all are settled")
    assert most == 1
