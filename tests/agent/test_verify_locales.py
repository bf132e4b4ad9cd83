"""Paths of any bytes survive any locale of the login, the service or the interpreter, and are shown."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_console.agent.venvs.look import native, shown
from dflash_console.agent.venvs.reading import read_venv
from dflash_console.link.bundle import BOOT_COMMAND
from tests.agent.environments import SPEC, make_venv, pythons
from tests.agent.test_verify_find_spec import find_spec, home, package
from tests.agent.verify_loop import part, states

__all__ = ["home"]

NAMES = ["Prüfung – ж", "back\\slash \\xff", "tab\tnewline\n", os.fsdecode(b"latin-\xe9\xff")]
LOCALES: dict[str, dict[str, str]] = {
    "C": {"LC_ALL": "C"},
    "POSIX": {"LC_ALL": "POSIX"},
    "C without UTF-8": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "UTF-8": {"LC_ALL": "C.UTF-8"},
}


@pytest.fixture(params=NAMES, ids=ascii)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with an odd name."""
    path = tmp_path / str(request.param)
    path.mkdir()
    return path


@pytest.fixture(params=LOCALES)
def login(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A login with another locale: its own variables are those of whatever it starts."""
    for name, value in LOCALES[request.param].items():
        monkeypatch.setenv(name, value)
    return str(request.param)


def test_a_path_comes_back_as_it_was_sent(folder: Path) -> None:
    told = shown(str(folder))
    assert told.encode("utf-8")
    assert native(told) == str(folder)
    row = read_venv(told, "config", SPEC, [])
    assert row["venv"]["python"]["detail"] == "not a venv: no pyvenv.cfg"
    found = read_venv(str(folder), "found", SPEC, [])
    assert (found["venv"]["path"], found["real"]) == (told, str(folder))


@pytest.mark.usefixtures("login")
def test_an_environment_is_the_same_in_every_locale(folder: Path) -> None:
    # The module `venv` itself knows no such names.
    (library,) = {site.parent.name for site in [make_venv(folder.parent / "plain")]}
    (folder.parent / "plain").rename(folder / "venv")
    site = folder / "venv/lib" / library / "site-packages"
    tree = package(site)
    (site / "sglang/größe.py").write_text("x = 1\n")
    venv = Path(shown(str(folder / "venv")))
    found, facts = part("files", venv)
    assert found["origin"].state == "pass", found["origin"]
    assert "origin" not in states(found)
    assert native(facts["origin"]) == f"{tree}/__init__.py"
    check = find_spec(venv)
    assert check.state == "pass", check
    (tree / "srt/speculative/dflash_info.py").write_text("x = (\n")
    assert "does not compile" in find_spec(venv).detail
    (tree / "srt/__init__.py").write_text("raise ValueError('größe')\n")
    broken = find_spec(venv)
    assert broken.detail.startswith("sglang.srt does not import: ValueError: größe (")
    assert broken.detail.endswith("srt/__init__.py:1)")


PROGRAM = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from dflash_console.agent.verify.files import look
from dflash_console.agent.verify.find_spec import look as ask
modules = [["sglang.srt.speculative.dflash_info"]]
venv = sys.argv[1].encode("utf-8", "surrogateescape").decode("utf-8")
answer = look(venv, "sglang", modules, ("", [], {{}}), 30.0)[0]
states = {{check["name"]: check["state"] for check in answer["checks"]}}
print(json.dumps([states, answer["facts"], ask(venv, "sglang", modules, 30.0)]))
"""


@pytest.mark.parametrize("minor", list(pythons()))
def test_the_agents_own_locale_may_be_any(tmp_path: Path, home: Path, minor: str) -> None:
    site = make_venv(tmp_path / "ж" / "venv")
    package(site)
    for variables in LOCALES.values():
        done = subprocess.run(
            [pythons()[minor], "-I", "-S", "-c", PROGRAM, str(tmp_path / "ж" / "venv")],
            env={"PATH": os.environ["PATH"], "HOME": str(home), **variables},
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr.decode()
        assert b"\\ud" not in done.stdout.lower()
        told, facts, check = json.loads(done.stdout)
        assert (told["origin"], check["state"]) == ("pass", "pass"), (variables, check)
        assert facts["origin"] == f"{site}/sglang/__init__.py"


@pytest.mark.skipif(shutil.which("localedef") is None, reason="needs localedef")
def test_a_login_in_latin_1_reads_the_same_names(tmp_path: Path, home: Path) -> None:
    locales = tmp_path / "locales"
    locales.mkdir()
    made = ["localedef", "--no-archive", "-i", "en_US", "-f", "ISO-8859-1", str(locales / "en_US.ISO-8859-1")]
    subprocess.run(made, capture_output=True, check=False, timeout=60)
    assert list(locales.iterdir())
    site = make_venv(tmp_path / "ж" / "venv")
    package(site)
    (site / "sglang/größe.py").write_text("x = (\n")
    program = PROGRAM.replace("sys.argv[1].encode", f"{str(tmp_path / 'ж' / 'venv')!r}.encode")
    program = program.replace("print(", "print(sys.flags.utf8_mode, json.dumps(answer['checks']))\nprint(")
    source = program.encode()
    done = subprocess.run(
        ["sh", "-c", BOOT_COMMAND],
        input=f"{sys.executable}\n{len(source)}\n".encode() + source,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LOCPATH": str(locales),
            "LC_ALL": "en_US.ISO-8859-1",
        },
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    *_, first, last = done.stdout.decode("ascii").strip().split("\n")
    assert first.startswith("1 ")
    (record,) = (check for check in json.loads(first[2:]) if check["name"] == "record")
    assert record["detail"].startswith(f"damaged: {site}/sglang/größe.py does not compile: ")
    told, facts, check = json.loads(last)
    assert (told["origin"], check["state"]) == ("pass", "pass"), check
    assert facts["origin"] == f"{site}/sglang/__init__.py"
