"""Whatever lies where a file of an environment or of a unit should be: it is told, and nothing waits for it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_console.agent import machine
from dflash_console.agent.machine import HostSection
from dflash_console.agent.regular import read_regular
from dflash_console.agent.units.command import SCRIPT_LIMIT, find_interpreter
from dflash_console.agent.units.files import FileWatch, installed_units
from dflash_console.agent.venvs import look as look_module
from dflash_console.agent.venvs import section as venvs
from dflash_console.agent.venvs.look import Look
from dflash_console.model import Missing, Package
from tests.agent.dead_mount import dead_mount
from tests.agent.environments import make_venv
from tests.agent.test_packages import read
from tests.agent.venv_loop import Loop, home, loop
from tests.wheels import lay

__all__ = ["home", "loop"]

HUGE = 1 << 30


def _huge(path: Path) -> None:
    path.unlink(missing_ok=True)  # it may be a second name of what all tests share
    with path.open("wb") as file:
        file.truncate(HUGE)


def _secret(path: Path) -> None:
    path.write_text("Version: 1\n")
    path.chmod(0)


KINDS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a gigabyte of zeros": _huge,
    "no text": lambda path: path.write_bytes(bytes(range(256)) * 64),
    "one that may not be read": _secret,
    "a link to its own folder": lambda path: path.symlink_to("."),
}
FILES = (
    "pyvenv.cfg",
    "bin/python",
    "SITE/sglang/__init__.py",
    "SITE/sglang/_version.py",
    "SITE/sglang/version.py",
    "SITE/sglang/sglang",
    "SITE/sglang/srt/speculative/dflash_worker.py",
    "SITE/sglang-0.5.13.post1.dist-info/METADATA",
    "SITE/sglang-0.5.13.post1.dist-info/RECORD",
    "SITE/sglang-0.5.13.post1.dist-info/direct_url.json",
    "SITE/sglang-9.egg-info",
    "SITE/odd.pth",
    "SITE/odd.egg-link",
    "SITE/torch/version.py",
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree") / "venv"
    site = make_venv(folder)
    lay("0.5.13.post1", site)
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").touch()
    return folder


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("name", FILES)
def test_whatever_stands_in_a_files_place_the_environment_is_told(
    tree: Path, name: str, make: Callable[[Path], object]
) -> None:
    (site,) = tree.glob("lib/python3.*/site-packages")
    path = Path(name.replace("SITE", str(site))) if "SITE" in name else tree / name
    away = tree.parent / "away"
    if os.path.lexists(path):
        path.rename(away)
    try:
        make(path)
        row = read(tree)
    finally:
        path.rmdir() if stat.S_ISDIR(path.lstat().st_mode) else path.unlink()
        if os.path.lexists(away):
            away.rename(path)
    if name != "pyvenv.cfg":
        assert isinstance(row.python, str | Missing)
        assert isinstance(row.package, Package)
        # The tree's own version comes from whichever of its files has one.
        assert row.package.name == "sglang"
    elif not isinstance(row.python, str):
        assert row.python.missing in ("error", "not_found", "permission")
        assert row.python.detail


def test_a_pyvenv_cfg_that_is_no_file_is_not_called_absent(tmp_path: Path) -> None:
    make_venv(tmp_path / "venv")
    (tmp_path / "venv" / "pyvenv.cfg").unlink()
    os.mkfifo(tmp_path / "venv" / "pyvenv.cfg")
    assert read(tmp_path / "venv").python == Missing("error", "pyvenv.cfg is a FIFO, not a file")


def test_what_is_read_only_in_part_is_said(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_module, "NAMES_LIMIT", 40)
    site = make_venv(tmp_path / "venv")
    lay("0.5.9", site)
    loop.configure(tmp_path / "venv")
    loop.first()
    assert loop.section.note == ""
    for number in range(40):
        (site / f"x{number}").touch()
    loop.soon()
    loop.until(lambda rows: loop.section.note, "the folder's note")
    assert loop.section.note == f"only partly read, being too large: {site}"
    (site / "long.pth").write_text("# a line\n" * 1001)
    _huge(site / "sglang" / "_version.py")
    loop.soon()
    loop.until(lambda rows: "more" in loop.section.note, "the files' note")
    for name in os.listdir(site):
        if name.startswith("x"):
            (site / name).unlink()
    loop.soon()
    loop.until(lambda rows: "long.pth" in loop.section.note, "the .pth file's note")


def test_a_header_before_a_gigabyte_is_read_and_nothing_is_said(tmp_path: Path) -> None:
    path = tmp_path / "METADATA"
    path.write_text("Version: 1\n")
    os.truncate(path, HUGE)
    look = Look()
    text = look.text(str(path), 100, is_head=True)
    assert text is not None
    assert (text[:11], len(text), look.cut) == ("Version: 1\n", 100, [])
    assert look.text(str(path), 100) == text
    assert look.cut == [str(path)]


def test_a_folder_with_as_many_entries_as_are_read_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_module, "NAMES_LIMIT", 3)
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(4):
        look = Look()
        assert (len(look.names(str(folder))), look.cut) == (number, [])
        (folder / f"{number}").touch()
    look = Look()
    assert (len(look.names(str(folder))), look.cut) == (3, [str(folder)])


def test_a_package_on_a_dead_mount_hangs_its_own_environment_only(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venvs, "STALL", 4.0)
    site = make_venv(tmp_path / "one")
    make_venv(tmp_path / "two")
    (site / "sglang-1.dist-info").mkdir()
    (site / "sglang").mkdir()
    loop.configure(tmp_path / "one", tmp_path / "two")
    with dead_mount(site / "sglang-1.dist-info"):
        one, two = loop.first()
        assert isinstance(one.python, Missing)
        assert one.python.missing == "hung"
        assert isinstance(two.python, str)


# ---- units


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_whatever_stands_in_a_unit_files_place_it_is_only_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object]
) -> None:
    make(tmp_path / "x.service")
    for name in (b"a\nb.service", b"\xff.service", b"x@.service", b".service"):
        with open(os.path.join(os.fsencode(tmp_path), name), "wb"):
            pass
    (tmp_path / "loop").symlink_to(".")
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("it was opened"))
    assert installed_units([str(tmp_path), str(tmp_path / "x.service")], ["*"]) == ["x.service"]
    watch = FileWatch()
    watch.watch([str(tmp_path), str(tmp_path / "x.service")])
    assert not watch.has_changed()


@pytest.mark.parametrize("shape", ["{path}", "/bin/sh {path}", "/usr/bin/env -S {path}"])
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_whatever_a_unit_starts_is_a_reason_and_not_a_wait(
    tmp_path: Path, make: Callable[[Path], object], shape: str
) -> None:
    make(tmp_path / "serve")
    command = shape.format(path=tmp_path / "serve")
    told = find_interpreter(command.split()[0], command, {})
    assert isinstance(told, dict)
    assert told["missing"] in ("error", "not_found", "permission", "unsupported")


def test_a_shell_script_is_trusted_only_when_it_was_read_whole(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    line = "exec /opt/a/bin/python x.py\n"
    script.write_text(line + "#" * (SCRIPT_LIMIT - len(line)))
    command = f"/bin/sh {script}"
    assert find_interpreter("/bin/sh", command, {}) == "/opt/a/bin/python"
    with script.open("a") as file:
        file.write("\nexec /opt/b/bin/python x.py\n")
    told = find_interpreter("/bin/sh", command, {})
    assert isinstance(told, dict)
    assert told["detail"] == f"started through a shell script of more than {SCRIPT_LIMIT} bytes: {script}"


# ---- the machine


def test_a_pipe_in_place_of_the_systems_name_or_users_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    real = read_regular
    pipe = str(tmp_path / "pipe")
    monkeypatch.setattr(
        machine,
        "read_regular",
        lambda path, limit: real(pipe if path.startswith(("/etc", "/usr")) else path, limit),
    )
    section = HostSection()
    section.tick(1.0)
    assert isinstance(section.value, dict)
    assert (section.value["system"], bool(section.value["user"])) == ("", True)
