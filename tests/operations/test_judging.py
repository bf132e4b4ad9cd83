"""What is said of a package by itself."""

from __future__ import annotations

import msgspec
import pytest

from dflash_console.copies import Difference, Entry, Look, Side, TargetPlan
from dflash_console.operations.judging import importable, is_there_already, of_package
from dflash_console.verdict import NEEDED, Check, Verdict

INFO = "sglang-0.5.9.dist-info"
LOOK = Look("/venv", "/venv/site", "whole", dist_infos=(INFO,))
SAME = Difference(0, 0, 0, 12)
ENTRIES = [
    Entry(path, "file", 1, 0o644, "0" * 64)
    for path in (
        "sglang/__init__.py",
        "sglang/srt/__init__.py",
        "sglang/srt/worker.py",
        "sglang/srt/fast.cpython-311-x86_64-linux-gnu.so",
        "sglang/data/only.json",
        f"{INFO}/entry_points.py",
    )
]


def target(look: Look | None = LOOK, difference: Difference | None = SAME) -> TargetPlan:
    return TargetPlan(Side("ct200", "/venv"), look=look, difference=difference)


def verdict(**states: str) -> Verdict:
    every = {**dict.fromkeys(NEEDED, "pass"), **states}
    return msgspec.convert(
        {
            "host": "ct129",
            "venv": "/venv",
            "checks": [{"name": name, "state": state} for name, state in every.items()],
        },
        Verdict,
    )


def test_what_a_service_does_is_no_matter_of_the_package() -> None:
    failing = Check("service sglang.service", "fail", "starts another environment")
    found = msgspec.structs.replace(verdict(), checks=(*verdict().checks, failing))
    assert not found.is_ready
    assert of_package(found) == verdict()
    assert of_package(found).is_ready
    assert not of_package(verdict(origin="fail")).is_ready


def test_the_same_files_with_the_same_dist_info_are_there_already() -> None:
    assert is_there_already(LOOK, target())


@pytest.mark.parametrize(
    "other",
    [
        target(difference=None),
        target(difference=Difference(1, 0, 0, 11)),
        target(difference=Difference(0, 1, 0, 11)),
        target(difference=Difference(0, 0, 1, 12)),
        target(msgspec.structs.replace(LOOK, dist_infos=(INFO, "sglang-0.5.8.dist-info"))),
        target(msgspec.structs.replace(LOOK, dist_infos=())),
        target(msgspec.structs.replace(LOOK, strange=("sglang/pipe: a pipe, no file",))),
        target(msgspec.structs.replace(LOOK, state="namespace")),
        target(None),
    ],
)
def test_whatever_a_copy_would_change_is_a_difference(other: TargetPlan) -> None:
    assert not is_there_already(LOOK, other)


def test_only_modules_that_the_source_has_are_looked_for() -> None:
    groups = [
        ["sglang.srt.worker"],
        ["sglang.srt.gone"],
        ["sglang.srt.old", "sglang.srt.fast"],
        ["sglang.srt"],
        ["sglang.data"],
        ["sglang.none", "sglang.other"],
    ]
    found, words = importable(groups, ENTRIES, verdict(find_spec="fail"))
    assert found == [["sglang.srt.worker"], ["sglang.srt.old", "sglang.srt.fast"], ["sglang.srt"]]
    assert "without sglang.srt.gone, sglang.data, sglang.none or sglang.other:" in words


@pytest.mark.parametrize("source", [None, verdict(), verdict(record="fail")])
def test_a_source_that_has_all_modules_is_tried_with_all(source: Verdict | None) -> None:
    assert importable([["sglang.srt.worker"]], ENTRIES, source) == ([["sglang.srt.worker"]], "")
    assert importable([], ENTRIES, verdict(find_spec="fail")) == ([], "")


def test_modules_that_are_not_found_at_the_source_either_are_not_asked_of_the_target() -> None:
    found, words = importable([["sglang.srt.worker"]], ENTRIES, verdict(find_spec="fail"))
    assert found == []
    assert "the package alone" in words
