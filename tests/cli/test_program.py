"""The program as a process: options, exit codes, what it imports, closed pipes and signals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_console import __version__
from dflash_console.cli import app, main

LOCAL = "[hosts.here]\nlocal = true\nunits = []\nvenvs = []\n"
DEAD = '[hosts.gone]\naddress = "127.0.0.1"\nport = 1\n'


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "DFLASH_CONSOLE_CONFIG": "", "HOME": "/nonexistent"}
    command = [sys.executable, "-m", "dflash_console", *map(str, words)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=environ,
        timeout=60,
        check=False,
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config.toml"
    file.write_text(DEAD)
    return file


def imported(argv: list[str]) -> set[str]:
    """The modules that a run of the program loads."""
    script = (
        "import sys; from dflash_console.cli import main; "
        f"main({argv!r}); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stderr.split())


def test_help_lists_every_command_of_the_contract() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in [
        "demo",
        "init",
        "status",
        "verify",
        "compare",
        "copy",
        "rollback",
        "service",
        "logs",
        "doctor",
        "incident",
    ]:
        assert f"\n  {command} " in done.stdout
    for option in ("--config FILE", "--read-only", "--theme NAME", "--no-mouse", "--version"):
        assert option in done.stdout


def test_help_loads_neither_the_link_nor_the_screen() -> None:
    loaded = imported(["--help"])
    assert not loaded & {"asyncssh", "asyncio", "textual", "dflash_console.fleet", "dflash_console.link"}


def test_status_does_not_load_the_screen(config: Path) -> None:
    for more in ([], ["--json"]):
        loaded = imported(["--config", str(config), "status", *more])
        assert "dflash_console.fleet" in loaded
        assert "textual" not in loaded


def test_the_version_is_the_packages() -> None:
    assert run("--version").stdout.strip() == f"dflash-console, version {__version__}"


@pytest.mark.parametrize("command", list(app.LATER))
def test_a_command_of_later_takes_any_arguments_and_says_so(command: str) -> None:
    done = run("--read-only", command, "ct129", "ct200:/x", "--yes", "-n", "5", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert f"`{command}` is not in this version" in done.stderr


def test_without_a_terminal_the_console_points_to_status() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "dflash-console status" in done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--nope"], "No such option"),
        (["stauts"], "No such command"),
        (["--config"], "requires an argument"),
        (["--config", "/nonexistent/config.toml", "status"], "/nonexistent/config.toml"),
        (["status", "--config", "/nonexistent/config.toml"], "/nonexistent/config.toml"),
    ],
)
def test_wrong_usage_exits_with_2_and_no_traceback(words: list[str], text: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_unknown_host_exits_with_2_and_names_the_nearest(config: Path) -> None:
    done = run("status", "gon", "--config", config)
    assert done.returncode == 2
    assert "did you mean gone?" in done.stderr


def test_a_fault_of_ours_exits_with_its_own_code_and_shows_no_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> int:
        secret = "hunter2"
        raise ZeroDivisionError(len(secret))

    monkeypatch.setattr(app, "open_console", fail)
    assert main([]) == 70
    printed = capsys.readouterr().err
    assert "ZeroDivisionError" in printed
    assert "hunter2" not in printed.replace('secret = "hunter2"', "")


def test_ctrl_c_exits_quietly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "open_console", interrupt)
    assert main([]) == 130
    assert "".join(capsys.readouterr()).strip() == ""


def test_a_reader_that_closes_early_gets_no_traceback(config: Path) -> None:
    for words in (["--help"], ["--config", str(config), "status"]):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [sys.executable, "-m", "dflash_console", *words],
            stdout=write,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=60,
            check=False,
        )
        os.close(write)
        assert done.stderr == ""
        assert done.returncode in (1, 3)
