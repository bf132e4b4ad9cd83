"""The section `venvs`: in order, once each, and anew as soon as something changed."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_console.agent.venvs import look as look_module
from dflash_console.agent.venvs import section as venvs
from dflash_console.agent.venvs.look import Look, has_changed
from dflash_console.model import Missing, Package
from tests.agent.environments import WORKER, make_venv
from tests.agent.venv_loop import Loop, home, loop, origins, package, put, settle
from tests.waiting import until_sync
from tests.wheels import lay, wheel

__all__ = ["home", "loop"]


# ---- what is listed


def test_the_configs_come_first_then_the_units_then_the_found(loop: Loop, tmp_path: Path, home: Path) -> None:
    for folder in (home / "b-found", home / "a-found", tmp_path / "unit", tmp_path / "config"):
        make_venv(folder)
    loop.configure(tmp_path / "config", home / "gone")
    loop.section.add_interpreters([str(tmp_path / "unit" / "bin" / "python3")])
    rows = loop.first()
    assert [(row.path, row.source) for row in rows] == [
        (str(tmp_path / "config"), "config"),
        (str(home / "gone"), "config"),
        (str(tmp_path / "unit"), "unit"),
        (str(home / "a-found"), "found"),
        (str(home / "b-found"), "found"),
    ]
    assert rows[1].python == rows[1].package == Missing("not_found", "no such folder")
    assert [isinstance(row.python, str) for row in rows] == [True, False, True, True, True]


def test_each_environment_is_listed_once_by_its_first_name(loop: Loop, tmp_path: Path, home: Path) -> None:
    make_venv(home / "venv")
    (tmp_path / "link").symlink_to(home / "venv")
    loop.configure(tmp_path / "link", "~/venv", f"{home}/venv/")
    loop.section.add_interpreters([str(home / "venv/bin/python"), str(home / "venv"), "/bin/bash"])
    assert [(row.path, row.source) for row in loop.first()] == [(str(tmp_path / "link"), "config")]


def test_a_home_relative_path_is_the_login_users(loop: Loop, home: Path) -> None:
    make_venv(home / "venv")
    loop.configure("~/venv")
    (row,) = loop.first()
    assert (row.path, row.source) == (str(home / "venv"), "config")


def test_an_interpreter_without_a_venv_shows_its_prefix(loop: Loop) -> None:
    loop.section.add_interpreters(["/no/such/bin/python3.12", "/usr/bin/python3"])
    rows = loop.first()
    assert (rows[0].path, rows[0].python) == ("/no/such", Missing("not_found", "no such folder"))
    assert rows[1].path == os.path.dirname(os.path.dirname(os.path.realpath("/usr/bin/python3")))


def test_a_units_environment_comes_and_goes_with_the_unit(loop: Loop, tmp_path: Path) -> None:
    make_venv(tmp_path / "unit")
    assert loop.first() == []
    loop.section.add_interpreters([str(tmp_path / "unit/bin/python")])
    loop.until(lambda rows: [row.source for row in rows] == ["unit"], "the unit's environment")
    loop.section.add_interpreters([])
    loop.until(lambda rows: not rows, "nothing")


def turn_until(loop: Loop, true: Callable[[], bool], what: str) -> None:
    def look() -> bool:
        loop.turn()
        return true()

    until_sync(look, 30, what)


def test_the_first_value_has_the_watched_units_environments(loop: Loop, tmp_path: Path, home: Path) -> None:
    for folder in (tmp_path / "unit", home / "found"):
        make_venv(folder)
    loop.configure(units=["x.service"])
    turn_until(loop, lambda: loop.section._has_searched, "the search")
    assert loop.section.value is None
    loop.section.observe("units", [{"venv": str(tmp_path / "unit")}, {"venv": None, "interpreter": None}])
    assert [(row.path, row.source) for row in loop.first()] == [
        (str(tmp_path / "unit"), "unit"),
        (str(home / "found"), "found"),
    ]


def test_units_that_are_never_told_keep_the_others_for_a_while_only(loop: Loop, home: Path) -> None:
    make_venv(home / "found")
    loop.configure(units=["x.service"])
    turn_until(loop, lambda: bool(loop.section._known), "the reading")
    assert loop.section.value is None
    loop.ahead += venvs.UNITS_WAIT
    assert [row.source for row in loop.first()] == ["found"]


def test_another_spec_takes_the_place_of_the_first(loop: Loop, tmp_path: Path) -> None:
    lay("0.5.9", make_venv(tmp_path / "one"))
    make_venv(tmp_path / "two")
    loop.configure(tmp_path / "one")
    loop.turn()
    loop.configure(tmp_path / "two", tmp_path / "one", package="nothing", modules=[["nothing.at.all"]])
    rows = loop.first()
    assert [row.path for row in rows] == [str(tmp_path / "two"), str(tmp_path / "one")]
    assert rows[1].package == Missing("not_found", "no nothing")


# ---- what changes


def test_a_copy_is_seen_by_itself_within_seconds(loop: Loop, tmp_path: Path) -> None:
    site = make_venv(tmp_path / "venv")
    lay("0.5.9", site)
    loop.configure(tmp_path / "venv")
    assert origins(loop.first()[0]) == [None, None, None]
    put("0.5.13.post1", site)
    began = time.monotonic()
    (row,) = loop.until(lambda rows: all(origins(rows[0])), "the new tree")
    assert time.monotonic() - began < 3 + 2  # three on a host, more on a machine that is busy with tests
    assert (package(row).version, package(row).dist_version) == ("0.5.13.post1", "0.5.9")


def swap(path: Path, text: str) -> None:
    """Another file in a file's place, as hard-linked trees need it."""
    path.unlink()
    path.write_text(text)


def nest(site: Path) -> None:
    (site / "sglang/sglang").mkdir()
    (site / "sglang/sglang/__init__.py").touch()


def empty_speculative(site: Path) -> None:
    (site / "sglang/srt/speculative").rename(site / "sglang/srt/away")
    (site / "sglang/srt/speculative").mkdir()


def go_on_with_the_other_worker(site: Path) -> None:
    (site / "sglang/srt/speculative/dflash_worker.py").rename(
        site / "sglang/srt/speculative/dflash_worker_v2.py"
    )


def add_torch(site: Path) -> None:
    (site / "torch").mkdir()
    (site / "torch/__init__.py").touch()
    (site / "torch/version.py").write_text("__version__ = '1'")


def move_out(site: Path) -> None:
    (site.parent / "more").mkdir()
    (site / "sglang").rename(site.parent / "more" / "sglang")
    (site / "a.pth").write_text("../more\n")


INFO = "sglang-0.5.13.post1.dist-info"
CHANGES: dict[str, Callable[[Path], object]] = {
    "the tree is removed": lambda site: shutil.rmtree(site / "sglang"),
    "the tree is nested": nest,
    "a module is emptied in place": lambda site: os.truncate(
        site / "sglang/srt/speculative/dflash_info.py", 0
    ),
    "a module is removed": lambda site: os.unlink(site / "sglang/srt/speculative/dflash_utils.py"),
    "another alternative takes over": go_on_with_the_other_worker,
    "the speculative folder is swapped": empty_speculative,
    "the init is removed": lambda site: os.unlink(site / "sglang/__init__.py"),
    "the version is replaced": lambda site: swap(site / "sglang/_version.py", "__version__ = '9'\n"),
    "the metadata is replaced": lambda site: swap(site / INFO / "METADATA", "Version: 8\n"),
    "the dist-info is renamed away": lambda site: (site / INFO).rename(site / "~"),
    "a second dist-info comes": lambda site: shutil.copytree(site / INFO, site / "sglang-1.dist-info"),
    "a direct url appears": lambda site: (site / INFO / "direct_url.json").write_text('{"url": "file:///x"}'),
    "torch appears": add_torch,
    "a path file takes over": move_out,
    "the interpreter breaks": lambda site: shutil.rmtree(site.parents[2] / "bin"),
    "the config goes": lambda site: os.unlink(site.parents[2] / "pyvenv.cfg"),
    "the whole environment goes": lambda site: shutil.rmtree(site.parents[2]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_seen_at_the_next_check(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(look_module, "YOUNG", 50_000_000)
    site = make_venv(tmp_path / "venv")
    lay("0.5.13.post1", site)
    own = site / "sglang/srt/speculative/dflash_info.py"
    swap(own, own.read_text())
    loop.configure(tmp_path / "venv")
    before = loop.first()
    settle(loop)
    CHANGES[change](site)
    loop.soon()
    loop.until(lambda rows: rows != before, change, timeout=10)


def test_nothing_is_read_anew_while_nothing_changes(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_module, "YOUNG", 50_000_000)
    lay("0.5.13.post1", make_venv(tmp_path / "venv"))
    loop.configure(tmp_path / "venv")
    before = loop.first()
    value = loop.section.value
    settle(loop)
    started: list[object] = []
    monkeypatch.setattr(venvs, "look_at", lambda *_: started.append(1))
    monkeypatch.setattr(venvs._Lane, "start", lambda *_: started.append(1))
    for _ in range(10):
        loop.soon()
        loop.turn()
    assert started == []
    assert loop.section.value is value
    assert loop.first() == before


def test_a_refresh_and_a_minute_read_everything_and_search(loop: Loop, home: Path) -> None:
    assert loop.first() == []
    make_venv(home / "one")
    loop.section.refresh()
    loop.until(lambda rows: len(rows) == 1, "the first found")
    make_venv(home / "two")
    loop.ahead += venvs.FULL
    loop.until(lambda rows: len(rows) == 2, "the second found")
    shutil.rmtree(home / "one")
    loop.soon()
    loop.until(lambda rows: [row.path for row in rows] == [str(home / "two")], "one less")


def test_a_change_while_reading_is_read_once_more(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    look = Look()
    look.text(str(tmp_path / "file"))
    assert look.is_young
    assert not has_changed(look.marks)
    os.utime(tmp_path / "file")
    assert has_changed(look.marks)


def test_a_running_copy_does_no_harm(loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(venvs, "CHECK", 0.0)
    site = make_venv(tmp_path / "venv")
    small = tmp_path / "small"
    for part in ("sglang/srt/speculative", "sglang-0.5.13.post1.dist-info"):
        shutil.copytree(wheel("0.5.13.post1") / part, small / part)
    for name in ("__init__.py", "_version.py"):
        shutil.copy(wheel("0.5.13.post1") / "sglang" / name, small / "sglang")
    loop.configure(tmp_path / "venv")
    loop.first()
    script = f"for n in 1 2 3 4 5 6 7 8 9 10; do rm -rf {site}/sglang*; cp -r {small}/. {site}; done"
    pid = os.posix_spawnp("sh", ["sh", "-c", script], os.environ)
    seen = set()
    ended = False
    while not ended:
        loop.turn()
        ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        rows = json.loads(json.dumps(loop.section.value))
        assert isinstance(rows[0]["python"], str), rows
        seen.add(json.dumps(rows))
    assert len(seen) > 1
    loop.until(lambda rows: isinstance(rows[0].package, Package) and all(origins(rows[0])), "the last copy")


def test_the_module_that_is_wanted_most_is_named_when_none_is_there(loop: Loop, tmp_path: Path) -> None:
    lay("0.5.9", make_venv(tmp_path / "venv"))
    loop.configure(tmp_path / "venv")
    assert next(iter(package(loop.first()[0]).modules)) == WORKER
