"""Which Python an environment is, and in whose words it is told when it is none."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from dflash_console.agent.venvs.interpreter import Interpreter, prefix_of, read_interpreter
from dflash_console.agent.venvs.look import Look
from tests.agent.environments import make_venv

VERSION = ".".join(map(str, sys.version_info[:3]))
MINOR = f"3.{sys.version_info.minor}"


def read(folder: Path) -> Interpreter:
    found = read_interpreter(str(folder), Look())
    assert isinstance(found, Interpreter), found
    return found


def fault(folder: Path) -> dict[str, str]:
    found = read_interpreter(str(folder), Look())
    assert isinstance(found, dict), found
    return found


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    make_venv(tmp_path / "venv")
    return tmp_path / "venv"


def test_a_real_venv_is_read(venv: Path) -> None:
    found = read(venv)
    assert (found.python, found.minor) == (VERSION, sys.version_info[:2])
    assert found.sites == [f"{venv}/lib/python{MINOR}/site-packages"]
    assert found.system_sites == []


@pytest.mark.parametrize(
    ("config", "python"),
    [
        (f"version_info = {VERSION}.final.0\n", VERSION),
        (f"home=/usr/bin\nimplementation = CPython\nVersion_Info = {VERSION}\n", VERSION),
        (f"version = {MINOR}.0rc1\n", f"{MINOR}.0rc1"),
        (f"version = {MINOR}\n", MINOR),
        ("home = /usr/bin\n", MINOR),
        ("", MINOR),
        ("\0\udcff = \0\n=\n===\n", MINOR),
    ],
)
def test_the_version_is_read_as_each_tool_writes_it(venv: Path, config: str, python: str) -> None:
    (venv / "pyvenv.cfg").write_bytes(config.encode("utf-8", "surrogateescape"))
    assert read(venv).python == python


def test_a_venv_whose_interpreter_was_upgraded_under_it_is_told(venv: Path) -> None:
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.7.2\n")
    found = read(venv)
    detail = f"made for 3.7, but its interpreter is {MINOR} now"
    assert found.python == {"missing": "mismatch", "detail": detail}


def test_a_copied_interpreter_takes_the_version_from_the_config(venv: Path) -> None:
    shutil.rmtree(venv / "bin")
    (venv / "bin").mkdir()
    shutil.copy(os.path.realpath(sys.executable), venv / "bin" / "python")
    assert read(venv).python == VERSION


def test_what_is_no_venv_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    (tmp_path / "loop").symlink_to("loop")
    assert fault(tmp_path / "none") == {"missing": "not_found", "detail": "no such folder"}
    assert fault(tmp_path / "file" / "x") == {"missing": "not_found", "detail": "no such folder"}
    assert fault(tmp_path / "empty") == {"missing": "not_found", "detail": "not a venv: no pyvenv.cfg"}
    assert fault(tmp_path / "file") == {"missing": "not_found", "detail": "not a folder"}
    assert fault(tmp_path / "dangling")["detail"] == f"a link to {tmp_path / 'gone'}, which is not there"
    assert fault(tmp_path / "loop")["missing"] == "error"
    assert fault(Path("/proc/1/nul\0")) == {"missing": "error", "detail": os.strerror(22)}


def test_a_folder_that_may_not_be_entered_is_told(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.stat

    def refuse(path: str, **more: object) -> os.stat_result:
        if str(path).startswith(str(venv)):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "stat", refuse)
    assert fault(venv) == {"missing": "permission", "detail": "Permission denied"}


def test_a_broken_interpreter_is_told_and_the_packages_are_still_there(venv: Path) -> None:
    for link in (venv / "bin").iterdir():
        link.unlink()
    assert read(venv).python == {
        "missing": "not_found",
        "detail": "no interpreter: neither bin/python nor bin/python3",
    }
    (venv / "bin" / "python").symlink_to("/usr/bin/python3.5")
    found = read(venv)
    assert found.python == {
        "missing": "not_found",
        "detail": "broken interpreter link: bin/python -> /usr/bin/python3.5, which is not there",
    }
    assert (found.minor, len(found.sites)) == (sys.version_info[:2], 1)
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").symlink_to("python")
    assert "which is a loop" in str(read(venv).python)
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").write_text("")
    assert read(venv).python == {"missing": "permission", "detail": "bin/python may not be executed"}


def test_a_conda_environment_is_one(tmp_path: Path) -> None:
    env = tmp_path / "env"
    (env / "conda-meta").mkdir(parents=True)
    (env / "conda-meta" / "history").write_text("")
    (env / "conda-meta" / "python-3.10.14-h955ad1f_0.json").write_text("{}")
    (env / "lib" / "python3.10" / "site-packages").mkdir(parents=True)
    (env / "lib" / "python3.10" / "os.py").write_text("")
    (env / "bin").mkdir()
    (env / "bin" / "python3.10").write_text("")
    (env / "bin" / "python3.10").chmod(0o755)
    (env / "bin" / "python").symlink_to("python3.10")
    found = read(env)
    assert (found.python, found.sites) == ("3.10.14", [f"{env}/lib/python3.10/site-packages"])


def test_the_prefix_of_a_python_without_a_venv_is_read_too() -> None:
    base = Path(sys.base_prefix)
    found = read(base)
    assert (found.python, found.minor) == (MINOR, sys.version_info[:2])
    assert str(base / "lib" / f"python{MINOR}" / "site-packages") in found.sites


def test_a_python_built_with_lib64_has_it_first(tmp_path: Path) -> None:
    base, env = tmp_path / "base", tmp_path / "env"
    for folder in (
        base / "lib64/python3.12",
        env / "lib64/python3.12/site-packages",
        base / "bin",
        env / "bin",
    ):
        folder.mkdir(parents=True)
    (env / "lib/python3.12/site-packages").mkdir(parents=True)
    (base / "lib64/python3.12/os.py").write_text("")
    (env / "pyvenv.cfg").write_text(f"home = {base}/bin\nversion = 3.12.4\n")
    assert read(env).sites == [f"{env}/lib64/python3.12/site-packages", f"{env}/lib/python3.12/site-packages"]
    (base / "lib64/python3.12/os.py").unlink()
    assert read(env).sites == [f"{env}/lib/python3.12/site-packages"]


def test_a_free_threaded_python_has_folders_of_its_own(tmp_path: Path) -> None:
    env = tmp_path / "env"
    (env / "lib/python3.13t/site-packages").mkdir(parents=True)
    (env / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.13.1\n")
    found = read(env)
    assert (found.library, found.sites) == ("python3.13t", [f"{env}/lib/python3.13t/site-packages"])


def test_an_interpreters_folder_is_found_as_cpython_does(venv: Path, tmp_path: Path) -> None:
    assert prefix_of(str(venv / "bin" / "python3")) == str(venv)
    assert prefix_of(f"{venv}/") == str(venv)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(venv / "bin" / "python")
    assert prefix_of(str(tmp_path / "bin" / "python")) == os.path.realpath(sys.base_prefix)
    assert prefix_of("/no/such/bin/python3") == "/no/such"
