"""Which environment is meant, what a plan asks, and what it takes for granted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dflash_console.config import Config, ConsoleConfig, HostConfig, PackageConfig
from dflash_console.copies import Look, Side
from dflash_console.errors import AgentFailed, Unreachable
from dflash_console.fleet import HostView
from dflash_console.model import LinkStatus, Missing, Package, Venv
from dflash_console.operations.planning import compare, make_plan, plan_roll_back
from dflash_console.operations.reaching import MOST_ON_A_HOST
from dflash_console.operations.sides import side_of, units_of
from dflash_console.verdict import Verdict
from tests import pictures
from tests.operations.copies import ready
from tests.operations.fleet import answer
from tests.operations.local import LocalFleet, site_of

CONFIG = Config(ConsoleConfig(), PackageConfig(), {})
PACKAGE = Package("sglang", "/o/__init__.py", "regular", "0.5.9", "0.5.9", False, {})


def venv(path: str, *, holds: bool = False) -> Venv:
    return Venv(path, "found", "3.11.2", {}, PACKAGE if holds else Missing("not_found"))


def view(*found: Venv, **fields: Any) -> HostView:
    snapshot = msgspec.structs.replace(pictures.snapshot(), venvs=list(found))
    return HostView(HostConfig("ct200", **fields), LinkStatus("up"), snapshot, unread=frozenset())


# ---- side_of


@pytest.mark.parametrize(
    ("seen", "named", "expected"),
    [
        (view(), "/root/x", "/root/x"),
        (view(package_venv="/root/p", venvs=["/root/a", "/root/b"]), None, "/root/p"),
        (view(venvs=["/root/a"]), None, "/root/a"),
        (view(venv("/root/a"), venv("/root/b", holds=True)), None, "/root/b"),
        (
            view(venv("/root/a"), venv("/root/b", holds=True), venvs=["/root/a", "/root/b"]),
            None,
            "/root/b",
        ),
        (view(venv("/root/a")), None, "/root/a"),
    ],
)
def test_the_environment_is_the_named_one_or_the_only_one_that_fits(
    seen: HostView, named: str | None, expected: str
) -> None:
    assert side_of(seen, CONFIG, named) == Side("ct200", expected)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (
            view(venv("/root/a", holds=True), venv("/root/b", holds=True)),
            "several environments (/root/a, /root/b)",
        ),
        (view(venv("/root/a"), venv("/root/b")), "several environments"),
        (view(venvs=["/root/a", "/root/b"]), "several environments"),
        (view(), "no environment was found"),
        (HostView(HostConfig("ct200"), LinkStatus("unreachable", "no route")), "not connected: no route"),
    ],
)
def test_what_can_not_be_told_is_said_with_what_to_do(seen: HostView, words: str) -> None:
    told = side_of(seen, CONFIG, None)
    assert isinstance(told, str)
    assert words in told


def test_the_login_users_home_is_meant_by_a_tilde() -> None:
    seen = view()
    assert seen.snapshot is not None
    host = msgspec.structs.replace(seen.snapshot.host, home="/home/kim")
    seen = msgspec.structs.replace(seen, snapshot=msgspec.structs.replace(seen.snapshot, host=host))
    assert side_of(seen, CONFIG, "~/v") == Side("ct200", "/home/kim/v")


def test_only_active_units_of_the_environment_count() -> None:
    units = [
        msgspec.structs.replace(pictures.snapshot().units[0], name=name, active=active, venv=path)
        for name, active, path in (
            ("a.service", "active", "/root/a"),
            ("b.service", "inactive", "/root/a"),
            ("c.service", "activating", "/root/a"),
            ("d.service", "active", "/root/b"),
            ("e.service", "active", None),
        )
    ]
    seen = view()
    assert seen.snapshot is not None
    seen = msgspec.structs.replace(seen, snapshot=msgspec.structs.replace(seen.snapshot, units=units))
    assert units_of(seen, "/root/a") == ("a.service", "c.service")
    assert units_of(None, "/root/a") == ()


@pytest.mark.parametrize("named", ["/root/a", "/srv/link"])
def test_a_unit_of_the_environment_counts_by_whatever_path_it_is_written(named: str) -> None:
    seen = view()
    assert seen.snapshot is not None
    units = [
        msgspec.structs.replace(seen.snapshot.units[0], name=name, active="active", venv=path, real_venv=real)
        for name, path, real in (
            ("straight.service", "/root/a", "/root/a"),
            ("linked.service", "/opt/a", "/root/a"),
            ("other.service", "/opt/b", "/root/b"),
            ("untold.service", "/opt/c", ""),
        )
    ]
    seen = msgspec.structs.replace(seen, snapshot=msgspec.structs.replace(seen.snapshot, units=units))
    look = Look(named, f"{named}/lib", "whole", real="/root/a")
    assert units_of(seen, named, look) == ("straight.service", "linked.service")


# ---- what a plan asks


@pytest.fixture
def fleet(tmp_path: Path) -> LocalFleet:
    return LocalFleet(tmp_path, "ct129", "ct200")


async def plan_pins(fleet: LocalFleet) -> tuple[str, str, tuple[str, ...]]:
    source, target = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")
    plan = await fleet.plan(source, target)
    (pins,) = [check for check in plan.targets[0].checks if check.name == "pins"]
    return pins.state, pins.detail, pins.evidence


async def test_the_target_is_asked_for_the_requirements_of_the_source(fleet: LocalFleet) -> None:
    where = f"ct129:{fleet.folder / 'ct129'}"
    fleet.answers["metadata"] = (
        b'{"checks":[],"facts":{"metadata":["Name: sglang","Requires-Dist: torch==2.9.1"]}}'
    )
    fleet.answers["pins"] = msgspec.json.encode(
        {
            "checks": [
                {
                    "name": "requires",
                    "state": "fail",
                    "detail": "1 of 1 requirement not met: needs torch==2.9.1, has 2.11.0",
                    "evidence": [
                        "needs torch==2.9.1, has 2.11.0",
                        f"read from the dist-info on {where}, 0.5.23",
                    ],
                }
            ]
        }
    )
    state, detail, evidence = await plan_pins(fleet)
    assert (state, len(evidence)) == ("warn", 2)
    assert "needs torch==2.9.1" in detail
    (fields,) = [fields for host, part, fields in fleet.asked if part == "pins"]
    assert fields["source_metadata"] == "Name: sglang\nRequires-Dist: torch==2.9.1"
    assert fields["is_planned"] is True


async def test_requirements_of_the_package_that_goes_away_are_not_taken_for_the_new_ones(
    fleet: LocalFleet,
) -> None:
    fleet.answers["metadata"] = b'{"checks":[],"facts":{"metadata":["Name: sglang"]}}'
    fleet.answers["pins"] = (
        b'{"checks":[{"name":"requires","state":"pass","detail":"9 met","evidence":["the dist-info here"]}]}'
    )
    state, detail, _ = await plan_pins(fleet)
    assert (state, "not of the source's" in detail) == ("warn", True)


@pytest.mark.parametrize("part", ["metadata", "ship", "pins"])
@pytest.mark.parametrize("given", [Unreachable("no answer"), AgentFailed("refused"), b'{"checks": 5}'])
async def test_pins_that_can_not_be_told_are_a_warning_with_the_reason(
    fleet: LocalFleet, part: str, given: Any
) -> None:
    fleet.answers["metadata"] = b'{"checks":[],"facts":{"metadata":["Name: sglang"]}}'
    fleet.answers["pins"] = b'{"checks":[]}'
    if not (part == "ship" and isinstance(given, bytes)):
        fleet.answers[part] = given
    state, detail, _ = await plan_pins(fleet)
    assert state == "warn"
    assert detail


# ---- a verdict that is known already


@pytest.mark.parametrize(
    ("verdict", "is_asked_again"),
    [
        (msgspec.structs.replace(ready(), fingerprint="one"), False),
        (msgspec.structs.replace(ready(), fingerprint="another"), True),
        (msgspec.structs.replace(ready(), fingerprint="one", stale="a unit changed"), True),
        (ready(), True),
        (None, True),
    ],
)
async def test_a_source_that_was_proved_is_proved_again_only_when_its_files_have_changed(
    fleet: LocalFleet, verdict: Verdict | None, is_asked_again: bool
) -> None:
    source, target = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")
    known = None if verdict is None else msgspec.structs.replace(verdict, host="ct129", venv=source.venv)
    plan = await make_plan(fleet, fleet.config, source, [target], known=lambda side: known)
    assert plan.verdict is not None
    assert plan.verdict.is_ready
    assert ("find_spec" in [part for _, part, _ in fleet.asked]) == is_asked_again


# ---- problems


async def test_each_target_that_can_not_be_looked_at_has_its_own_problem(fleet: LocalFleet) -> None:
    source, target = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")
    nowhere = Side("ct999", "/x")
    plan = await fleet.plan(source, target, source, nowhere)
    assert [bool(one.problem) for one in plan.targets] == [False, True, True]
    assert plan.targets[1].problem == f"{source} is the source itself"
    assert plan.targets[2].problem == "ct999 is not a host of the config"


async def test_a_source_without_a_package_is_the_problem_of_the_plan(fleet: LocalFleet) -> None:
    source, target = fleet.lay("ct129"), fleet.lay("ct200", "0.5.9")
    plan = await fleet.plan(source, target)
    assert plan.problem == f"{source} has no package to copy"
    (run,) = await fleet.copy(plan)
    assert (run.state, run.detail) == ("refused", plan.problem)


async def test_a_source_that_is_not_ready_is_a_need_and_not_a_refusal(fleet: LocalFleet) -> None:
    source, target = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")
    fleet.answers["files"] = answer("files", "fail")
    plan = await fleet.plan(source, target)
    assert [need.code for need in plan.targets[0].needs] == ["unverified"]
    assert plan.targets[0].failed == ()


async def test_a_rollback_is_planned_without_listing_the_package(fleet: LocalFleet) -> None:
    target = fleet.lay("ct200", "0.5.9")
    plan = await plan_roll_back(fleet, fleet.config, target)
    assert plan.look is not None
    assert [check.name for check in plan.failed] == ["backup"]
    plan = await plan_roll_back(fleet, fleet.config, Side("ct999", "/x"))
    assert plan.problem


# ---- listings


async def test_targets_on_the_sources_own_host_take_turns_with_it(fleet: LocalFleet) -> None:
    """More of them than a host may have copy processes at a time, all held up until the source is listed."""
    source = fleet.lay("ct129", "0.5.23")
    targets = [fleet.lay(f"venv{number}", "0.5.9", host="ct129") for number in range(MOST_ON_A_HOST + 1)]
    plan = await fleet.plan(source, *targets)
    assert not plan.problem
    assert [one.difference and one.difference.changed for one in plan.targets] == [43] * len(targets)


async def test_a_target_is_told_of_though_the_source_is_not_there(fleet: LocalFleet) -> None:
    fleet.refusals["ct129"] = Unreachable("ct129 is gone")
    plan = await fleet.plan(fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9"))
    assert (plan.problem, plan.is_unreachable) == ("ct129 is gone", True)
    (target,) = plan.targets
    assert target.look is not None
    assert target.difference is None


@pytest.mark.parametrize("side", [0, 1])
async def test_packages_that_hold_what_is_not_listed_are_not_told_to_be_the_same(
    fleet: LocalFleet, side: int
) -> None:
    both = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.23")
    os.mkfifo(site_of(both[side]) / "sglang/pipe")
    _, _, found, problem = await compare(fleet, fleet.config, *both)
    assert found is not None
    assert (found.added, found.changed, found.removed) == ((), (), ())
    assert problem == f"{both[side]} holds what can't be compared: sglang/pipe: a pipe, no file"


async def test_a_comparison_has_what_is_only_on_either_side(fleet: LocalFleet) -> None:
    left, right = fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", "0.5.9")
    _, _, found, problem = await compare(fleet, fleet.config, left, right)
    assert not problem
    assert found is not None
    assert "sglang/only_in_0_5_23.py" in [entry.path for entry in found.added]
    assert "sglang/only_in_0_5_9.py" in [entry.path for entry in found.removed]
    assert (found.same, len(found.changed)) == (3, 43)
