"""What a unit's command line comes to once systemd has filled in its variables, and what keeps it from starting at
all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dflash_console.agent.verify.command_line import expanded, told_by
from tests.agent.test_verify_find_spec import package
from tests.agent.test_verify_service import NAME, Units, told, units, venv, verify
from tests.agent.verify_loop import part

__all__ = ["units", "venv"]

SLEEPS = "import time\nprint('up', flush=True)\ntime.sleep(1000)\n"
RETITLED = (
    """
with open("/proc/self/stat") as file:
    words = file.read().rpartition(")")[2].split()
start, end = int(words[45]), int(words[46])
with open("/proc/self/mem", "r+b", buffering=0) as memory:
    memory.seek(start)
    memory.write(b"sglang::server".ljust(end - start, bytes(1)))
"""
    + SLEEPS
)
"""Overwrites its command line, as setproctitle does."""


@pytest.fixture
def shadow(tmp_path: Path) -> Path:
    """A folder with another package of that name in it."""
    package(tmp_path / "shadow")
    return tmp_path / "shadow"


# ---- words


@pytest.mark.parametrize(
    ("words", "options", "script", "module"),
    [
        (["python", "-m", "sglang.serve", "-I"], [], "", "sglang.serve"),
        (["python", "-sE", "-mx"], ["-s", "-E"], "", "x"),
        (["python", "-Im", "x"], ["-I"], "", "x"),
        (["python", "-X", "dev", "-W", "error", "-u", "run.py", "-I"], ["-X", "dev"], "run.py", ""),
        (["python", "-Xdev", "-Werror", "/x/run.py"], ["-X", "dev"], "/x/run.py", ""),
        (["python", "--check-hash-based-pycs", "never", "/x/run.py"], [], "/x/run.py", ""),
        (["python", "-c", "/x/run.py"], [], "", ""),
        (["python", "-"], [], "", ""),
        (["python", "-m"], [], "", ""),
        (["python"], [], "", ""),
    ],
)
def test_a_pythons_command_line_tells_options_script_and_module(
    words: list[str], options: list[str], script: str, module: str
) -> None:
    told = told_by(words)
    assert (told.options, told.script, told.module) == (options, script, module)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("python $O -m x", "python -I -s -m x"),
        ("python $NONE ${NONE}x $A", "python x a b"),
        ("python ${A}", "python a b|"),
        ("env X=$O ${V}/bin/python", "env X=$O /v/bin/python"),
        ("python $$A $$", "python $A $"),
        ("/bin/sh -c exec $O ${V}/bin/python $$V $V/x", "/bin/sh -c exec $O /v/bin/python $V $V/x"),
        ("python ${V:-x} ${1} $1", "python ${V:-x} ${1} $1"),
    ],
)
def test_variables_are_filled_in_as_systemd_does(text: str, expected: str) -> None:
    environment = {"O": "-I -s", "A": "a 'b'" if "'" in text else "a b", "V": "/v"}
    found = expanded(text.split(), environment)
    assert " ".join(found) == expected.rstrip("|")
    assert ("a b" in found) == expected.endswith("|")


# ---- what it comes to


def test_an_environment_that_a_variable_of_the_unit_names_is_found(units: Units, venv: Path) -> None:
    named = f"VENV={venv}"
    for command in (
        "/usr/bin/env ${VENV}/bin/python -m sglang.serve",
        "/bin/sh -c exec ${VENV}/bin/python -m sglang.serve",
        "/bin/sh -c exec $$VENV/bin/python -m sglang.serve",
    ):
        units.say(command, Environment=named)
        assert told(venv).state == "pass", told(venv)
    units.say("/usr/bin/env ${VENV}/bin/python -m sglang.serve", Environment="VENV=/other/venv")
    assert told(venv).state == "fail"
    assert told(venv).detail == f"starts /other/venv, not this one ({venv})"
    units.say("/bin/sh -c $(choose) ${VENV}/bin/python", Environment=named)
    assert told(venv).state == "unknown"


def test_options_and_scripts_that_variables_name_decide_over_what_is_imported(
    units: Units, venv: Path, shadow: Path
) -> None:
    (shadow / "run.py").write_text("x = 1\n")
    command = f"{venv}/bin/python $OPTIONS -m sglang.serve"
    units.say(command, WorkingDirectory=str(shadow))
    assert "the working directory" in told(venv).detail
    units.say(command, WorkingDirectory=str(shadow), Environment="OPTIONS=-I")
    assert told(venv).state == "pass"
    units.say(f"{venv}/bin/python ${{PLACE}}/run.py", Environment=f"PLACE={shadow}")
    assert told(venv).state == "fail"
    assert f"imports {shadow}/sglang/__init__.py" in told(venv).detail


def test_a_relative_script_of_a_running_unit_is_one_of_its_working_directory(
    units: Units, venv: Path, shadow: Path
) -> None:
    (shadow / "run.py").write_text(SLEEPS)
    units.start(str(venv / "bin/python"), "run.py", cwd=shadow)
    assert told(venv).state == "fail"
    assert f"imports {shadow}/sglang/__init__.py" in told(venv).detail


@pytest.mark.parametrize("is_archive", [False, True])
def test_a_folder_or_an_archive_that_is_run_comes_first_itself(
    units: Units, venv: Path, shadow: Path, *, is_archive: bool
) -> None:
    import zipfile

    main = shadow / "__main__.py"
    main.write_text("x = 1\n")
    if is_archive:
        with zipfile.ZipFile(shadow / "app", "w") as archive:
            archive.write(main, "__main__.py")
    units.say(f"{venv}/bin/python {shadow / 'app' if is_archive else shadow}")
    check = told(venv)
    assert (check.state == "pass") is is_archive, check


def test_a_process_that_overwrote_its_command_line_is_known_by_its_unit(
    units: Units, venv: Path, tmp_path: Path, shadow: Path
) -> None:
    (tmp_path / "run.py").write_text(RETITLED)
    pid = units.start(str(venv / "bin/python"), str(tmp_path / "run.py"), "sglang")
    assert Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sglang::server\0")
    assert told(venv).state == "pass", told(venv)
    (shadow / "run.py").write_text(RETITLED)
    units.start(str(venv / "bin/python"), str(shadow / "run.py"), "sglang")
    assert f"imports {shadow}/sglang/__init__.py" in told(venv).detail


def test_the_module_that_a_unit_starts_has_to_be_there(units: Units, venv: Path, site: Path) -> None:
    command = f"{venv}/bin/python -m sglang.gone"
    units.say(command)
    assert (told(venv).state, told(venv).detail.partition(": ")[2]) == ("fail", "missing: gone")
    (site / "sglang/gone.py").write_text("x = (\n")
    assert "sglang/gone.py does not compile" in told(venv).detail
    (site / "sglang/gone.py").write_text("x = 1\n")
    assert told(venv).state == "pass"
    units.say(f"{venv}/bin/python -m uvicorn sglang:app")
    assert told(venv).state == "pass"


# ---- what will not start


def test_a_program_that_is_not_there_will_not_start(units: Units, venv: Path) -> None:
    script = venv / "bin/sglang"
    units.say(f"{script} serve")
    for is_home in (True, False):
        check = verify(venv, is_home=is_home)
        assert check is not None
        assert (check.state, check.detail) == ("fail", f"will not start: {script} is not there")
    script.write_text(f"#!{venv}/bin/python\nimport sys\n")
    script.chmod(0o644)
    assert told(venv).detail == f"will not start: {script} may not be executed (mode 0644)"
    script.chmod(0o755)
    assert told(venv).state == "pass"
    units.say(f"{venv}/bin/python {venv}/gone.py")
    assert told(venv).detail == f"will not start: {venv}/gone.py is not there"


def test_what_may_be_there_for_the_unit_alone_is_not_said_to_be_gone(units: Units, venv: Path) -> None:
    script = venv / "bin/sglang"
    units.say(f"{script} serve", RootDirectory="/srv/root")
    assert told(venv).state == "unknown"
    units.say(f"{script} serve", BindReadOnlyPaths=f"/srv/bin:{venv}/bin")
    assert told(venv).state == "unknown"
    units.say(f"{script} serve", ActiveState="active")
    assert told(venv).state == "unknown"


def test_a_unit_that_systemd_refuses_will_not_start(units: Units, venv: Path) -> None:
    error = 'org.freedesktop.systemd1.BadUnitSetting "Unit has a bad unit setting."'
    units.say(f"{venv}/bin/python -m sglang.serve", LoadState="bad-setting", LoadError=error)
    assert told(venv).state == "fail"
    words = "will not start: systemd refuses it (bad-setting): Unit has a bad unit setting."
    assert told(venv).detail == words


def test_a_program_that_starts_another_one_and_is_not_known_is_unknown(units: Units, venv: Path) -> None:
    wrapper = venv.parent / "wrapper"
    wrapper.write_bytes(b"\x7fELF")
    wrapper.chmod(0o755)
    units.say(f"{wrapper} --quiet {venv}/bin/python -m sglang.serve")
    for is_home in (True, False):
        check = verify(venv, is_home=is_home)
        assert check is not None
        assert check.state == "unknown"
        assert check.detail == f"can't tell which Python it starts: not a Python program: {wrapper}"
    other = part("service", make_other(venv), units=[NAME], is_package_venv=True)[0]
    assert other == {}


def test_a_unit_that_only_names_the_environment_is_none_of_its(units: Units, venv: Path) -> None:
    units.say(f"/nowhere/backup {venv}/ {venv}/bin/python")
    assert verify(venv, is_home=False) is None
    units.say(f"/bin/true {venv}/")
    assert verify(venv, is_home=False) is None


def make_other(venv: Path) -> Path:
    """An environment beside one, by a longer name."""
    from tests.agent.environments import make_venv

    other = Path(os.fspath(venv) + "-2")
    package(make_venv(other))
    return other
