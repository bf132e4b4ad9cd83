"""Environments are found in the usual places, within bounds, whatever lies there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dflash_console.agent.venvs import search as venv_search
from dflash_console.agent.venvs.search import find_venvs, remote_mounts


def env(path: Path) -> str:
    path.mkdir(parents=True)
    (path / "pyvenv.cfg").write_text("")
    return str(path)


def found(home: Path, *places: Path | str, remote: list[str] | None = None) -> list[str]:
    return find_venvs(remote or [], str(home), [str(place) for place in places]).venvs


def test_environments_two_folders_deep_are_found_and_no_deeper(tmp_path: Path) -> None:
    home = tmp_path / "home"
    expected = [env(home / ".venv"), env(home / "a"), env(home / "project" / ".venv")]
    env(home / "project" / "deeper" / "venv")
    env(home / "a" / "inside-another")
    (home / "conda.txt").write_text("")
    assert found(home) == expected


def test_collections_of_environments_are_found(tmp_path: Path) -> None:
    expected = [
        env(tmp_path / ".virtualenvs" / "one"),
        env(tmp_path / ".local" / "share" / "virtualenvs" / "two"),
        env(tmp_path / ".cache" / "pypoetry" / "virtualenvs" / "three"),
        env(tmp_path / ".pyenv" / "versions" / "four"),
    ]
    env(tmp_path / ".cache" / "pre-commit")
    assert sorted(found(tmp_path)) == sorted(expected)


def test_conda_environments_are_found_in_their_base(tmp_path: Path) -> None:
    base = tmp_path / "miniconda3"
    (base / "conda-meta").mkdir(parents=True)
    (base / "envs" / "sglang" / "conda-meta").mkdir(parents=True)
    (base / "envs" / "notes").mkdir(parents=True)
    assert found(tmp_path) == [str(base), str(base / "envs" / "sglang")]


def test_a_star_names_every_folder_and_each_environment_comes_once(tmp_path: Path) -> None:
    one, two = env(tmp_path / "home" / "bob" / "venv"), env(tmp_path / "home" / "eve" / "venv")
    (tmp_path / "link").symlink_to(tmp_path / "home" / "bob")
    assert found(tmp_path / "link", tmp_path / "home/*", tmp_path / "home/bob", "/no/such/*", "/nowhere") == [
        one,
        two,
    ]


def test_links_are_not_followed_and_loops_do_no_harm(tmp_path: Path) -> None:
    env(tmp_path / "elsewhere" / "venv")
    home = tmp_path / "home"
    (home / "deep").mkdir(parents=True)
    (home / "link").symlink_to(tmp_path / "elsewhere")
    (home / "deep" / "loop").symlink_to(home)
    (home / "self").symlink_to("self")
    assert found(home) == []


def test_hostile_names_do_no_harm(tmp_path: Path) -> None:
    for name in (b"\x1b[2J", b"\xff\xfe", b"a\nb", "\u202e".encode()):
        os.makedirs(os.path.join(os.fsencode(tmp_path), name))
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)), "pyvenv.cfg").write_text("")
    assert len(found(tmp_path)) == 4


def test_a_mount_of_another_machine_is_not_entered(tmp_path: Path) -> None:
    near = env(tmp_path / "near")
    env(tmp_path / "far" / "venv")
    env(tmp_path / "project" / "mount")
    remote = [str(tmp_path / "far"), str(tmp_path / "project" / "mount")]
    assert found(tmp_path, tmp_path / "far", remote=remote) == [near]
    assert found(tmp_path, remote=[str(tmp_path)]) == []


def test_one_environment_beyond_the_limit_is_not_shown_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [env(tmp_path / f"{number}" / "venv") for number in range(7)]
    monkeypatch.setattr(venv_search, "VENVS_LIMIT", 7)
    assert vars(find_venvs([], str(tmp_path), [])) == {"venvs": expected, "note": ""}
    env(tmp_path / "8" / "venv")
    cut = find_venvs([], str(tmp_path), [])
    assert cut.venvs == expected
    assert cut.note == "1 more venvs not shown (limit 7): name them in the config"


def test_a_search_that_ends_at_its_bound_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        env(tmp_path / f"{number:02}" / "venv")
    every = 30 + 2 * 30
    monkeypatch.setattr(venv_search, "ENTRIES_LIMIT", every)
    assert find_venvs([], str(tmp_path), []).note == ""
    monkeypatch.setattr(venv_search, "ENTRIES_LIMIT", 33)
    cut = find_venvs([], str(tmp_path), [])
    assert len(cut.venvs) <= 3
    assert cut.note == "the search for venvs ended after 33 entries: name others in the config"


def test_homes_beyond_the_bound_are_not_even_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        (tmp_path / "home" / str(number)).mkdir(parents=True)
    monkeypatch.setattr(venv_search, "ENTRIES_LIMIT", 8)
    assert find_venvs([], str(tmp_path / "none"), [str(tmp_path / "home/*")]).note


def test_filesystems_of_other_machines_are_told_by_kind() -> None:
    mounts = [
        ("/", "9p"),
        ("/a", "nfs4"),
        ("/b", "ext4"),
        ("/c", "fuse.sshfs"),
        ("/d", "fuseblk"),
        ("/e", "fuse.fuse-overlayfs"),
        ("/f", "autofs"),
        ("/g", "tmpfs"),
    ]
    assert remote_mounts(mounts) == ["/a", "/c", "/f"]
