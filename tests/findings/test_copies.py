"""A copy that is not settled: how bad that is depends on what lies there, and it is told once."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_console.model import Missing
from tests import pictures
from tests.findings.scenes import NOT_FOUND, codes, only, with_venvs

BEGUN = "copy from ct129 by kim@laptop since 2026-11-30 02:58:11, swapping"
WORKER = pictures.WORKER


@pytest.mark.parametrize(
    ("fields", "level", "words"),
    [
        ({}, "warning", "not settled: copy from ct129"),
        ({"package": NOT_FOUND}, "critical", "not settled, and the package is not there: "),
        ({"package": Missing("error", "x")}, "critical", ", and the package can't be read: "),
        ({"package": pictures.package(kind="namespace")}, "critical", ", and the package is not whole: "),
        (
            {"package": pictures.package(modules={WORKER: None})},
            "critical",
            ", and the package lacks dflash_worker: ",
        ),
        (
            {"package": pictures.package(modules={WORKER: Missing("error", "zero bytes")})},
            "critical",
            ", and the package lacks dflash_worker: ",
        ),
    ],
)
def test_a_copy_that_is_not_settled_is_told_with_what_it_left(
    fields: dict[str, Any], level: str, words: str
) -> None:
    venv = pictures.venv(interrupted=BEGUN, **fields)
    for role in ("source", "target", "observe"):
        finding = only(with_venvs(venv), role=role, package_venv=venv.path)
        assert (finding.code, finding.level, finding.subject) == ("copy_interrupted", level, venv.path)
        assert words in finding.text
        assert finding.text.endswith(BEGUN)
        assert finding.next_step == "c or b finishes or undoes it"


def test_a_nested_copy_is_no_work_of_ours_and_told_too() -> None:
    nested = pictures.venv(interrupted=BEGUN, package=pictures.package(nested=True))
    assert codes(with_venvs(nested)) == ["copy_interrupted", "nested_copy"]
