"""Rules that look at more than the snapshot: role, venv of the package, history, other hosts."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_console.findings import find
from dflash_console.model import gpu_key
from tests import pictures
from tests.findings.scenes import DENIED, NOT_FOUND, UP, codes, only, with_gpus, with_units, with_venvs
from tests.pictures import GIB, INFO, UTILS, WORKER

# ---- where a rule looks at more than the snapshot

PYPI = pictures.package(
    version="0.5.9", dist_version="0.5.9", modules={WORKER: None, INFO: None, UTILS: None}
)
HALF = pictures.package(modules={WORKER: None, INFO: "/x/dflash_info.py", UTILS: "/x/dflash_utils.py"})


@pytest.mark.parametrize(
    ("role", "package_venv", "is_told"),
    [
        ("observe", None, False),
        ("source", None, True),
        ("target", None, True),
        ("observe", "/root/venv_sglang", True),
        ("target", "/root/venv_sglang/", True),
        ("target", "~/venv_sglang", True),
        ("target", "/root/other", False),
    ],
)
def test_missing_modules_count_where_the_package_is_meant_to_be_whole(
    role: Any, package_venv: str | None, is_told: bool
) -> None:
    found = codes(
        with_venvs(pictures.venv("/root/venv_sglang", package=PYPI)), role=role, package_venv=package_venv
    )
    assert found == (["modules_missing"] if is_told else [])


def test_a_build_without_any_dflash_is_called_that() -> None:
    finding = only(with_venvs(pictures.venv(package=PYPI)), role="target")
    assert finding.text == "sglang 0.5.9 has no DFlash at all: a build as PyPI ships it"
    finding = only(with_venvs(pictures.venv(package=HALF)), role="target")
    assert finding.text == "sglang 0.5.11 lacks dflash_worker"


def test_a_package_venv_without_the_package_is_told() -> None:
    empty = with_venvs(pictures.venv("/root/venv_sglang", package=NOT_FOUND))
    finding = only(empty, role="target", package_venv="/root/venv_sglang")
    assert (finding.code, finding.subject) == ("package_missing", "/root/venv_sglang")


def test_a_target_whose_venvs_all_lack_the_package_is_told() -> None:
    bare = with_venvs(
        pictures.venv("/root/venv", package=NOT_FOUND), pictures.venv("/opt/x", package=NOT_FOUND)
    )
    assert codes(bare, role="target") == ["package_missing"]
    assert codes(bare, role="observe") == []
    assert codes(with_venvs(), role="target") == []


def test_a_copied_tree_on_a_target_is_a_warning_for_its_dependencies() -> None:
    copied = with_venvs(pictures.venv(package=pictures.package(dist_version="0.5.9")))
    finding = only(copied, role="target")
    assert (finding.level, finding.next_step) == ("warning", "see that torch and the kernels fit the tree")
    assert "0.5.11" in finding.text
    assert "0.5.9" in finding.text


def test_a_unit_that_starts_from_another_venv_is_told() -> None:
    snapshot = with_units(pictures.unit(venv="/root/venv"), pictures.unit("other.service", venv=None))
    finding = only(snapshot, package_venv="/root/ml-env")
    assert (finding.code, finding.subject) == ("unit_other_venv", "sglang-dflash.service")
    assert codes(snapshot) == []


@pytest.mark.parametrize(
    ("minute", "fields", "is_told"),
    [
        ((100,) * 60, {}, True),
        ((None,) * 30 + (97,) * 30, {}, True),
        ((None,) * 31 + (100,) * 29, {}, False),
        ((100,) * 59 + (0,), {}, False),
        ((100,) * 60, {"processes": [pictures.process()]}, False),
        ((100,) * 60, {"processes": DENIED}, False),
        ((100,) * 60, {"memory_used": 30 * GIB, "hidden_memory": 30 * GIB}, False),
        ((100,), {}, False),
        ((), {}, False),
    ],
)
def test_half_a_minute_of_load_by_nobody_is_a_stuck_counter(minute: Any, fields: Any, is_told: bool) -> None:
    gpu = pictures.gpu(utilization=100, **fields)
    found = codes(with_gpus(gpu), utilization={gpu_key(gpu): minute})
    assert ("gpu_stuck_utilization" in found) is is_told


def test_shared_cards_are_told_once_for_each_other_host() -> None:
    rows = [pictures.gpu(index) for index in range(8)]
    shared = {str(row.uuid): ("kpro6",) for row in rows}
    finding = only(with_gpus(*rows), shared=shared)
    assert (finding.subject, finding.text, finding.level) == ("gpu 0-7", "the same cards as on kpro6", "note")


def test_hidden_memory_names_where_the_processes_may_be() -> None:
    rows = [pictures.gpu(index, hidden_memory=2 * GIB) for index in (0, 1)]
    shared = {str(row.uuid): ("ct200",) for row in rows}
    found = find(with_gpus(*rows), UP, shared=shared)
    assert found[0].text == "4.0 GiB held by processes not visible here; see ct200"


def test_what_the_agent_could_not_read_and_a_reboot_are_told() -> None:
    found = find(pictures.snapshot(), UP, notes={"units": "systemctl hangs"}, rebooted_at=1_700_000_000.0)
    assert [(finding.code, finding.subject) for finding in found] == [
        ("section_unread", "units"),
        ("rebooted", "host"),
    ]
    assert "2023-11-14 22:13 UTC" in found[1].text


# ---- the next step


@pytest.mark.parametrize(
    ("wanted", "step"),
    [
        ("reset", "drain it, then nvidia-smi --gpu-reset -i 0000:01:00.0"),
        ("reboot", "drain the host and reboot it"),
        ("action 9", "the driver asks for: action 9"),
    ],
)
def test_the_drivers_own_action_is_the_next_step(wanted: str, step: str) -> None:
    asking = pictures.gpu(health="attention", recovery_action=wanted)
    assert only(with_gpus(asking)).next_step == step
    assert only(with_gpus(pictures.lost(recovery_action=wanted))).next_step == step


def test_a_value_in_a_command_is_quoted() -> None:
    odd = pictures.filesystem("/mnt/a b$(id)", used=99)
    assert "'/mnt/a b$(id)'" in only(pictures.snapshot(paths=[pictures.path(filesystem=odd)])).next_step
    unit = pictures.unit("user:a$(id).service", load="masked", active="inactive")
    assert only(with_units(unit)).next_step == "systemctl --user unmask 'a$(id).service'"
