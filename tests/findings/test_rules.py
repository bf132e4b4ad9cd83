"""Each rule by a table: what makes it speak, what keeps it silent, and that one cause speaks once."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_console.findings import find
from dflash_console.model import GpuReport, Missing, Snapshot
from tests import pictures
from tests.findings.scenes import DENIED, NOT_FOUND, UP, codes, only, with_gpus, with_units, with_venvs
from tests.pictures import GIB, INFO, WORKER, replace


@pytest.mark.parametrize("role", ["source", "target", "observe"])
def test_a_healthy_host_has_no_findings(role: Any) -> None:
    assert find(pictures.snapshot(), UP, role, package_venv="/root/ml-env") == []


def test_a_machine_without_gpus_has_no_findings() -> None:
    none = GpuReport([], "none", NOT_FOUND, kernel_count=0, trouble=Missing("not_found", "no driver"))
    assert codes(pictures.snapshot(gpu=none)) == []
    unknown = replace(none, kernel_count=NOT_FOUND)
    assert codes(pictures.snapshot(gpu=unknown)) == []
    hypervisor = replace(none, passed_through=8)
    assert codes(pictures.snapshot(gpu=hypervisor)) == []


def test_nothing_is_said_of_sections_that_were_never_read() -> None:
    unread = GpuReport([], "none", NOT_FOUND)
    snapshot = pictures.snapshot(gpu=unread, venvs=[], units=[], paths=[])
    assert codes(snapshot, role="target") == []


# ---- one rule at a time

FAULTS: list[tuple[str, str, Snapshot]] = [
    ("gpu_lost", "critical", with_gpus(pictures.lost())),
    ("gpu_reset_required", "critical", with_gpus(pictures.lost(health="reset_required"))),
    ("gpu_hung", "critical", with_gpus(pictures.lost(health="hung"))),
    ("gpu_unreadable", "critical", with_gpus(pictures.lost(health="unreadable"))),
    (
        "gpu_attention",
        "warning",
        with_gpus(pictures.gpu(health="attention", health_detail="row remap pending")),
    ),
    ("gpu_not_listed", "critical", with_gpus(pictures.gpu(), kernel_count=2)),
    ("driver_mismatch", "critical", with_gpus(library="570.124")),
    (
        "driver_mismatch",
        "critical",
        with_gpus(trouble=Missing("mismatch", "Driver/library version mismatch")),
    ),
    ("driver_hung", "critical", with_gpus(trouble=Missing("hung", "pid 12 in D state"), read_at=1.7e9)),
    ("driver_down", "critical", with_gpus(trouble=Missing("not_found", "driver not loaded"))),
    ("gpu_slowdown", "warning", with_gpus(pictures.gpu(slowdowns=["hw_thermal_slowdown"]))),
    ("gpu_slowdown", "warning", with_gpus(pictures.gpu(slowdowns=["hw_power_brake_slowdown"]))),
    ("gpu_pcie_width", "warning", with_gpus(pictures.gpu(pcie_width=8))),
    ("gpu_persistence_off", "note", with_gpus(pictures.gpu(persistence=False))),
    ("gpu_hidden_memory", "note", with_gpus(pictures.gpu(memory_used=9 * GIB, hidden_memory=9 * GIB))),
    ("nested_copy", "critical", with_venvs(pictures.venv(package=pictures.package(nested=True)))),
    (
        "namespace_remains",
        "critical",
        with_venvs(pictures.venv(package=pictures.package(kind="namespace", origin=NOT_FOUND))),
    ),
    (
        "module_broken",
        "critical",
        with_venvs(
            pictures.venv(
                package=pictures.package(modules={WORKER: Missing("error", "zero bytes"), INFO: "/x.py"})
            )
        ),
    ),
    ("version_differs", "note", with_venvs(pictures.venv(package=pictures.package(dist_version="0.5.9")))),
    (
        "package_editable",
        "note",
        with_venvs(pictures.venv(package=pictures.package(kind="editable", editable_from="/src/sglang"))),
    ),
    ("package_outside", "note", with_venvs(pictures.venv(package=pictures.package(outside=True)))),
    ("package_unreadable", "warning", with_venvs(pictures.venv(package=DENIED))),
    ("venv_missing", "warning", with_venvs(pictures.venv(python=NOT_FOUND, package=NOT_FOUND))),
    (
        "venv_missing",
        "warning",
        with_venvs(pictures.venv(source="unit", python=NOT_FOUND, package=NOT_FOUND)),
    ),
    ("venv_unreadable", "warning", with_venvs(pictures.venv(python=DENIED, package=DENIED))),
    ("unit_failed", "critical", with_units(pictures.unit(active="failed", sub="failed", result="exit-code"))),
    ("unit_crash_loop", "critical", with_units(pictures.unit(is_looping=True, restarts=7))),
    ("unit_crash_loop", "critical", with_units(pictures.unit(is_looping=True, active="failed"))),
    (
        "unit_not_installed",
        "warning",
        with_units(pictures.unit(load="not-found", active="inactive", sub="dead")),
    ),
    ("unit_file_deleted", "warning", with_units(pictures.unit(load="not-found"))),
    ("unit_masked", "warning", with_units(pictures.unit(load="masked", active="inactive"))),
    ("unit_bad_setting", "warning", with_units(pictures.unit(load="bad-setting", active="inactive"))),
    ("unit_needs_reload", "warning", with_units(pictures.unit(needs_reload=True))),
    ("units_unread", "warning", with_units(pictures.unit(load=Missing("error", "no bus")))),
    ("path_missing", "warning", pictures.snapshot(paths=[pictures.path(kind=NOT_FOUND, size=NOT_FOUND)])),
    ("path_unreadable", "warning", pictures.snapshot(paths=[pictures.path(kind=DENIED, size=DENIED)])),
    ("filesystem_full", "warning", pictures.snapshot(host=pictures.host(root=pictures.filesystem(used=91)))),
    (
        "filesystem_full",
        "critical",
        pictures.snapshot(host=pictures.host(shm=pictures.filesystem("/dev/shm", used=98))),
    ),
    (
        "filesystem_full",
        "warning",
        pictures.snapshot(paths=[pictures.path(filesystem=pictures.filesystem("/models", used=95))]),
    ),
]


@pytest.mark.parametrize(
    ("code", "level", "snapshot"), FAULTS, ids=[f"{code}-{level}" for code, level, _ in FAULTS]
)
def test_one_fault_gives_one_finding(code: str, level: str, snapshot: Snapshot) -> None:
    finding = only(snapshot)
    assert (finding.code, finding.level) == (code, level)
    assert finding.subject
    assert "\n" not in finding.text + finding.next_step
    assert len(finding.text) <= 120


SILENT: list[tuple[str, Snapshot]] = [
    (
        "a power cap is no fault",
        with_gpus(pictures.gpu(slowdowns=["sw_power_cap", "applications_clocks_setting"])),
    ),
    (
        "what the driver can't tell is no fault",
        with_gpus(pictures.gpu(slowdowns=NOT_FOUND, persistence=NOT_FOUND)),
    ),
    ("an unknown width is no fault", with_gpus(pictures.gpu(pcie_width=NOT_FOUND))),
    ("a stopped unit is no fault", with_units(pictures.unit(active="inactive", sub="dead", main_pid=None))),
    (
        "a venv without the package is no fault",
        with_venvs(pictures.venv(), pictures.venv("/root/venv", package=NOT_FOUND)),
    ),
    (
        "a missing dist-info is no fault",
        with_venvs(pictures.venv(package=pictures.package(dist_version=NOT_FOUND))),
    ),
    (
        "a disk of no size is no fault",
        pictures.snapshot(host=pictures.host(shm=pictures.filesystem(total=0, free=0))),
    ),
    (
        "a read-only image is full by nature",
        pictures.snapshot(
            paths=[pictures.path(filesystem=pictures.filesystem("/snap", used=100, kind="squashfs"))]
        ),
    ),
]


@pytest.mark.parametrize("snapshot", [case for _, case in SILENT], ids=[name for name, _ in SILENT])
def test_what_is_no_fault_is_not_told(snapshot: Snapshot) -> None:
    assert codes(snapshot) == []


# ---- one cause, one alarm


def test_nothing_else_is_said_of_a_lost_gpu() -> None:
    bad = pictures.lost(
        slowdowns=["hw_slowdown"], pcie_width=1, persistence=False, hidden_memory=GIB, ecc_uncorrected=4
    )
    assert codes(with_gpus(bad)) == ["gpu_lost"]


@pytest.mark.parametrize("reason", ["hung", "mismatch", "not_found"])
def test_a_driver_in_trouble_is_told_once_and_not_for_each_gpu(reason: Any) -> None:
    rows = [pictures.lost(index, health="unreadable") for index in range(8)]
    assert len(codes(with_gpus(*rows, trouble=Missing(reason, "x"), kernel_count=9))) == 1


def test_what_a_nested_copy_hides_is_not_also_missing() -> None:
    nested = pictures.package(nested=True, modules={WORKER: None, INFO: None}, dist_version="0.5.9")
    assert codes(with_venvs(pictures.venv(package=nested)), role="target") == ["nested_copy"]


def test_remains_of_a_package_lack_nothing_else() -> None:
    remains = pictures.package(kind="namespace", origin=NOT_FOUND, modules={WORKER: None}, version=NOT_FOUND)
    assert codes(with_venvs(pictures.venv(package=remains)), role="target") == ["namespace_remains"]


def test_the_same_fault_on_several_gpus_is_one_finding() -> None:
    rows = [pictures.gpu(index, persistence=False, pcie_width=8) for index in (0, 1, 2, 5)]
    found = find(with_gpus(*rows), UP)
    assert [(finding.code, finding.subject) for finding in found] == [
        ("gpu_pcie_width", "gpu 0-2, 5"),
        ("gpu_persistence_off", "gpu 0-2, 5"),
    ]


def test_a_filesystem_that_several_paths_share_is_told_once() -> None:
    full = pictures.filesystem("/", used=95)
    paths = [pictures.path(name, filesystem=full) for name in ("/a", "/b")]
    snapshot = pictures.snapshot(host=pictures.host(root=full), paths=paths)
    assert codes(snapshot) == ["filesystem_full"]


def test_a_silent_systemd_is_told_once_for_all_units() -> None:
    silent = [
        pictures.unit(f"u{n}.service", load=Missing("error", "no bus"), active=DENIED) for n in range(3)
    ]
    assert only(with_units(*silent)).subject == "3 units"


def test_one_daemon_reload_mends_all_units_of_a_manager() -> None:
    edited = [pictures.unit(name, needs_reload=True) for name in ("a.service", "b.service", "user:c.service")]
    found = find(with_units(*edited), UP)
    assert [(finding.subject, finding.next_step) for finding in found] == [
        ("a.service, b.service", "systemctl daemon-reload"),
        ("user:c.service", "systemctl --user daemon-reload"),
    ]
