"""Scenes: what a tick takes, and which hosts a filter lets through."""

from __future__ import annotations

import msgspec
import pytest

from dflash_console.config import HostConfig
from dflash_console.ui.scene import SceneMaker, matching, next_trouble
from tests.ui import builders


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("", ["ct129", "ct200", "kpro6", "ct202", "newbox", "ct201", "oldbox"]),
        ("ct2", ["ct200", "ct202", "ct201"]),
        ("LLM-two", ["ct129"]),
        ("target", ["ct200", "ct202", "ct201"]),
        ("production", ["ct200"]),
        ("stale", ["kpro6"]),
        ("host key unknown", ["newbox"]),
        ("no python", ["oldbox"]),
        ("connecting", ["ct201"]),
        ("restarting", ["ct202"]),
        ("lost", ["ct129"]),
        ("shared", ["ct200", "kpro6"]),
        ("target stopped", ["ct200"]),
        ("nobody", []),
        ("[bold]", []),
    ],
)
def test_a_filter_looks_at_name_hostname_role_and_words_of_state(words: str, names: list[str]) -> None:
    scene = SceneMaker().take(builders.every_kind(), builders.MOMENT)
    assert [host.name for host in matching(scene.hosts, words)] == names


def test_findings_are_found_anew_only_for_a_host_that_changed() -> None:
    maker = SceneMaker()
    first, second, third = builders.story()
    before = maker.take([first, second, third], builders.MOMENT)
    changed = msgspec.structs.replace(second, revision=2)
    after = maker.take([first, changed, third], builders.MOMENT)
    assert after.hosts[0] is before.hosts[0]
    assert after.hosts[1] is not before.hosts[1]
    assert after.hosts[2] is before.hosts[2]


def test_a_host_stands_as_its_link_or_its_worst_finding_says() -> None:
    scene = SceneMaker().take((*builders.every_kind(), builders.many(1)[0]), builders.MOMENT)
    standing = {host.name: host.standing for host in scene.hosts}
    assert standing == {
        "ct129": "critical",
        "ct200": "critical",
        "kpro6": "stale",
        "ct202": "critical",
        "newbox": "down",
        "ct201": "waiting",
        "oldbox": "down",
        "gpu000": "ok",
    }


def trouble_after(name: str, step: int = 1) -> str | None:
    """Where `n` (or `N`) goes from a host."""
    scene = SceneMaker().take((builders.many(1)[0], *builders.every_kind()), builders.MOMENT)
    return next_trouble(scene.hosts, name, step)


def test_the_next_host_with_trouble_goes_round_worst_first() -> None:
    seen = [name := "gpu000"]
    while (name := trouble_after(name) or "") not in seen:
        seen.append(name)
    assert seen == ["gpu000", "ct129", "ct200", "kpro6", "ct202", "newbox", "oldbox"]
    assert name == "ct129"


def test_the_host_with_trouble_before_is_the_way_back() -> None:
    assert trouble_after("ct200", -1) == "ct129"
    assert trouble_after("ct129", -1) == "oldbox"
    assert trouble_after("ct201", -1) == "newbox"


def test_warnings_come_after_all_that_is_worse() -> None:
    warned = msgspec.structs.replace(builders.ct200(), config=HostConfig("warned", role="target"))
    assert warned.snapshot is not None
    snapshot = msgspec.structs.replace(warned.snapshot, venvs=[builders.venv("/x", is_there=False)])
    warned = msgspec.structs.replace(warned, snapshot=snapshot)
    scene = SceneMaker().take((warned, builders.many(1)[0], builders.ct129()), builders.MOMENT)
    assert scene.hosts[0].level == "warning"
    assert next_trouble(scene.hosts, "gpu000", 1) == "ct129"
    assert next_trouble(scene.hosts, "ct129", 1) == "warned"
    assert next_trouble(scene.hosts, "warned", 1) == "ct129"


def test_without_trouble_there_is_no_next_one() -> None:
    scene = SceneMaker().take((builders.many(1)[0], builders.connecting()), builders.MOMENT)
    assert next_trouble(scene.hosts, "gpu000", 1) is None
