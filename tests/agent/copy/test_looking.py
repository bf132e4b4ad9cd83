"""What a look says of every kind of place that a package may be in, and that it changes nothing there."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dflash_console.agent.copy import looking
from dflash_console.copies import Look
from tests.agent.copy.trees import HeedlessPipe, copying, expected, package
from tests.agent.environments import make_venv, pythons


def look(venv: Path, before: looking.Seen | None = None) -> tuple[Look, looking.Seen]:
    """A look in this process, validated as the console does."""
    seen = looking.look(str(venv), "sglang", HeedlessPipe(), before)
    return msgspec.convert(seen.look, Look, strict=True), seen


def snapshot(folder: Path) -> list[tuple[str, int, int, int, int]]:
    """All that a look could have changed; not the times of access."""
    found = []
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.lstat()
        found.append((str(path), status.st_ino, status.st_mode, status.st_size, status.st_ctime_ns))
    return found


def test_an_ordinary_package_is_whole_and_nothing_is_written(venv: Path, site: Path) -> None:
    package(site)
    before = snapshot(venv)
    found, seen = look(venv)
    assert snapshot(venv) == before
    assert (found.venv, found.site, found.state, found.problem) == (str(venv), str(site), "whole", "")
    assert (found.version, found.dist_version) == ("0.5.9", "0.5.9")
    assert found.dist_infos == ("sglang-0.5.9.dist-info",)
    assert seen.listing.entries == expected(site, "sglang", "sglang-0.5.9.dist-info")
    assert (found.files, found.size) == (6, sum(entry[2] for entry in seen.listing.entries))
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    code = "import sysconfig, platform; print(sysconfig.get_config_var('SOABI'), platform.libc_ver()[1])"
    asked = subprocess.run(
        [str(venv / "bin" / "python"), "-I", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert [found.soabi, found.glibc] == asked.stdout.split()
    assert found.is_writable
    assert found.is_same_filesystem
    assert not found.mount
    assert found.free > 0
    assert found.hard_linked == 0
    assert (found.lock, found.unsettled, found.provenance, found.backups) == (None, None, None, ())


def test_a_place_without_the_package_says_where_it_would_be_laid(venv: Path, site: Path) -> None:
    found, _ = look(venv)
    assert (found.state, found.site, found.files, found.tree) == ("absent", str(site), 0, "")
    assert found.stamp
    (site / "sglang-0.5.8.dist-info").mkdir()
    (site / "sglang-0.5.8.dist-info" / "METADATA").write_text("Name: sglang\nVersion: 0.5.8\n")
    left, seen = look(venv)
    assert (left.state, left.dist_infos) == ("absent", ("sglang-0.5.8.dist-info",))
    assert [entry[0] for entry in seen.listing.entries] == ["sglang-0.5.8.dist-info/METADATA"]
    assert left.stamp != found.stamp


@pytest.mark.parametrize("minor", list(pythons()))
def test_the_interpreter_is_told_without_being_run(tmp_path: Path, minor: str) -> None:
    package(make_venv(tmp_path / "venv", pythons()[minor]))
    found, _ = look(tmp_path / "venv")
    assert found.state == "whole"
    assert found.python.startswith(f"{minor}.")
    code = "import sysconfig; print(sysconfig.get_config_var('SOABI'))"
    asked = subprocess.run(
        [pythons()[minor], "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.soabi == asked.stdout.strip()


def test_a_namespaces_remains_are_told_and_listed(venv: Path, site: Path) -> None:
    (package(site) / "__init__.py").unlink()
    found, seen = look(venv)
    assert (found.state, found.problem) == ("namespace", f"a folder without __init__.py, {site}/sglang")
    assert seen.listing.entries == expected(site, "sglang", "sglang-0.5.9.dist-info")


def test_a_single_file_is_a_module(venv: Path, site: Path) -> None:
    (site / "sglang.py").write_text("x = 1\n")
    found, _ = look(venv)
    assert (found.state, found.problem) == ("module", f"a single file, {site}/sglang.py")


def test_an_editable_install_is_told_with_where_it_comes_from(venv: Path, site: Path, tmp_path: Path) -> None:
    package(tmp_path / "checkout" / "python")
    (site / "__editable__.sglang-0.5.9.pth").write_text(f"{tmp_path}/checkout/python\n")
    info = site / "sglang-0.5.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: sglang\nVersion: 0.5.9\n")
    record = {"url": f"file://{tmp_path}/checkout/python", "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(record))
    found, _ = look(venv)
    assert found.state == "editable"
    assert found.problem == f"an editable install, from {tmp_path}/checkout/python"


def test_a_package_of_another_folder_on_the_path_is_outside(venv: Path, site: Path, tmp_path: Path) -> None:
    package(tmp_path / "elsewhere")
    (site / "more.pth").write_text(f"{tmp_path}/elsewhere\n")
    found, _ = look(venv)
    assert found.state == "outside"
    assert f"{tmp_path}/elsewhere/sglang" in found.problem


def test_a_package_that_is_a_link_is_outside(venv: Path, site: Path, tmp_path: Path) -> None:
    package(tmp_path / "elsewhere")
    (site / "sglang").symlink_to(tmp_path / "elsewhere" / "sglang")
    found, _ = look(venv)
    assert found.state == "outside"
    assert found.problem == f"{site}/sglang is a link to {tmp_path}/elsewhere/sglang"


def test_a_site_packages_that_is_a_link_is_the_environments_own(
    venv: Path, site: Path, tmp_path: Path
) -> None:
    site.rename(tmp_path / "moved")
    site.symlink_to(tmp_path / "moved")
    package(site)
    found, seen = look(venv)
    assert found.state == "whole"
    assert seen.listing.entries == expected(site, "sglang", "sglang-0.5.9.dist-info")


def test_a_name_that_differs_in_case_is_another_package(venv: Path, site: Path) -> None:
    package(site, "Sglang")
    found, seen = look(venv)
    assert found.state == "absent"
    # A distribution's name has no case, so pip takes it for the same.
    assert found.dist_infos == ("Sglang-0.5.9.dist-info",)
    assert all(entry[0].startswith("Sglang-0.5.9.dist-info/") for entry in seen.listing.entries)


@pytest.mark.parametrize("what", ["nothing", "a file", "no venv", "no interpreter", "no site-packages"])
def test_what_is_no_environment_is_broken_and_says_why(
    tmp_path: Path, venv: Path, site: Path, what: str
) -> None:
    package(site)
    place = tmp_path / "other"
    words = "no such folder"
    if what == "a file":
        place.write_text("")
        words = "not a folder"
    elif what == "no venv":
        place.mkdir()
        words = "not a venv"
    elif what == "no interpreter":
        place = venv
        for link in ("python", "python3"):
            (venv / "bin" / link).unlink()
            (venv / "bin" / link).symlink_to("/no/python")
        words = "broken interpreter link"
    elif what == "no site-packages":
        place = venv
        site.rename(tmp_path / "gone")
        words = "site-packages"
    found, seen = look(place)
    assert found.state == "broken"
    assert words in found.problem
    # Its files can still be compared with others.
    assert bool(seen.listing.entries) == (what == "no interpreter")


def test_too_many_files_are_a_broken_package_with_words(
    venv: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(site)
    monkeypatch.setattr("dflash_console.agent.copy.walking.MOST_FILES", 3)
    found, _ = look(venv)
    assert found.state == "broken"
    assert "more than 3 files" in found.problem


def test_the_hashes_that_a_copy_left_behind_spare_the_reading(venv: Path, site: Path) -> None:
    folder = package(site)
    ours = venv / ".dflash-console"
    ours.mkdir()
    rows: list[list[Any]] = []
    for path in (folder / "__init__.py", folder / "srt" / "server.py", folder / "srt" / "run.sh"):
        status = path.stat()
        rows.append(
            [
                str(path.relative_to(site)),
                status.st_size,
                status.st_mode,
                status.st_mtime_ns,
                status.st_ctime_ns,
                status.st_ino,
                "ab" * 32,
            ]
        )
    rows[1][3] -= 1
    (ours / "manifest.json").write_text(json.dumps({"entries": rows}))
    later = rows[0][4] + 10**9
    os.utime(ours / "manifest.json", ns=(later, later))
    found, seen = look(venv)
    hashes = {entry[0]: entry[4] for entry in seen.listing.entries}
    real = {str(row[0]): row[4] for row in expected(site, "sglang")}
    assert hashes["sglang/__init__.py"] == hashes["sglang/srt/run.sh"] == "ab" * 32
    assert hashes["sglang/srt/server.py"] == real["sglang/srt/server.py"]
    # A manifest from before the files' last change proves nothing, and a broken one is no fault.
    os.utime(ours / "manifest.json", ns=(rows[0][4], rows[0][4]))
    assert {entry[0]: entry[4] for entry in look(venv)[1].listing.entries}.items() >= real.items()
    (ours / "manifest.json").write_text("][")
    assert look(venv)[0].tree != found.tree


def test_who_holds_the_lock_is_told_and_it_is_left_alone(venv: Path, site: Path) -> None:
    package(site)
    ours = venv / ".dflash-console"
    ours.mkdir(mode=0o700)
    lock = ours / "lock"
    text = json.dumps({"by": "kim@laptop", "since": 1e9, "what": "copy from ct129", "pid": 12})
    lock.write_text(text)
    assert look(venv)[0].lock is None
    with lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = snapshot(ours)
        held = look(venv)[0].lock
        assert held is not None
        assert (held.by, held.since, held.what, held.pid) == ("kim@laptop", 1e9, "copy from ct129", 12)
        assert snapshot(ours) == before
    assert look(venv)[0].lock is None
    with lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("minor", [minor for minor in pythons() if minor in ("3.8", "3.11", "3.13")])
@pytest.mark.parametrize("locale", ["C", "POSIX", "de_DE.ISO-8859-1"])
def test_paths_with_spaces_and_other_letters_are_found_in_every_locale(
    tmp_path: Path, minor: str, locale: str
) -> None:
    venv = tmp_path / "größe 模型 \u00df"
    site = make_venv(venv)
    folder = package(site)
    (folder / "größe 模型.py").write_text("x")
    env = {"PATH": os.environ["PATH"], "LC_ALL": locale, "LANG": locale}
    with copying(pythons()[minor], env=env) as client:
        found = client.look(venv)
        assert (found.venv, found.state) == (str(venv), "whole")
        assert not found.strange
        assert msgspec.to_builtins(client.entries) == expected(site, "sglang", "sglang-0.5.9.dist-info")
        assert len(client.send(range(len(client.entries)))) == 7
