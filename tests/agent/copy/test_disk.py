"""What is done to many files at once, and where a filesystem lays them."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_console.agent.copy import digests, disk
from dflash_console.agent.copy.place import Fault
from dflash_console.agent.copy.survey import survey
from dflash_console.agent.copy.walking import walk


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


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[int]:
    """A folder with a tree that is deeper than a process may call or open."""
    here = first = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1400):
        os.mkdir("a", dir_fd=here)
        os.symlink("/etc", "link", dir_fd=here)
        os.close(os.open("x.py", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        inside = disk.open_folder("a", here)
        if here != first:
            os.close(here)
        here = inside
    os.fchmod(here, 0o500)
    os.close(here)
    yield first
    disk.remove(first, "a")
    os.close(first)


def test_a_tree_of_any_depth_is_removed_and_nothing_beside_it(deep: int, tmp_path: Path) -> None:
    disk.remove(deep, "a")
    assert sorted(os.listdir(tmp_path)) == ["link", "x.py"]
    assert os.path.exists("/etc/passwd")


def test_a_wide_tree_is_removed(folder: int, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"package/part{number}/empty/empty").mkdir(parents=True)
    disk.remove(folder, "package")
    assert os.listdir(tmp_path) == []


def test_a_tree_that_is_too_deep_is_told_of_and_not_surveyed(deep: int, tmp_path: Path) -> None:
    with pytest.raises(Fault, match="nested more than 64 folders deep"):
        survey(deep, ["a"])
    found = walk(str(tmp_path), ["a"])
    assert max(item.path.count("/") for item in found.items) == 63
    assert any("nested more than 64 folders deep" in words for words in found.strange)


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
