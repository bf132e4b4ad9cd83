"""A stage that is gone, or a live tree that changed, between the claim and the swap: nothing is copied over."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_console.agent.copy import backups, place
from dflash_console.agent.copy.place import Fault
from dflash_console.agent.copy.target import Target
from tests.agent.copy.flow import BY, ORIGIN, copy, entries_of, filled, lay_small, state_of, whole


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """What is copied."""
    return lay_small(tmp_path / "new", "0.5.23")


class Gone(Exception):
    """As the pipe's."""


def rolled_back(venv: Path) -> None:
    """A whole rollback."""
    target = Target(str(venv), "sglang")
    target.claim(BY, "rollback", ORIGIN, "", "", dict)
    assert not target.restore("").get("is_undone")
    target.settle(True, "")
    target.release()


@pytest.mark.parametrize("gone", ["", "sglang", "sglang-0.5.23.dist-info"])
def test_a_stage_that_was_taken_away_is_not_swapped_in(venv: Path, site: Path, new: Path, gone: str) -> None:
    lay_small(site, "0.5.9")
    before = state_of(site)
    target, _ = copy(venv, new, until="check")
    (stage,) = (venv / place.FOLDER).glob("stage-*")
    shutil.rmtree(stage / gone)
    with pytest.raises(Fault, match="nothing was changed"):
        target.swap()
    with pytest.raises(Fault, match="not checked"):
        target.swap()
    target.release()
    whole(venv, site, before)
    assert backups.listing(str(venv)) == []


def test_after_an_undone_swap_nothing_is_swapped_without_another_check(
    venv: Path, site: Path, new: Path
) -> None:
    lay_small(site, "0.5.9")
    before = state_of(site)
    target, _ = copy(venv, new, until="check")

    def fail(step: str) -> None:
        if step == "exchange sglang":
            raise OSError(5, os.strerror(5))

    place.watchers[:] = [fail]
    try:
        assert target.swap()["is_undone"]
    finally:
        place.watchers[:] = []
    with pytest.raises(Fault, match="not checked"):
        target.swap()
    target.release()
    whole(venv, site, before)


def installed(site: Path) -> None:
    """As pip does: all anew."""
    shutil.rmtree(site / "sglang", ignore_errors=True)
    shutil.rmtree(site / "sglang-0.5.9.dist-info", ignore_errors=True)
    lay_small(site, "0.6.0")


def edited(site: Path) -> None:
    (site / "sglang/same.py").write_text("SAME = 2\n" * 50)


def noted(site: Path) -> None:
    lay_small(site, "0.5.8", only="sglang-0.5.8.dist-info")


@pytest.mark.parametrize(
    ("was", "change"),
    [("0.5.9", installed), ("0.5.9", edited), ("0.5.9", noted), ("", installed), ("", noted)],
)
@pytest.mark.parametrize("when", ["check", "swap"])
def test_what_was_changed_since_the_claim_is_not_copied_over(
    venv: Path, site: Path, new: Path, was: str, change: Callable[[Path], None], when: str
) -> None:
    if was:
        lay_small(site, was)
    target, _ = copy(venv, new, until="fill")
    if when == "check":
        change(site)
        with pytest.raises(Fault, match="changed while it was copied: plan again"):
            target.check([], 60.0)
        with pytest.raises(Fault, match="not checked"):
            target.swap()
    else:
        target.check([], 60.0)
        change(site)
        answer = target.swap()
        assert (answer["swap"], answer["is_undone"]) == ("", True)
        assert "changed while it was copied: plan again" in answer["detail"]
    changed = state_of(site)
    target.release()
    whole(venv, site, changed)
    assert backups.listing(str(venv)) == []


def test_another_link_to_a_live_file_is_no_change(venv: Path, site: Path, new: Path, tmp_path: Path) -> None:
    lay_small(site, "0.5.9")
    target, _ = copy(venv, new, until="check")
    os.link(site / "sglang/same.py", tmp_path / "cache.py")
    assert not target.swap().get("is_undone")
    target.release()


def test_a_rollback_over_what_changed_since_the_claim_changes_nothing(
    venv: Path, site: Path, new: Path
) -> None:
    lay_small(site, "0.5.9")
    copy(venv, new)
    target = Target(str(venv), "sglang")
    target.claim(BY, "rollback", ORIGIN, "", "", dict)
    edited(site)
    now = state_of(site)
    with pytest.raises(Fault, match="changed while it was copied"):
        target.restore("")
    target.release()
    whole(venv, site, now)


def test_a_backup_of_what_pip_laid_over_a_copy_has_no_origin(
    venv: Path, site: Path, new: Path, tmp_path: Path
) -> None:
    lay_small(site, "0.5.9")
    copy(venv, new)
    shutil.rmtree(site / "sglang-0.5.23.dist-info")
    installed(site)
    copy(venv, lay_small(tmp_path / "newer", "0.7.0"))
    newest, _ = backups.listing(str(venv))
    assert newest["provenance"] is None
    rolled_back(venv)
    assert place.read_provenance(str(venv)) is None


@pytest.mark.parametrize("what", ["copy", "rollback"])
def test_an_import_check_is_not_waited_for_when_the_console_is_gone(
    venv: Path, site: Path, tmp_path: Path, what: str
) -> None:
    endless = {
        "sglang/__init__.py": f"import time; open({str(tmp_path / 'begun')!r}, 'w'); time.sleep(1000)\n"
    }
    lay_small(site if what == "rollback" else tmp_path / "new", "0.5.9", extra=endless)
    lay_small(tmp_path / "new" if what == "rollback" else site, "0.5.23")

    def mind() -> None:
        if (tmp_path / "begun").exists():
            raise Gone

    if what == "rollback":
        copy(venv, tmp_path / "new")
        before = state_of(site)
        target = Target(str(venv), "sglang", mind)
        target.claim(BY, what, ORIGIN, "", "", dict)
        with pytest.raises(Gone):
            target.restore("", None, 1000.0)
    else:
        before = state_of(site)
        target = Target(str(venv), "sglang", mind)
        target.claim(BY, what, ORIGIN, "", "", dict)
        entries = entries_of(tmp_path / "new")
        target.expect(entries)
        filled(target, tmp_path / "new", entries, target.want()["wanted"])
        with pytest.raises(Gone):
            target.check([], 1000.0)
    target.close()
    whole(venv, site, before)
