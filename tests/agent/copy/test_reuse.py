"""Unchanged files on a filesystem that can share blocks (reflinks), as far as one can be had without such a disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dflash_console.agent.copy import place, reuse
from dflash_console.agent.copy.target import Target
from tests.agent.copy.flow import BY, ORIGIN, copy, entries_of, lay_small, state_of, whole


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return lay_small(tmp_path / "new", "0.5.23")


def test_a_clone_is_hashed_and_not_written_once_more(
    venv: Path, site: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_small(site, "0.5.9")
    cloned: list[int] = []

    def ioctl(target: int, request: int, source: int) -> int:
        assert request == 0x40049409
        data = os.pread(source, 1 << 20, 0)
        assert os.pwrite(target, data, 0) == len(data)
        cloned.append(os.fstat(target).st_ino)
        return 0

    monkeypatch.setattr("fcntl.ioctl", ioctl)
    monkeypatch.setattr(reuse, "write_all", None)
    copy(venv, new)
    assert cloned == [(site / "sglang/same.py").stat().st_ino]


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
