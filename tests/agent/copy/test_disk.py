"""What is done to many files at once, and where a filesystem lays them."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_console.agent.copy import digests, disk
from dflash_console.agent.copy.survey import survey


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    for number in range(40):
        path = tmp_path / f"package/part{number % 3}/file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n" * number)
    fd = disk.open_folder(str(tmp_path))
    yield fd
    os.close(fd)


def hashes(tree: Path) -> dict[str, str]:
    return {
        str(path.relative_to(tree)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in tree.rglob("*.py")
    }


@pytest.mark.parametrize("by", ["children", "itself", "no way to the folder"])
def test_a_survey_has_the_hashes_of_all_files_whoever_reads_them(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if by == "children":
        monkeypatch.setattr(digests, "LITTLE", -1)
        monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    if by == "no way to the folder":
        monkeypatch.setattr(disk, "path_of", lambda _: "")
    assert {line[0]: line[6] for line in survey(folder, ["package"])} == hashes(tmp_path)


def test_a_survey_does_not_believe_what_was_read_of_another_file(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    (other / "package").mkdir(parents=True)
    for number in range(40):
        path = other / f"package/part{number % 3}/file{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("OTHER\n" * number)
    expected = {path: digest for path, digest in hashes(tmp_path).items() if path.startswith("package/")}
    monkeypatch.setattr(disk, "path_of", lambda _: str(other))
    assert {line[0]: line[6] for line in survey(folder, ["package"])} == expected


def test_a_folder_that_is_elsewhere_by_now_has_its_new_path(folder: int, tmp_path: Path) -> None:
    inside = disk.open_folder("package", folder)
    try:
        (tmp_path / "package").rename(tmp_path / "moved")
        assert disk.path_of(inside) == f"{tmp_path}/moved"
        (tmp_path / "moved").rename(tmp_path / "package")
        (tmp_path / "package").rename(tmp_path / "gone (deleted)")
        assert disk.path_of(inside) == f"{tmp_path}/gone (deleted)"
    finally:
        os.close(inside)


def test_folders_are_spread_where_the_filesystem_knows_that(folder: int, tmp_path: Path) -> None:
    import fcntl

    def flags() -> int:
        return int(struct.unpack("=i", bytes(fcntl.ioctl(folder, 0x80086601, bytes(8)))[:4])[0])

    if not Path("/proc/mounts").read_text().count(" ext4 ") or os.stat("/").st_dev != os.fstat(folder).st_dev:
        pytest.skip("not on an ext4")
    before = flags()
    disk.spread(folder)
    disk.spread(folder)
    assert flags() == before | 0x20000


def test_a_filesystem_that_does_not_know_it_is_left_alone() -> None:
    fd = os.open("/proc", os.O_RDONLY)
    try:
        disk.spread(fd)
    finally:
        os.close(fd)
