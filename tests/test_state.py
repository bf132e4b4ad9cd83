"""state.toml: kept through other versions, crashes and breakage."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest

from dflash_console.errors import StateError
from dflash_console.state import State, default_state_path, load_state, save_state


def test_no_file_is_the_defaults(tmp_path: Path) -> None:
    assert load_state(tmp_path / "none" / "state.toml") == State()


def test_what_is_saved_is_loaded_and_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "state.toml"
    save_state(path, State(theme="night"))
    assert load_state(path) == State(theme="night")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["state.toml"]


def test_a_forgotten_value_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state.toml"
    save_state(path, State(theme="night"))
    save_state(path, State())
    assert path.read_text() == ""


def test_keys_of_another_version_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "state.toml"
    path.write_text('theme = "day"\nmarks = ["a"]\n[view]\nsort = 1\n')
    assert load_state(path) == State(theme="day")
    save_state(path, State(theme="night"))
    assert tomllib.loads(path.read_text()) == {"theme": "night", "marks": ["a"], "view": {"sort": 1}}


@pytest.mark.parametrize("broken", [b"theme = ", b"\xff\xfe", b"theme = 3\n", b"# " + b"x" * (2 << 20)])
def test_a_broken_file_is_told_once_and_moved_aside(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "state.toml"
    path.write_bytes(broken)
    with pytest.raises(StateError, match=r"broken .* moved to state\.toml\.broken-1, using defaults"):
        load_state(path)
    assert load_state(path) == State()
    assert (tmp_path / "state.toml.broken-1").read_bytes() == broken
    path.write_bytes(b"again = ")
    save_state(path, State(theme="night"))
    assert load_state(path) == State(theme="night")
    assert (tmp_path / "state.toml.broken-2").read_bytes() == b"again = "


def test_a_file_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.toml"
    path.mkdir()
    with pytest.raises(StateError, match="can't be read"):
        load_state(path)
    with pytest.raises(StateError, match="can't be read"):
        save_state(path, State(theme="night"))
    assert path.is_dir()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="can't be"):
        save_state(tmp_path / "file" / "state.toml", State(theme="night"))


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.toml"
    save_state(path, State(theme="day"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError, match="No space left on device"):
        save_state(path, State(theme="night"))
    assert load_state(path) == State(theme="day")
    assert os.listdir(tmp_path) == ["state.toml"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    link = tmp_path / "state.toml"
    link.symlink_to(tmp_path / "dotfiles" / "state.toml")
    save_state(link, State(theme="night"))
    assert link.is_symlink()
    assert load_state(tmp_path / "dotfiles" / "state.toml") == State(theme="night")


def test_it_lies_in_the_users_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_state_path() == tmp_path / "dflash-console" / "state.toml"
