"""Unchanged files on a filesystem that can share blocks (reflinks), as far as one can be had without such a disk."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
from pathlib import Path

import pytest

from dflash_console.agent.copy import place, receive, reuse
from dflash_console.agent.copy.target import Target
from tests.agent.copy.flow import BY, ORIGIN, copy, entries_of, lay_small, state_of, whole
from tests.waiting import until_sync


@pytest.fixture(params=["thread", "children"], autouse=True)
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who brings the files."""
    if request.param == "children":
        monkeypatch.setattr(reuse, "LITTLE", -1)
        monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    return str(request.param)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return lay_small(tmp_path / "new", "0.5.23")


def test_a_clone_is_hashed_and_not_written_once_more(
    venv: Path, site: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_small(site, "0.5.9")
    cloned = tmp_path / "cloned"

    def ioctl(target: int, request: int, source: int) -> int:
        if request != 0x40049409:
            raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
        data = os.pread(source, 1 << 20, 0)
        assert os.pwrite(target, data, 0) == len(data)
        with cloned.open("a") as file:
            file.write(f"{os.fstat(target).st_ino}\n")
        return 0

    monkeypatch.setattr("fcntl.ioctl", ioctl)
    monkeypatch.setattr(reuse, "write_all", None)
    copy(venv, new)
    assert cloned.read_text() == f"{(site / 'sglang/same.py').stat().st_ino}\n"


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY])
def test_where_nothing_can_be_cloned_files_are_copied(
    venv: Path, site: Path, new: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    lay_small(site, "0.5.9")

    def ioctl(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.ioctl", ioctl)
    copy(venv, new)
    assert (site / "sglang/same.py").read_bytes() == (new / "sglang/same.py").read_bytes()


@pytest.mark.parametrize("odd", ["pipe", "folder", "gone", "longer"])
def test_a_live_file_that_became_something_else_is_wanted(
    venv: Path, site: Path, new: Path, odd: str
) -> None:
    lay_small(site, "0.5.9")
    before = state_of(site)
    entries = entries_of(new)
    target = Target(str(venv), "sglang")
    target.claim(BY, "copy", ORIGIN, "", "", dict)
    target.expect(entries)
    path = site / "sglang/same.py"
    content = path.read_bytes()
    path.unlink()
    if odd == "pipe":
        os.mkfifo(path)
    elif odd == "folder":
        path.mkdir()
    elif odd == "longer":
        path.write_bytes(content + b"#")
    answer = target.want({entry[0]: entry[4] for entry in entries if entry[0] == "sglang/same.py"})
    assert answer["reused"] == 1
    target.begin_fill([])
    target.feed(b"\xff" + bytes(16))
    missing = target.end_fill()["missing"]
    assert "sglang/same.py" in {entries[index][0] for index in missing}
    target.release()
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    path.write_bytes(content)
    whole(venv, site, before)
    assert place.holder(str(venv)) is None


def many(folder: Path, version: str) -> Path:
    """A package with 300 files that are the same in every version."""
    extra = {f"sglang/part{at % 7}/same_{at}.py": f"AT = {at}\n" * at for at in range(300)}
    return lay_small(folder, version, extra=extra)


def test_many_files_are_brought_whole_and_as_new_inodes(venv: Path, site: Path, tmp_path: Path) -> None:
    many(site, "0.5.9")
    new = many(tmp_path / "many", "0.5.23")
    before = {path.stat().st_ino for path in site.rglob("same_*.py")}
    copy(venv, new)
    assert state_of(site) == state_of(new) | {
        path: content for path, content in state_of(site).items() if path.endswith("RECORD")
    }
    assert not before & {path.stat().st_ino for path in site.rglob("same_*.py")}


def test_a_backup_lists_what_was_changed_while_files_were_brought(
    venv: Path, site: Path, tmp_path: Path
) -> None:
    many(site, "0.5.9")
    target, _ = copy(venv, many(tmp_path / "many", "0.5.23"), until="fill")
    (site / "sglang/part1/same_8.py").write_text("AT = 9\n" * 8)
    assert all(check["state"] != "fail" for check in target.check([], 60.0)["checks"])
    target.swap()
    target.settle(True, "")
    target.release()
    backup = next((venv / ".dflash-console/backups").iterdir())
    listed = {line[0]: line[6] for line in json.loads((backup / "manifest.json").read_text())["entries"]}
    assert listed == {entry[0]: entry[4] for entry in entries_of(backup) if "/" in entry[0]}


def test_a_disk_that_fails_is_told_and_leaves_the_old_tree(
    venv: Path, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state_of(many(site, "0.5.9"))
    created = receive.create

    def create(stage: int, path: str, mode: int) -> int:
        if path.endswith("same_250.py"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return created(stage, path, mode)

    monkeypatch.setattr("dflash_console.agent.copy.reuse.create", create)
    target, _ = copy(venv, many(tmp_path / "many", "0.5.23"), until="want")
    target.begin_fill([])
    with pytest.raises(place.Fault, match=r"same_250\.py can't be copied into the stage.*disk is full"):
        target.end_fill()
    target.release()
    whole(venv, site, before)


def test_a_release_stops_it_and_leaves_nothing(venv: Path, site: Path, tmp_path: Path) -> None:
    before = state_of(many(site, "0.5.9"))
    target, _ = copy(venv, many(tmp_path / "many", "0.5.23"), until="want")
    target.release()
    whole(venv, site, before)


def test_a_death_in_the_middle_ends_all_who_write(
    venv: Path, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state_of(many(site, "0.5.9"))
    new = many(tmp_path / "many", "0.5.23")
    mark = tmp_path / "mark"

    def create(stage: int, path: str, mode: int) -> int:
        if path.endswith("same_250.py"):
            mark.touch()
            signal.pause()
        return receive.create(stage, path, mode)

    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            monkeypatch.setattr("dflash_console.agent.copy.reuse.create", create)
            copy(venv, new, until="fill")
        os._exit(1)
    until_sync(mark.exists, 30, "it is in the middle")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    target, claim = copy(venv, new, until="claim")
    assert claim["recovered"]
    target.release()
    whole(venv, site, before)
