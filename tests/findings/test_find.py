"""The findings of a host as a whole: the link, the order, and cells without a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dflash_console import findings
from dflash_console.config import HostConfig
from dflash_console.findings import FAULT, RULES, Picture, find, findings_of
from dflash_console.findings.picture import is_same_path, numbers
from dflash_console.fleet import HostView
from dflash_console.model import Finding, GpuReport, LinkStatus, Snapshot, gpu_key
from tests import pictures
from tests.findings.scenes import DENIED, NOT_FOUND, UP, codes, with_gpus

# ---- the link


@pytest.mark.parametrize(
    ("state", "level"),
    [
        ("stale", "warning"),
        ("unreachable", "critical"),
        ("refused", "critical"),
        ("host_key_unknown", "critical"),
        ("host_key_changed", "critical"),
        ("no_python", "critical"),
        ("agent_failed", "critical"),
    ],
)
def test_a_link_that_is_not_up_comes_first(state: Any, level: str) -> None:
    link = LinkStatus(state, "for\na reason")
    for snapshot in (None, with_gpus(pictures.lost())):
        first = find(snapshot, link)[0]
        assert (first.code, first.level, first.subject) == (state, level, "link")
        assert "for a reason" in first.text
        assert "\n" not in first.text


@pytest.mark.parametrize("state", ["up", "connecting"])
def test_a_link_that_is_up_or_being_made_is_no_finding(state: Any) -> None:
    assert find(None, LinkStatus(state)) == []


def test_the_command_to_try_is_that_of_the_config() -> None:
    down = LinkStatus("unreachable", "no route")
    view = HostView(config=HostConfig("ct200", address="10.1.2.200"), link=down)
    assert findings_of(view)[0].next_step == "try: ssh 10.1.2.200"
    exact = HostConfig("ct200", user="op", port=2222, jump="gate")
    view = HostView(config=exact, link=down, ssh_config="/etc/my ssh")
    assert findings_of(view)[0].next_step == "try: ssh -F '/etc/my ssh' -l op -p 2222 -J gate ct200"
    here = HostView(config=HostConfig("here", local=True), link=down, ssh_config="/etc/ssh")
    assert findings_of(here)[0].next_step == ""


# ---- the whole


def test_findings_stand_worst_first_in_a_stable_order() -> None:
    snapshot = pictures.snapshot(
        gpu=pictures.report(pictures.gpu(0, persistence=False, pcie_width=4), pictures.lost(1)),
        venvs=[
            pictures.venv(package=pictures.package(nested=True)),
            pictures.venv("/gone", python=NOT_FOUND, package=NOT_FOUND),
        ],
        units=[pictures.unit(active="failed"), pictures.unit("b.service", load="masked", active="inactive")],
    )
    expected = [
        "stale",
        "gpu_lost",
        "unit_failed",
        "nested_copy",
        "unit_masked",
        "venv_missing",
        "gpu_pcie_width",
        "gpu_persistence_off",
    ]
    for _ in range(2):
        assert codes(snapshot, link=LinkStatus("stale"), role="target") == expected


def test_a_view_gives_all_that_the_rules_look_at() -> None:
    view = HostView(
        config=HostConfig("ct200", role="target", package_venv="/root/other"),
        link=UP,
        snapshot=pictures.snapshot(),
        notes={"paths": "x"},
        rebooted_at=1.0,
        shared={str(pictures.gpu().uuid): ("kpro6",)},
        utilization={gpu_key(pictures.gpu()): (100,) * 60},
    )
    assert [finding.code for finding in findings_of(view)] == [
        "unit_other_venv",
        "gpu_stuck_utilization",
        "section_unread",
        "gpu_shared",
        "rebooted",
    ]


def test_a_fault_of_one_rule_is_a_finding_and_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def halfway(picture: Picture) -> Iterator[Finding]:
        yield Finding("first", "critical", "host", "found before")
        raise IndexError("list\nindex " + "x" * 10_000)

    monkeypatch.setattr(findings, "RULES", (halfway, *RULES))
    found = find(with_gpus(pictures.lost()), UP)
    assert [finding.code for finding in found] == ["first", "gpu_lost", FAULT]
    assert found[-1].level == "warning"
    assert "the rule halfway failed: IndexError: list index xxx" in found[-1].text
    assert "(test_find.py:" in found[-1].text
    assert len(found[-1].text) < 400


def test_no_rule_stumbles_over_cells_without_a_value() -> None:
    nothing: dict[str, Any] = dict.fromkeys(
        [
            "memory_used",
            "memory_total",
            "pcie_width",
            "pcie_width_max",
            "slowdowns",
            "processes",
            "recovery_action",
        ],
        DENIED,
    )
    snapshot = pictures.snapshot(
        host=pictures.host(root=DENIED, shm=DENIED),
        gpu=GpuReport([pictures.gpu(uuid=DENIED, bus=DENIED, **nothing)], "nvml", DENIED, library=DENIED),
        venvs=[
            pictures.venv(python=DENIED, package=DENIED),
            pictures.venv(
                package=pictures.package(origin=DENIED, version=DENIED, dist_version=DENIED, outside=True)
            ),
        ],
        units=[pictures.unit(load=DENIED, active=DENIED, result=DENIED, restarts=DENIED)],
        paths=[pictures.path(kind=DENIED, filesystem=DENIED)],
    )
    for rule in RULES:
        list(rule(_picture(snapshot)))


def _picture(snapshot: Snapshot) -> Picture:
    return Picture(snapshot=snapshot, link=UP, role="target", package_venv="/root/ml-env")


@pytest.mark.parametrize(
    ("indexes", "text"),
    [([0], "0"), ([0, 1], "0-1"), ([3, 1, 2, 7, 9, 8], "1-3, 7-9"), ([], ""), ([4, 4], "4")],
)
def test_indexes_are_written_as_people_write_them(indexes: list[int], text: str) -> None:
    assert numbers(indexes) == text


@pytest.mark.parametrize(
    ("configured", "path", "is_same"),
    [
        ("/a/b", "/a/b", True),
        ("/a/b/", "/a/b", True),
        ("/a//b/.", "/a/b", True),
        ("~/b", "/root/b", True),
        ("~/b/", "/root/b", True),
        ("~/b", "/root/xb", False),
        ("/a/b", "/a/bc", False),
        (None, "/a", False),
        ("/a", None, False),
    ],
)
def test_a_path_of_the_config_is_known_on_the_host(
    configured: str | None, path: str | None, is_same: bool
) -> None:
    assert is_same_path(configured, path) is is_same
    assert is_same_path(configured, path, "/root") is is_same


def test_a_path_from_home_is_no_other_that_ends_so() -> None:
    assert is_same_path("~/venv", "/opt/venv")
    assert not is_same_path("~/venv", "/opt/venv", "/root")
    assert is_same_path("~/venv", "/home/op/venv", "/home/op/")


def test_a_venv_of_another_place_is_not_the_package_venv_in_home() -> None:
    snapshot = pictures.snapshot(
        host=pictures.host(home="/root"),
        venvs=[pictures.venv("/root/venv"), pictures.venv("/opt/venv", package=NOT_FOUND)],
        units=[pictures.unit("a.service", venv="/root/venv"), pictures.unit("b.service", venv="/opt/venv")],
    )
    found = find(snapshot, UP, "target", package_venv="~/venv")
    assert [(finding.code, finding.subject) for finding in found] == [("unit_other_venv", "b.service")]
