"""What hangs, breaks or dies under the section `venvs` takes nothing else with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dflash_console.agent.venvs import reading as venv_look
from dflash_console.agent.venvs import section as venvs
from dflash_console.model import Missing
from tests.agent.dead_mount import dead_mount
from tests.agent.environments import make_venv
from tests.agent.venv_loop import Loop, home, loop, origins, package, put
from tests.waiting import until_sync
from tests.wheels import lay

__all__ = ["home", "loop"]

STALL = 4.0
"""Seconds; a busy machine may need more than one for what is not hung."""


def test_an_environment_on_a_dead_mount_hangs_no_other(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venvs, "STALL", STALL)
    dead = tmp_path / "dead"
    for folder in (tmp_path / "first", dead / "venv", tmp_path / "last"):
        lay("0.5.9", make_venv(folder))
    loop.configure(tmp_path / "first", dead / "venv", tmp_path / "last")
    with dead_mount(dead):
        rows = loop.first()
        assert [row.path for row in rows] == [
            str(tmp_path / "first"),
            str(dead / "venv"),
            str(tmp_path / "last"),
        ]
        reason = Missing("hung", f"no answer within {STALL:g} s: the filesystem that it lies on may be dead")
        assert rows[1].python == rows[1].package == rows[1].torch_build == reason
        assert package(rows[0]).version == package(rows[2]).version == "0.5.9"
        loop.soon()
        (tmp_path / "last" / "pyvenv.cfg").unlink()
        loop.until(lambda rows: isinstance(rows[2].python, Missing), "a change elsewhere")
        # A turn that looked at the mount itself would never come back.
        for _ in range(20):
            loop.soon()
            loop.turn()
    loop.ahead += venvs.AGAIN
    loop.until(lambda rows: isinstance(rows[1].python, str), "the mount's end")


def test_a_mount_that_dies_later_is_looked_at_in_children_only(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venvs, "STALL", STALL)
    monkeypatch.setattr(venv_look, "remote_mounts", lambda mounts: [str(tmp_path / "far")])
    lay("0.5.9", make_venv(tmp_path / "far" / "venv"))
    loop.configure(tmp_path / "far" / "venv")
    assert package(loop.first()[0]).version == "0.5.9"
    with dead_mount(tmp_path / "far"):
        loop.soon()
        rows = loop.until(lambda rows: isinstance(rows[0].python, Missing), "that it hangs")
        assert rows[0].python == rows[0].package
        assert isinstance(rows[0].python, Missing)
        assert rows[0].python.missing == "hung"
    (tmp_path / "far" / "venv" / "pyvenv.cfg").unlink()
    loop.ahead += venvs.AGAIN
    gone = Missing("not_found", "not a venv: no pyvenv.cfg")
    loop.until(lambda rows: rows[0].python == gone, "what is there now")


def test_a_change_on_a_mount_of_another_machine_is_seen_too(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venv_look, "remote_mounts", lambda mounts: [str(tmp_path / "far")])
    site = make_venv(tmp_path / "far" / "venv")
    lay("0.5.9", site)
    loop.configure(tmp_path / "far" / "venv")
    loop.first()
    put("0.5.13.post1", site)
    loop.soon()
    loop.until(lambda rows: all(origins(rows[0])), "the new tree")


def test_a_hung_search_holds_back_nothing_but_what_it_would_find(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venvs, "STALL", STALL)
    monkeypatch.setattr(venvs, "search", lambda channel: os.read(os.pipe()[0], 1))
    make_venv(tmp_path / "venv")
    loop.configure(tmp_path / "venv")
    assert [row.path for row in loop.first()] == [str(tmp_path / "venv")]


def test_an_environment_that_kills_its_reader_spares_the_others(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_venv(tmp_path / "one")
    make_venv(tmp_path / "two")
    real = venv_look.read_venv

    def fatal(path: str, *rest: Any) -> dict[str, Any]:
        if path.endswith("one"):
            os._exit(9)
        return real(path, *rest)

    monkeypatch.setattr(venv_look, "read_venv", fatal)
    loop.configure(tmp_path / "one", tmp_path / "two")
    one, two = loop.first()
    assert one.python == one.package == Missing("error", "ended with status 9")
    assert isinstance(two.python, str)


def test_an_environment_that_cannot_be_read_says_why(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_venv(tmp_path / "venv")

    def broken(*_: object) -> object:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(venv_look, "read_packages", broken)
    loop.configure(tmp_path / "venv")
    (row,) = loop.first()
    assert row.python == Missing("error", "can't be read: [Errno 5] Input/output error")


def test_no_child_is_left_behind(loop: Loop, tmp_path: Path) -> None:
    make_venv(tmp_path / "venv")
    loop.configure(tmp_path / "venv")
    loop.turn()
    pids = [lane._shot.pid for lane in loop.section._lanes() if lane._shot.pid]
    assert pids
    loop.section.close()
    assert loop.section.fds() == []
    lanes = loop.section._lanes()
    until_sync(lambda: not any(lane.is_busy for lane in lanes), 30, "the end of the children")
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
