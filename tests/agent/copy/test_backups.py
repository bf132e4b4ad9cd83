"""Backups: listed whatever lies there, put back only when they are whole, pruned but never one in use."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_console.agent.child import OneShot
from dflash_console.agent.copy import backups, place, processes
from dflash_console.agent.copy.place import FOLDER, Fault, Place
from dflash_console.agent.copy.target import Target
from tests.agent.copy.flow import BY, ORIGIN, copy, lay_small, state_of, whole
from tests.agent.copy.test_place import HOSTILE, fifo, folder

Copied = tuple[Path, dict[str, str], dict[str, str]]
"""The folder of the backup after a copy, what was there before it and what is there now."""


@pytest.fixture
def copied(venv: Path, site: Path, tmp_path: Path) -> Copied:
    """A copy that was made."""
    lay_small(site, "0.5.9")
    before = state_of(site)
    copy(venv, lay_small(tmp_path / "new", "0.5.23"))
    (backup,) = backups.listing(str(venv))
    return venv / FOLDER / "backups" / backup["id"], before, state_of(site)


def restored(venv: Path, backup: str = "", modules: list[list[str]] | None = None) -> dict[str, Any]:
    target = Target(str(venv), "sglang")
    target.claim(BY, "rollback", ORIGIN, "", "", dict)
    try:
        answer = target.restore(backup, modules, 30.0)
        if not answer.get("is_undone"):
            target.settle(True, "")
    finally:
        target.release()
    return answer


def test_a_rollback_puts_the_old_tree_back_and_what_it_replaces_is_a_backup(
    venv: Path, site: Path, copied: Copied
) -> None:
    path, before, now = copied
    inode = (path / "sglang").stat().st_ino
    answer = restored(venv, "", [["sglang.same"]])
    assert answer["swap"] == "exchange"
    assert [(check["name"], check["state"]) for check in answer["checks"]] == [
        ("backup", "pass"),
        ("import", "pass"),
        ("origin", "pass"),
        ("place", "pass"),
    ]
    whole(venv, site, before)
    assert (site / "sglang").stat().st_ino == inode
    assert place.read_provenance(str(venv)) is None
    assert {line[5] for line in place.read_manifest(str(venv))} == {
        (site / name).stat().st_ino for name in before
    }
    (backup,) = backups.listing(str(venv))
    assert (backup["reason"], backup["provenance"]["from_host"]) == ("rollback", "ct129")
    with pytest.raises(Fault, match="no backup of a copy"):
        restored(venv)
    restored(venv, backup["id"])
    whole(venv, site, now)
    assert (place.read_provenance(str(venv)) or {})["from_host"] == "ct129"


def test_a_rollback_that_is_not_kept_leaves_the_backup_where_it_was(
    venv: Path, site: Path, copied: Copied
) -> None:
    path, before, now = copied
    target = Target(str(venv), "sglang")
    target.claim(BY, "rollback", ORIGIN, "", "", dict)
    target.restore("")
    target.settle(False, "verify failed")
    target.release()
    whole(venv, site, now)
    assert state_of(path) == before
    assert [item["id"] for item in backups.listing(str(venv))] == [path.name]
    restored(venv)
    whole(venv, site, before)


def test_the_newest_is_the_last_one_made_whatever_the_clock_said(
    venv: Path, site: Path, copied: Copied, tmp_path: Path
) -> None:
    """A clock that ran ahead, and was set right before the next copy."""
    path, _, now = copied
    info = json.loads((path / "info.json").read_text())
    (path / "info.json").write_text(json.dumps({**info, "at": info["at"] + 1e6}))
    copy(venv, lay_small(tmp_path / "newer", "0.5.24"))
    newest, oldest = backups.listing(str(venv))
    assert oldest["id"] == path.name
    assert newest["at"] < oldest["at"]
    assert "turn" not in newest
    restored(venv)
    assert state_of(site) == now


def as_link(path: Path) -> None:
    path.rename(path.parent / "elsewhere")
    path.symlink_to("elsewhere")


def no_info(path: Path) -> None:
    (path / "info.json").unlink()


@pytest.mark.parametrize("spoil", [as_link, no_info])
def test_an_older_backup_is_not_put_back_for_a_newest_one_that_can_not_be_read(
    venv: Path, site: Path, copied: Copied, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    path, before, _ = copied
    # The name of the second one is to come after the first one's, made in the same second.
    first = path.rename(path.parent / f"20200101-000000-{path.name[-6:]}")
    copy(venv, lay_small(tmp_path / "newer", "0.5.24"))
    newest, _ = backups.listing(str(venv))
    now = state_of(site)
    spoil(venv / FOLDER / "backups" / newest["id"])
    with pytest.raises(backups.Unfit, match=f"{newest['id']} is newer and can't be read.*{first.name}"):
        restored(venv)
    whole(venv, site, now)
    restored(venv, first.name)
    whole(venv, site, before)


def change(path: Path) -> None:
    (path / "sglang/same.py").write_text("SAME = 2\n" * 50)


def add(path: Path) -> None:
    (path / "sglang/more.py").write_text("")


def take(path: Path) -> None:
    (path / "sglang/srt/__init__.py").unlink()


def take_all(path: Path) -> None:
    shutil.rmtree(path / "sglang")


def link_out(path: Path) -> None:
    (path / "sglang/same.py").unlink()
    (path / "sglang/same.py").symlink_to("/etc/passwd")


def no_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


@pytest.mark.parametrize("spoil", [change, add, take, take_all, link_out, no_manifest])
def test_a_backup_that_is_not_as_it_was_made_is_not_put_back(
    venv: Path, site: Path, copied: Copied, spoil: Callable[[Path], None]
) -> None:
    path, _, now = copied
    spoil(path)
    with pytest.raises(Fault, match=f"backup {path.name}"):
        restored(venv)
    whole(venv, site, now)


def test_bytecode_in_a_backup_is_no_change(venv: Path, site: Path, copied: Copied) -> None:
    path, before, _ = copied
    (path / "sglang/__pycache__").mkdir(exist_ok=True)
    (path / "sglang/__pycache__/x.pyc").write_bytes(b"x")
    restored(venv)
    whole(venv, site, before)


def test_a_backup_that_does_not_import_is_not_put_back(venv: Path, site: Path, copied: Copied) -> None:
    _, _, now = copied
    answer = restored(venv, "", [["sglang.not_there"]])
    assert answer["is_undone"]
    assert "nothing was changed" in answer["detail"]
    whole(venv, site, now)


def test_a_backup_that_is_not_there_is_said_with_those_that_are(venv: Path, copied: Copied) -> None:
    path, _, _ = copied
    for number in ("20200101-000000-abcdef", "../../..", "x", "/etc"):
        with pytest.raises(Fault, match=f"there are: {path.name}"):
            restored(venv, number)


@pytest.mark.parametrize("spoil", HOSTILE)
@pytest.mark.parametrize("name", ["info.json", "manifest.json"])
def test_a_spoilt_backup_is_not_put_back_and_hides_no_other(
    venv: Path, site: Path, copied: Copied, tmp_path: Path, spoil: Callable[[Path], None], name: str
) -> None:
    first, before, _ = copied
    copy(venv, lay_small(tmp_path / "newer", "0.5.24"))
    now = state_of(site)
    second = next(item["id"] for item in backups.listing(str(venv)) if item["id"] != first.name)
    path = first.parent / second / name
    path.unlink()
    spoil(path)
    assert first.name in [item["id"] for item in backups.listing(str(venv))]
    with pytest.raises(Fault, match=second):
        restored(venv, second)
    whole(venv, site, now)
    restored(venv, first.name)
    whole(venv, site, before)


@pytest.mark.parametrize("spoil", [fifo, folder])
def test_what_is_no_backup_is_not_listed(venv: Path, copied: Copied, spoil: Callable[[Path], None]) -> None:
    path, _, _ = copied
    spoil(path.parent / "20300101-000000-abcdef")
    (path.parent / "20300102-000000-abcdef").symlink_to(path)
    (path.parent / "notes").mkdir()
    assert [item["id"] for item in backups.listing(str(venv))] == [path.name]


def test_an_info_with_odd_values_is_listed_with_harmless_ones(venv: Path, copied: Copied) -> None:
    path, _, _ = copied
    info = json.loads((path / "info.json").read_text())
    info.update(
        version=["x"], reason="because", tree={"a": 1}, provenance={"by": 7}, id="../../x", in_use="me"
    )
    (path / "info.json").write_text(json.dumps(info))
    (listed,) = backups.listing(str(venv))
    assert (listed["id"], listed["reason"], listed["provenance"], listed["in_use"]) == (
        path.name,
        "copy",
        None,
        "",
    )
    for odd in ({"at": float("nan")}, {"at": True}, {"files": -1}, {"size": "x"}, {"size": 1 << 70}):
        (path / "info.json").write_text(json.dumps({**info, **odd}))
        assert backups.listing(str(venv)) == []


# ---- pruned


def test_the_oldest_are_pruned_and_the_newest_kept(venv: Path, site: Path, tmp_path: Path) -> None:
    lay_small(site, "0.5.9")
    trees = [lay_small(tmp_path / f"new{number}", f"0.6.{number}") for number in range(4)]
    ids: list[str] = []
    for tree in trees:
        _, answer = copy(venv, tree, keep_backups=2)
        ids = [item["id"] for item in backups.listing(str(venv))]
    assert len(ids) == 2
    assert "old backups removed" in answer["detail"]
    restored(venv)
    assert (site / "sglang/__init__.py").read_text() == '__version__ = "0.6.2"\n'
    assert [path.name for path in (venv / FOLDER / "backups").iterdir()] != []


def test_no_backup_may_be_kept_but_the_one_just_made(venv: Path, site: Path, tmp_path: Path) -> None:
    lay_small(site, "0.5.9")
    before = state_of(site)
    copy(venv, lay_small(tmp_path / "new", "0.5.23"), keep_backups=0)
    assert len(backups.listing(str(venv))) == 1
    restored(venv)
    whole(venv, site, before)


@pytest.mark.parametrize("how", ["open", "mapped", "working directory"])
def test_a_backup_in_use_is_told_and_not_pruned(
    venv: Path, site: Path, copied: Copied, tmp_path: Path, how: str
) -> None:
    path, before, _ = copied
    file = path / "sglang/same.py"
    work = {
        "open": f"held = open({str(file)!r})",
        "mapped": f"import mmap; f = open({str(file)!r}, 'rb'); held = mmap.mmap(f.fileno(), 0, prot=1); f.close()",
        "working directory": f"import os; os.chdir({str(path / 'sglang')!r})",
    }[how]
    code = f"{work}; print('there', flush=True); input()"
    user = subprocess.Popen(
        [sys.executable, "-I", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with user:
        assert user.stdout is not None
        assert user.stdout.readline() == "there\n"
        assert any(f"process {user.pid} (" in item["in_use"] for item in backups.listing(str(venv)))
        _, answer = copy(venv, lay_small(tmp_path / "newer", "0.5.24"), keep_backups=1)
        assert answer["detail"] == ""
        assert state_of(path) == before
        user.communicate("\n", timeout=30)
    assert all(item["in_use"] == "" for item in backups.listing(str(venv)))
    copy(venv, lay_small(tmp_path / "newest", "0.5.25"), keep_backups=1)
    assert not path.exists()


@pytest.mark.parametrize("how", ["one hangs", "it takes too long", "no child"])
def test_nothing_is_pruned_when_not_every_process_can_be_asked(
    venv: Path, copied: Copied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    path, before, _ = copied
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    asked = backups._paths_of
    own = os.getpid()

    def paths_of(folder: str) -> bytes:
        assert os.getpid() != own, "asked by the one who holds the lock"
        if folder == f"/proc/{child.pid}":
            signal.pause()
        return asked(folder)

    def start(*_: object) -> None:
        raise OSError(11, os.strerror(11))

    monkeypatch.setattr(backups, "_paths_of", paths_of)
    monkeypatch.setattr(processes, "PATIENCE", 0.3)
    if how == "it takes too long":
        monkeypatch.setattr(processes, "LONGEST", 0.0)
    if how == "no child":
        monkeypatch.setattr(OneShot, "start", start)
    try:
        _, answer = copy(venv, lay_small(tmp_path / "newer", "0.5.24"), keep_backups=1)
    finally:
        child.communicate(timeout=30)
    words = {
        "one hangs": f"no old backups were removed: it can't be told whether one is in use: process {child.pid} ",
        "it takes too long": "no old backups were removed: it can't be told whether one is in use: process ",
        "no child": "old backups can't be removed",
    }[how]
    assert words in answer["detail"]
    assert answer["undone"] is False
    assert state_of(path) == before


def test_a_backup_that_was_half_removed_is_swept_away(venv: Path, site: Path, copied: Copied) -> None:
    path, _, now = copied
    place.watchers[:] = [stop_at("remove backup")]
    ours = Place(str(venv))
    try:
        with pytest.raises(InterruptedError):
            backups.drop(ours, path.name)
    finally:
        place.watchers[:] = []
        ours.close()
    assert backups.listing(str(venv)) == []
    target = Target(str(venv), "sglang")
    target.claim(BY, "copy", ORIGIN, "", "", dict)
    target.release()
    whole(venv, site, now)


def stop_at(wanted: str) -> Callable[[str], None]:
    """A watcher that raises at one step."""

    def watch(name: str) -> None:
        if name == wanted:
            raise InterruptedError(name)

    return watch
