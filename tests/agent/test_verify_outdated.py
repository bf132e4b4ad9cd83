"""Whether a running unit runs what lies there now: every way of putting another tree there counts, and nothing that
leaves the code as it was."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_console.agent.verify import outdated
from tests.agent.driver import PATIENCE
from tests.agent.test_verify_service import Units, told, units, venv
from tests.waiting import until_sync

__all__ = ["units", "venv"]


def enter(site: Path) -> None:
    """An installer's RECORD of what lies there."""
    info = site / "sglang-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: sglang\nVersion: 1.0\n")
    rows = []
    for path in sorted(site.glob("sglang/**/*.py")):
        data = path.read_bytes()
        hashed = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path.relative_to(site)},sha256={hashed},{len(data)}\n")
    (info / "RECORD").write_text("".join(rows))


def start(units: Units, venv: Path, site: Path) -> None:
    """Starts the unit later than all that was laid."""
    laid = time.time()
    for path in site.rglob("*"):
        laid = max(laid, path.lstat().st_ctime)
    until_sync(lambda: time.time() > laid + 0.1, PATIENCE, "a start is later than the laying")
    units.start(str(venv / "bin/python"), "-m", "sglang.serve", cwd="/")
    now = time.time()
    until_sync(lambda: time.time() > now + 0.1, PATIENCE, "a change is later than the start")


@pytest.fixture(autouse=True)
def margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outdated, "MARGIN", 0.05)


def add_data(tree: Path) -> None:
    """Folders without code, as sglang has many."""
    for name in ("configs", "configs/a", "configs/b", "configs/c"):
        (tree / name).mkdir()
        (tree / name / "x.json").write_text("{}")


def swap(site: Path) -> None:
    (site / "sglang").rename(site / "sglang.old")
    (site / "sglang.new").rename(site / "sglang")


def link_anew(site: Path) -> None:
    (site / "link").symlink_to(site / "sglang.new")
    (site / "link").rename(site / "sglang")


def by_hard_links(site: Path) -> None:
    (site / "sglang").rename(site / "sglang.old")
    subprocess.run(["cp", "-al", site / "sglang.new", site / "sglang"], check=True)


@pytest.mark.parametrize("way", [swap, by_hard_links])
def test_another_tree_in_its_place_is_newer_than_what_runs(
    units: Units, venv: Path, site: Path, way: Callable[[Path], None]
) -> None:
    add_data(site / "sglang")
    shutil.copytree(site / "sglang", site / "sglang.new")
    start(units, venv, site)
    assert told(venv).state == "pass"
    way(site)
    check = told(venv)
    assert check.state == "fail"
    assert check.detail.startswith("running the old package, restart needed: started ")
    assert f"{site}/sglang" in check.detail


def test_a_link_that_leads_elsewhere_now_is_newer_than_what_runs(
    units: Units, venv: Path, site: Path
) -> None:
    shutil.copytree(site / "sglang", site / "sglang.new")
    (site / "sglang").rename(site / "sglang.one")
    (site / "sglang").symlink_to(site / "sglang.one")
    start(units, venv, site)
    assert told(venv).state in ("pass", "warn")
    link_anew(site)
    check = told(venv)
    assert (check.state, f"the link {site}/sglang" in check.detail) == ("fail", True)


def test_an_environment_that_was_moved_into_the_place_of_another_is_newer_than_what_runs(
    units: Units, venv: Path, site: Path
) -> None:
    shutil.copytree(venv, venv.with_name("other"), symlinks=True)
    start(units, venv, site)
    venv.rename(venv.with_name("gone"))
    venv.with_name("other").rename(venv)
    check = told(venv)
    assert (check.state, f"the folder {venv} came here" in check.detail) == ("fail", True)


def test_a_link_to_the_environment_that_the_unit_does_not_take_is_no_change(
    units: Units, venv: Path, site: Path
) -> None:
    start(units, venv, site)
    link = venv.with_name("current")
    link.symlink_to(venv)
    assert told(link).state == "pass"


def swap_file(site: Path) -> None:
    (site / "sglang/.serve.py.swp").write_text("x")
    (site / "sglang/4913").touch()
    (site / "sglang/4913").unlink()


def backup(site: Path) -> None:
    subprocess.run(["cp", "-al", site / "sglang", site / "backup"], check=True)


def note(site: Path) -> None:
    (site / "sglang/configs/x.json").write_text('{"a": 1}')


def bytecode(site: Path) -> None:
    subprocess.run([site.parents[2] / "bin/python", "-m", "compileall", "-q", site / "sglang"], check=True)


def no_bytecode(site: Path) -> None:
    for cache in site.glob("sglang/**/__pycache__"):
        shutil.rmtree(cache)


def another_package(site: Path) -> None:
    (site / "other").mkdir()
    (site / "other/__init__.py").touch()


@pytest.mark.parametrize("way", [swap_file, backup, note, bytecode, no_bytecode, another_package])
def test_what_leaves_the_code_as_it_was_is_no_change(
    units: Units, venv: Path, site: Path, way: Callable[[Path], None]
) -> None:
    add_data(site / "sglang")
    start(units, venv, site)
    bytecode(site)
    way(site)
    check = told(venv)
    assert check.state == "pass", check


def touch(site: Path) -> None:
    (site / "sglang/serve.py").touch()


def own(site: Path) -> None:
    for path in (site / "sglang", *site.glob("sglang*/**/*")):
        os.chmod(path, path.stat().st_mode | 0o040)
        os.chown(path, os.geteuid(), os.getegid())


@pytest.mark.parametrize("way", [touch, own])
def test_a_touch_of_what_is_as_the_record_has_it_only_warns(
    units: Units, venv: Path, site: Path, way: Callable[[Path], None]
) -> None:
    enter(site)
    start(units, venv, site)
    way(site)
    check = told(venv)
    assert check.state == "warn", check
    assert check.detail.startswith("touched since, and as RECORD has it: started ")
    if way is touch:
        assert ": serve.py; " in check.detail
    (site / "sglang/serve.py").write_text("x = 1\n")
    assert told(venv).state == "fail"


def without_bytecode(units: Units, venv: Path, site: Path) -> None:
    no_bytecode(site)
    start(units, venv, site)


def with_bytecode(units: Units, venv: Path, site: Path) -> None:
    bytecode(site)
    start(units, venv, site)


def with_bytecode_of_its_own(units: Units, venv: Path, site: Path) -> None:
    start(units, venv, site)
    bytecode(site)
    now = time.time()
    until_sync(lambda: time.time() > now + 0.1, PATIENCE, "a change is later than the bytecode")


@pytest.mark.parametrize("before", [without_bytecode, with_bytecode, with_bytecode_of_its_own])
def test_another_owner_without_a_record_only_warns(
    units: Units, venv: Path, site: Path, before: Callable[[Units, Path, Path], None]
) -> None:
    add_data(site / "sglang")
    before(units, venv, site)
    own(site)
    check = told(venv)
    assert check.state == "warn", check
    assert check.detail.startswith("touched since, and only owner or mode, by all that shows: started ")


def one_file_with_its_time(site: Path) -> None:
    path = site / "sglang/serve.py"
    seen = path.stat()
    path.write_text(path.read_text() + "x = 1\n")
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def a_tree_with_its_times(site: Path) -> None:
    shutil.copytree(site / "sglang", site.parent / "other")
    (site.parent / "other/more.py").write_text("x = 1\n")
    for path in (site.parent / "other", *site.parent.glob("other/**/*")):
        os.utime(path, (0, 0))
    subprocess.run(["cp", "-a", f"{site.parent}/other/.", site / "sglang"], check=True)


def a_moved_tree_of_another_owner(site: Path) -> None:
    swap(site)
    own(site)


def a_moved_environment_of_another_owner(site: Path) -> None:
    venv = site.parents[2]
    venv.rename(venv.with_name("gone"))
    venv.with_name("other").rename(venv)
    own(site)


@pytest.mark.parametrize("has_bytecode", [True, False])
@pytest.mark.parametrize(
    "way",
    [
        one_file_with_its_time,
        a_tree_with_its_times,
        a_moved_tree_of_another_owner,
        a_moved_environment_of_another_owner,
        touch,
    ],
)
def test_what_may_be_of_other_content_fails_without_a_record(
    units: Units, venv: Path, site: Path, way: Callable[[Path], None], has_bytecode: bool
) -> None:
    add_data(site / "sglang")
    shutil.copytree(site / "sglang", site / "sglang.new")
    shutil.copytree(venv, venv.with_name("other"), symlinks=True)
    (with_bytecode if has_bytecode else without_bytecode)(units, venv, site)
    way(site)
    check = told(venv)
    assert check.state == "fail", check
    assert check.detail.startswith("running the old package, restart needed: started ")


def test_an_installation_of_the_same_version_is_a_change_though_it_is_as_its_record_has_it(
    units: Units, venv: Path, site: Path
) -> None:
    enter(site)
    start(units, venv, site)
    touch(site)
    record = site / "sglang-1.0.dist-info/RECORD"
    text = record.read_text()
    record.unlink()
    record.write_text(text)
    check = told(venv)
    assert check.state == "fail"
    assert "tree changed " in check.detail
