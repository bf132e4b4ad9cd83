"""Configured paths: seen within a moment, and one that hangs takes no other with it."""

from __future__ import annotations

import os
import select
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from dflash_console.agent import paths as paths_module
from dflash_console.agent.mounts import read_mounts
from dflash_console.agent.paths import PathSection, read_path
from dflash_console.model import Filesystem, Missing, PathInfo, decode_cell
from tests.agent.dead_mount import dead_mount
from tests.agent.driver import PATIENCE


@pytest.fixture
def section() -> Iterator[PathSection]:
    section = PathSection()
    yield section
    section.close()


def watch(section: PathSection, *paths: Path | str) -> None:
    section.configure({"paths": [str(path) for path in paths]})


def infos(section: PathSection) -> list[PathInfo]:
    if section.value is None:
        return []
    return msgspec.convert(section.value, list[PathInfo], dec_hook=decode_cell)


def until(
    section: PathSection, look: Callable[[list[PathInfo]], object], within: float = PATIENCE
) -> list[PathInfo]:
    """Run the section as the loop does, at ten ticks a second, until its value pleases the look."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        section.tick(time.monotonic())
        for fd in select.select(section.fds(), [], [], 0.1)[0]:
            section.ready(fd, time.monotonic())
        if section.value is not None and look(infos(section)):
            return infos(section)
    raise AssertionError(f"not within {within:.0f} s; last: {section.value}")


def test_files_folders_and_what_is_not_there_are_told_apart(section: PathSection, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.safetensors").write_bytes(b"x" * 1000)
    (folder / "b.safetensors").symlink_to(folder / "a.safetensors")
    (folder / "broken").symlink_to(folder / "nothing")
    os.mkfifo(tmp_path / "pipe")
    watch(
        section,
        folder,
        folder / "a.safetensors",
        tmp_path / "pipe",
        tmp_path / "no" / "thing",
        folder / "broken",
    )
    found = until(section, lambda value: True)
    assert [info.path for info in found][:2] == [str(folder), str(folder / "a.safetensors")]
    assert [info.kind for info in found[:3]] == ["folder", "file", "other"]
    assert (found[0].size, found[0].entries) == (2000, 4)
    assert found[1].size == 1000
    for info, detail in zip(
        found[3:], ("No such file or directory", "a link to something that is not there"), strict=True
    ):
        assert info.kind == info.size == Missing("not_found", detail)
    room = os.statvfs(tmp_path)
    for info in found:
        assert isinstance(info.filesystem, Filesystem)
        assert info.filesystem.total == room.f_blocks * room.f_frsize


def test_a_home_relative_path_is_the_login_users(
    section: PathSection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    watch(section, "~/model", "~/gone", tmp_path / "model")
    found = until(section, lambda value: True)
    assert [info.path for info in found] == [f"{tmp_path}/model", f"{tmp_path}/gone"]
    assert found[0].kind == "folder"
    assert isinstance(found[1].kind, Missing)
    (tmp_path / "gone").touch()
    until(section, lambda value: value[1].kind == "file")


def test_a_name_that_is_not_utf8_and_one_that_no_system_can_have(
    section: PathSection, tmp_path: Path
) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    watch(section, odd, "/a\0b")
    found = until(section, lambda value: True)
    assert found[0].kind == "folder"
    assert isinstance(found[1].kind, Missing)


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """For the while of the block root is nobody; everybody else stays who they are."""
    me = os.geteuid()
    os.seteuid(me or 65534)
    try:
        yield
    finally:
        os.seteuid(me)


def test_a_folder_that_may_not_be_read_says_so() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0)
        with as_ordinary_user():
            info = msgspec.convert(read_path(folder, read_mounts()), PathInfo, dec_hook=decode_cell)
            inner = read_path(folder + "/model", read_mounts())
        os.chmod(folder, 0o700)
    assert info.kind == "folder"
    assert info.size == info.entries == Missing("permission", "Permission denied")
    assert inner["kind"] == {"missing": "permission", "detail": "Permission denied"}


def test_no_paths_are_known_at_once_and_need_no_child(section: PathSection) -> None:
    watch(section)
    assert section.value == []
    section.tick(time.monotonic())
    assert section.fds() == []


def test_a_path_that_appears_changes_or_vanishes_is_seen_without_waiting_for_the_full_reading(
    section: PathSection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths_module, "FULL", 1e6)
    monkeypatch.setattr(paths_module, "QUICK", 0.1)
    path = tmp_path / "model"
    watch(section, path)
    until(section, lambda value: isinstance(value[0].kind, Missing))
    path.mkdir()
    until(section, lambda value: value[0].kind == "folder")
    (path / "weights").write_bytes(b"x")
    until(section, lambda value: value[0].entries == 1)
    (path / "weights").unlink()
    path.rmdir()
    until(section, lambda value: isinstance(value[0].kind, Missing))


def test_refresh_reads_at_once(section: PathSection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths_module, "FULL", 1e6)
    monkeypatch.setattr(paths_module, "QUICK", 1e6)
    path = tmp_path / "model"
    watch(section, path)
    until(section, lambda value: isinstance(value[0].kind, Missing))
    path.mkdir()
    section.refresh()
    until(section, lambda value: value[0].kind == "folder")


def test_a_new_config_keeps_what_is_known_and_drops_the_rest(section: PathSection, tmp_path: Path) -> None:
    watch(section, tmp_path, "/nowhere")
    until(section, lambda value: len(value) == 2)
    watch(section, "/etc", tmp_path)
    assert [info.path for info in until(section, lambda value: value[0].path == "/etc")] == [
        "/etc",
        str(tmp_path),
    ]


def test_a_dead_mount_is_told_as_hung_and_takes_no_other_path_with_it(
    section: PathSection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths_module, "DEADLINE", 0.5)
    monkeypatch.setattr(paths_module, "AGAIN", 0.5)
    section = PathSection()
    dead, alive = tmp_path / "dead", tmp_path / "alive"
    dead.mkdir()
    try:
        with dead_mount(dead):
            watch(section, dead / "model", alive, "/etc")
            found = until(section, lambda value: True)
            assert found[0].kind == Missing("hung", "no answer within 0.5 s")
            assert isinstance(found[1].kind, Missing)
            assert found[2].kind == "folder"
            alive.mkdir()
            found = until(section, lambda value: value[1].kind == "folder")
            assert isinstance(found[0].kind, Missing)
            assert found[0].kind.missing == "hung"
        # Asked again from time to time, it comes back by itself.
        until(section, lambda value: value[0].kind == Missing("not_found", "No such file or directory"))
        (dead / "model").mkdir()
        until(section, lambda value: value[0].kind == "folder")
    finally:
        section.close()


def test_a_path_on_a_mount_that_may_hang_is_never_looked_at_by_the_loop_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = [("/", "ext4"), ("/net", "nfs4"), (str(tmp_path / "fuse"), "fuse.sshfs")]
    (tmp_path / "link").symlink_to(tmp_path / "fuse" / "model")
    assert paths_module._is_local("/srv/model", table)
    assert not paths_module._is_local("/net/model", table)
    assert not paths_module._is_local(str(tmp_path / "link"), table)
