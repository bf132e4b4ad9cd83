"""The RECORD of the host that a package was copied from, against the copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dflash_console.verdict import Check
from tests.agent.deep_part import answer
from tests.agent.environments import make_venv
from tests.wheels import lay, wheel

TREE = "0.5.13.post1"


@pytest.fixture
def source(tmp_path: Path) -> str:
    """What the console carries from the source host."""
    site = make_venv(tmp_path / "source")
    lay(TREE, site)
    lines = answer("metadata", tmp_path / "source").facts.metadata
    assert all(len(line) <= 4096 for line in lines)
    return "\n".join(lines)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The tree of one version over another's dist-info; its site-packages."""
    site = make_venv(tmp_path / "venv")
    lay(TREE, site)
    shutil.rmtree(site / f"sglang-{TREE}.dist-info")
    shutil.copytree(wheel("0.5.9") / "sglang-0.5.9.dist-info", site / "sglang-0.5.9.dist-info")
    return site


def checked(site: Path, text: str) -> Check | None:
    told = answer(
        "pins", site.parents[2], {}, source={"host": "ct129", "venv": "/root/env"}, source_metadata=text
    )
    return next((check for check in told.checks if check.name == "source"), None)


def test_a_copy_that_is_whole_is_as_the_sources_record_has_it(copied: Path, source: str) -> None:
    found = checked(copied, source)
    assert found is not None
    assert (found.state, found.detail) == ("pass", f"3,131 files as in the RECORD of {TREE} on ct129")


def test_what_a_copy_lacks_or_has_otherwise_is_named(copied: Path, source: str) -> None:
    (copied / "sglang/utils.py").unlink()
    (copied / "sglang/utils.py").write_text("x = 1\n")
    found = checked(copied, source)
    assert found is not None
    assert (found.state, found.evidence) == ("warn", ("changed: sglang/utils.py",))
    (copied / "sglang/utils.py").write_text("")
    (copied / "sglang/srt/server_args.py").unlink()
    found = checked(copied, source)
    assert found is not None
    assert found.state == "fail"
    assert found.detail.startswith(
        "cut short or damaged: 1 missing (sglang/srt/server_args.py), 1 emptied (sglang/utils.py), by the RECORD of "
    )


def test_a_tree_that_its_own_record_vouches_for_needs_none(tmp_path: Path, source: str) -> None:
    assert checked(Path(next(iter((tmp_path / "source/lib").glob("*/site-packages")))), source) is None


@pytest.mark.parametrize("text", ["", "Name: sglang\n", "X-Record: nonsense\n", "X-Record: eJwDAAAAAAE=\n"])
def test_a_source_without_a_record_says_nothing(copied: Path, text: str) -> None:
    assert checked(copied, text) is None
