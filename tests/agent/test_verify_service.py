"""What each unit would import: by its own user, folder, environment and interpreter, and whether it runs what lies
there. systemctl's words come from a file here; processes and users are real."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_console.agent.verify import outdated, service
from dflash_console.agent.verify.envfile import parse_environment_file
from dflash_console.verdict import Check
from tests.agent.driver import PATIENCE
from tests.agent.environments import make_venv
from tests.agent.test_verify_find_spec import package
from tests.agent.verify_loop import part
from tests.waiting import until_sync

NAME = "sglang-dflash.service"
SYSTEMCTL = """#!/bin/sh
for name do :; done
case "$*" in
*show-environment*) echo "FROM_MANAGER=yes";;
*"-p EnvironmentFiles "*) cat {folder}/files 2> /dev/null;;
*) cat "{folder}/$name" 2> /dev/null || printf 'Id=%s\\nLoadState=not-found\\n' "$name";;
esac
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


class Units:
    """What systemctl says of units, and the processes that run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def say(self, command: str, pid: int = 0, **properties: str) -> None:
        """Of the one unit, what `systemctl show` says."""
        program = command.split()[0]
        stamps = "start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0"
        start = f"{{ path={program} ; argv[]={command} ; ignore_errors=no ; {stamps} }}"
        told = {"Id": NAME, "LoadState": "loaded", "MainPID": str(pid), "ExecStart": start, **properties}
        lines = [f"{key}={value}" for key, value in told.items()]
        (self.folder / NAME).write_text("\n".join(lines) + "\n")

    def start(self, *command: str, cwd: str | Path = "/", env: dict[str, str] | None = None) -> int:
        """Starts a process as the unit's main one, and waits until it has come to its code; its pid."""
        environment = {"PATH": "/usr/bin:/bin", "HF_TOKEN": "hunter2", **(env or {})}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, cwd=cwd, start_new_session=True
        )
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        self.say(" ".join(command), process.pid)
        return process.pid


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Units]:
    folder = tmp_path / "systemctl"
    folder.mkdir()
    (folder / "systemctl").write_text(SYSTEMCTL.format(folder=folder))
    (folder / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    units = Units(folder)
    yield units
    for process in units.processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()


def lay(folder: Path) -> Path:
    """An environment with a package that can be started; its site-packages."""
    site = make_venv(folder)
    package(site)
    (site / "sglang/serve.py").write_text("import sys, time\nprint('up', flush=True)\ntime.sleep(1000)\n")
    return site


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    for parent in tmp_path.parents[:-1]:
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    lay(tmp_path / "venv")
    return tmp_path / "venv"


def verify(venv: Path, *, is_home: bool = True, limit: float = 60.0) -> Check | None:
    """The check of the one unit; None when there is none."""
    found, _ = part("service", venv, units=[NAME], is_package_venv=is_home, limit=limit)
    return found.get(f"service {NAME}")


def told(venv: Path, *, is_home: bool = True, limit: float = 60.0) -> Check:
    check = verify(venv, is_home=is_home, limit=limit)
    assert check is not None
    return check


# ---- running


def test_a_running_unit_that_imports_what_lies_there_passes(units: Units, venv: Path, site: Path) -> None:
    pid = units.start(str(venv / "bin/python"), "-m", "sglang.serve", cwd="/")
    check = told(venv, is_home=False)
    assert check.state == "pass", check
    assert check.detail.startswith(f"same origin: {site}/sglang/__init__.py; dflash_worker")
    assert any(line.startswith(f"process {pid} since ") for line in check.evidence)
    assert not any("hunter2" in line for line in check.evidence)


def test_a_unit_that_runs_what_lay_there_before_needs_a_restart(units: Units, venv: Path, site: Path) -> None:
    units.start(str(venv / "bin/python"), "-m", "sglang.serve", cwd="/")

    def is_old() -> bool:
        (site / "sglang/serve.py").write_text("x = 1\n")
        os.utime(site / "sglang/serve.py", (1, 1))
        check = told(venv)
        return check.state == "fail" and check.detail.startswith(
            "running the old package, restart needed: started "
        )

    until_sync(is_old, PATIENCE, "the change is later than the start")
    assert ", tree changed " in told(venv).detail


def test_bytecode_that_the_service_writes_is_no_change(
    units: Units, venv: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outdated, "MARGIN", 0.0)
    laid = (site / "sglang/serve.py").stat().st_ctime
    until_sync(lambda: time.time() > laid + 0.1, PATIENCE, "a start is later than the laying")
    units.start(str(venv / "bin/python"), "-m", "sglang.serve", cwd="/")
    subprocess.run([venv / "bin/python", "-m", "compileall", "-q", site / "sglang"], check=True)
    assert told(venv).state == "pass"


def test_a_file_that_is_mapped_and_was_replaced_needs_a_restart(units: Units, venv: Path, site: Path) -> None:
    (site / "sglang/x.so").write_bytes(b"\x7fELF" + b"\0" * 5000)
    code = (
        f"import mmap; f = open({str(site / 'sglang/x.so')!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=1)\n"
    )
    (site / "sglang/serve.py").write_text(code + "print('up', flush=True)\nimport time; time.sleep(1000)\n")
    units.start(str(venv / "bin/python"), "-m", "sglang.serve", cwd="/")
    assert told(venv).state == "pass"
    (site / "sglang/x.so").unlink()
    check = told(venv)
    assert check.state == "fail"
    assert (
        check.detail
        == f"running the old package, restart needed: it has {site}/sglang/x.so open, which was replaced"
    )


def test_a_working_directory_that_shadows_counts_only_where_python_looks_there(
    units: Units, venv: Path, site: Path, tmp_path: Path
) -> None:
    other = package(tmp_path / "work")
    (other / "serve.py").write_bytes((site / "sglang/serve.py").read_bytes())
    units.start(str(venv / "bin/python"), "-m", "sglang.serve", cwd=tmp_path / "work")
    check = told(venv)
    assert check.state == "fail"
    assert (
        f"working directory {tmp_path}/work comes first: imports {other}/__init__.py, not /" in check.detail
    )

    (venv / "bin/sglang").write_text(f"#!{venv}/bin/python\nimport sglang.serve\n")
    (venv / "bin/sglang").chmod(0o755)
    units.start(str(venv / "bin/sglang"), "serve", cwd=tmp_path / "work")
    assert told(venv).state == "pass"
    units.start(str(venv / "bin/python"), "-I", "-m", "sglang.serve", cwd=tmp_path / "work")
    assert told(venv).state == "pass"


def test_the_units_own_environment_decides(units: Units, venv: Path, tmp_path: Path, site: Path) -> None:
    other = package(tmp_path / "patched")
    (other / "serve.py").write_bytes((site / "sglang/serve.py").read_bytes())
    environment = {"PYTHONPATH": str(tmp_path / "patched")}
    units.start(str(venv / "bin/python"), "-m", "sglang.serve", cwd="/", env=environment)
    check = told(venv)
    assert check.state == "fail"
    assert f"PYTHONPATH has {tmp_path}/patched: imports {other}/__init__.py" in check.detail
    assert f"PYTHONPATH={tmp_path}/patched" in check.evidence


def test_a_python_behind_a_shell_is_found_by_its_process(units: Units, venv: Path) -> None:
    units.start("sh", "-c", f"{venv}/bin/python -m sglang.serve; true", cwd="/")
    assert told(venv).state == "pass"


@needs_root
def test_a_unit_with_mounts_of_its_own_is_asked_there(
    units: Units, venv: Path, site: Path, tmp_path: Path
) -> None:
    other = package(tmp_path / "elsewhere")
    (other / "serve.py").write_bytes((site / "sglang/serve.py").read_bytes())
    (other / "srt/speculative/dflash_info.py").unlink()
    line = f"mount --bind {other} {site}/sglang && exec {venv}/bin/python -m sglang.serve"
    units.start("unshare", "--mount", "sh", "-c", line, cwd="/")
    check = told(venv)
    assert check.state == "fail"
    assert "missing: dflash_info" in check.detail


# ---- which environment


def test_a_unit_of_another_environment_is_told_only_where_it_was_meant_to_start_this(
    units: Units, venv: Path, tmp_path: Path
) -> None:
    lay(tmp_path / "other")
    units.start(str(tmp_path / "other/bin/python"), "-m", "sglang.serve", cwd="/")
    check = told(venv)
    assert (check.state, check.detail) == ("fail", f"starts {tmp_path}/other, not this one ({venv})")
    assert verify(venv, is_home=False) is None
    assert told(tmp_path / "other", is_home=False).state == "pass"


def test_units_that_start_something_else_take_no_place_of_those_that_start_this(
    units: Units, venv: Path
) -> None:
    units.say("/bin/sleep 1000")
    others = [f"aux{number}.service" for number in range(40)]
    for name in others:
        (units.folder / name).write_text((units.folder / NAME).read_text())
    units.start(str(venv / "bin/python"), "-m", "sglang.serve")
    found, _ = part("service", venv, units=[*others, NAME], is_package_venv=False, limit=60.0)
    assert {name: check.state for name, check in found.items()} == {f"service {NAME}": "pass"}


def test_units_beyond_those_that_are_asked_are_named(
    units: Units, venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units.start(str(venv / "bin/python"), "-m", "sglang.serve")
    monkeypatch.setattr(service, "UNITS_LIMIT", 1)
    (units.folder / "more.service").write_text(
        (units.folder / NAME).read_text().replace(NAME, "more.service")
    )
    found, _ = part("service", venv, units=[NAME, "more.service"], is_package_venv=False, limit=60.0)
    assert found[f"service {NAME}"].state == "pass"
    assert (found["service"].state, found["service"].evidence) == ("unknown", ("more.service",))


def test_a_unit_that_starts_no_python_or_hides_it_is_not_guessed_at(units: Units, venv: Path) -> None:
    units.say("/bin/sleep 1000")
    assert verify(venv) is None
    units.say("/bin/bash -c $RUN")
    check = told(venv)
    assert check.state == "unknown"
    assert check.detail.startswith("can't tell which Python it starts: started through a shell")
    assert verify(venv, is_home=False) is None
    (units.folder / NAME).unlink()
    assert told(venv).detail == "can't tell which Python it starts: systemd knows no such unit"


# ---- not running


def test_a_unit_that_does_not_run_is_asked_by_its_properties(
    units: Units, venv: Path, site: Path, tmp_path: Path
) -> None:
    command = f"{venv}/bin/python -m sglang.serve"
    units.say(command, WorkingDirectory=str(tmp_path))
    assert told(venv).state == "pass"
    other = package(tmp_path / "other")
    units.say(command, Environment=f"A=b PYTHONPATH={tmp_path}/other")
    assert f"imports {other}/__init__.py" in told(venv).detail
    units.say(command, WorkingDirectory=str(tmp_path / "other"))
    assert f"imports {other}/__init__.py" in told(venv).detail
    units.say(command)
    (units.folder / "files").write_text(
        f"EnvironmentFiles=/nowhere (ignore_errors=yes)\nEnvironmentFiles={tmp_path}/env (ignore_errors=no)\n"
    )
    assert told(venv).detail == f"will not start: its EnvironmentFile {tmp_path}/env is not there"
    (tmp_path / "env").write_text(f"# a comment\nPYTHONPATH='{tmp_path}/other'\nAPI_KEY=hunter2\n")
    check = told(venv)
    assert f"imports {other}/__init__.py" in check.detail
    assert not any("hunter2" in line for line in check.evidence)
    (units.folder / "files").unlink()
    units.say(command, WorkingDirectory="/nowhere/at/all")
    assert told(venv).state == "fail"
    assert "/nowhere/at/all: No such file or directory" in told(venv).detail
    assert site.is_dir()


@needs_root
@pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="needs a Python that everybody may run")
def test_the_units_user_is_who_asks(units: Units, tmp_path: Path, venv: Path) -> None:
    venv = tmp_path / "everybody's"
    site = make_venv(venv, "/usr/bin/python3")
    package(site)
    code = "import os; print('user', os.getuid(), os.getgid(), os.getgroups())"
    (site / "sglang/__init__.py").write_text(code)
    (site / "sglang/serve.py").write_text("x = 1\n")
    units.say(f"{venv}/bin/python -m sglang.serve", User="nobody", SupplementaryGroups="12345")
    check = told(venv)
    assert check.state == "pass", check
    line = next(line for line in check.evidence if line.startswith("user "))
    assert line.startswith("user 65534 65534 [")
    assert "12345" in line
    (site / "sglang").chmod(0o700)
    refused = told(venv)
    assert refused.state == "fail"
    assert refused.detail.startswith("as nobody: ")


def test_a_user_that_this_login_may_not_become_is_unknown(
    units: Units, venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units.say(f"{venv}/bin/python -m sglang.serve", User="daemon")
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    check = told(venv)
    assert (check.state, check.detail) == ("unknown", "runs as daemon, which this login may not become")


def test_a_user_that_is_not_there_and_one_that_is_made_later_are_unknown(units: Units, venv: Path) -> None:
    command = f"{venv}/bin/python -m sglang.serve"
    units.say(command, User="nobody-of-this-name")
    assert told(venv).detail == "can't be asked as the unit: there is no user nobody-of-this-name"
    units.say(command, DynamicUser="yes")
    assert "DynamicUser" in told(venv).detail
    units.say(command, RootDirectory="/srv/root")
    assert "root directory of its own" in told(venv).detail


def test_an_import_that_hangs_as_the_unit_is_unknown(units: Units, venv: Path, site: Path) -> None:
    (site / "sglang/__init__.py").write_text("import time\ntime.sleep(1000)\n")
    units.say(f"{venv}/bin/python -m sglang.serve")
    check = told(venv, limit=1.0)
    assert check.state == "unknown"
    assert "no answer within 1 s: the import hangs in " in check.detail


def test_python_is_not_started_for_a_unit_where_it_would_wait_for_ever(
    units: Units, venv: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(service, "ask")
    os.mkfifo(site / "odd.pth")
    units.say(f"{venv}/bin/python -m sglang.serve")
    check = told(venv)
    assert check.state == "fail"
    assert check.detail.startswith(f"Python can't start here: {site}/odd.pth is a FIFO, not a file: Python ")


# ---- words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=b\n", {"A": "b"}),
        ("  A =  b c  \n#B=1\n;C=2\n\nD=", {"A": "b c", "D": ""}),
        ('A=\'b # c\'\nB="d\\"e\\n"\n', {"A": "b # c", "B": 'd"e\\n'}),
        ("A=b\\\nc\nD=e\\ f\n", {"A": "bc", "D": "e f"}),
        ("A='two\nlines'\nB=1", {"A": "two\nlines", "B": "1"}),
        ("export A=1\nno line\n2A=3\nB=it's\n", {"B": "it's"}),
        ("A=\"x\"'y'z\n", {"A": "xyz"}),
        ("\n\n \t\n", {}),
    ],
)
def test_an_environment_file_is_read_as_systemd_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_environment_file(text) == expected
