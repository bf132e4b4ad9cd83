"""Unchanged files on a filesystem that can share blocks (reflinks), as far as one can be had without such a disk."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
from collections.abc import Callable
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


class Gone(Exception):
    """As the pipe's."""


@pytest.mark.parametrize("how", ["nobody says a word", "the console is gone"])
@pytest.mark.parametrize("request_", ["fill", "check"])
def test_a_live_tree_that_hangs_is_not_waited_for_without_end(
    venv: Path, site: Path, new: Path, monkeypatch: pytest.MonkeyPatch, how: str, request_: str, by: str
) -> None:
    if by == "thread":
        return  # of a few files, which no signal can end
    lay_small(site, "0.5.9")
    before = state_of(site)

    def bring(*_: object) -> None:
        signal.pause()

    def mind() -> None:
        if how == "the console is gone":
            raise Gone

    monkeypatch.setattr(reuse.Bringer, "bring", bring)
    monkeypatch.setattr(reuse, "STALL", 0.3 if how == "nobody says a word" else 1000.0)
    target = Target(str(venv), "sglang", mind)
    target.claim(BY, "copy", ORIGIN, "", "", dict)
    target.expect(entries_of(new))
    target.want()
    target.begin_fill([])
    asks: dict[str, Callable[[], object]] = {
        "fill": target.end_fill,
        "check": lambda: target.check([], 60.0),
    }
    with pytest.raises(Gone if how == "the console is gone" else place.Fault, match=r"dead|^$"):
        asks[request_]()
    target.close()
    whole(venv, site, before)


def test_one_that_is_at_work_for_long_says_so(
    venv: Path, site: Path, new: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if by == "thread":
        return
    lay_small(site, "0.5.9")
    plain = reuse.Bringer.bring
    monkeypatch.setattr(reuse, "WORD", 0.0)
    monkeypatch.setattr(reuse, "STALL", 5.0)

    def bring(self: reuse.Bringer, index: int) -> list[int] | None:
        for _ in range(2000):
            self._told()
        return plain(self, index)

    monkeypatch.setattr(reuse.Bringer, "bring", bring)
    copy(venv, new)
    assert state_of(site) == state_of(new)


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


def test_a_backup_lists_what_was_changed_with_its_old_time_while_files_were_brought(
    venv: Path, site: Path, tmp_path: Path
) -> None:
    many(site, "0.5.9")
    target, _ = copy(venv, many(tmp_path / "many", "0.5.23"), until="fill")
    path = site / "sglang/part1/same_8.py"
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    path.write_text("AT = 9\n" * 8)
    os.utime(path, ns=times)
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
