"""The program as a process: options, exit codes, what it imports, closed pipes and signals."""

from __future__ import annotations

import curses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_console import __version__, ui
from dflash_console.cli import app, main
from dflash_console.cli.terminals import why_no_screen
from dflash_console.state import State, save_state

LOCAL = "[hosts.here]\nlocal = true\nunits = []\nvenvs = []\n"
THEMES = Path(__file__).parents[2] / "themes"
DEAD = '[hosts.gone]\naddress = "127.0.0.1"\nport = 1\n'


ENVIRON = {**os.environ, "DFLASH_CONSOLE_CONFIG": "", "HOME": "/nonexistent"}
PROGRAM = [sys.executable, "-m", "dflash_console"]


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *map(str, words)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=ENVIRON,
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


# ---- streams that take nothing


def shell(script: str, *words: str | Path, unbuffered: bool = False) -> subprocess.CompletedProcess[str]:
    """The program with these words, as `"$@"` of a line of shell."""
    environ = {**ENVIRON, "PYTHONUNBUFFERED": "1" if unbuffered else ""}
    return subprocess.run(
        ["/bin/sh", "-c", script, "sh", *PROGRAM, *map(str, words)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=environ,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["status", "--help"], ["status"], ["status", "--json"]]
)
def test_an_answer_that_cannot_be_written_is_one_line_and_a_code_of_its_own(
    config: Path, words: list[str], unbuffered: bool
) -> None:
    done = shell('exec "$@" > /dev/full', "--config", config, *words, unbuffered=unbuffered)
    assert done.stderr == "dflash-console: can't write: No space left on device\n"
    assert done.returncode == 74


@pytest.mark.parametrize("words", [["--help"], ["status"], []])
def test_a_closed_stdout_is_told_before_any_work(config: Path, words: list[str]) -> None:
    done = shell('exec "$@" >&-', "--config", config, *words)
    assert (done.returncode, done.stderr) == (74, "dflash-console: can't write: stdout is closed\n")


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(
    ("words", "more", "code"),
    [
        (["status", "--json"], "", 3),
        (["status"], ">&-", 74),
        (["status"], ">/dev/full", 74),
        (["--nope"], "", 2),
        (["status", "--config", "/nonexistent"], "", 2),
        ([], "<&-", 2),
    ],
)
def test_a_stderr_that_takes_nothing_changes_neither_answer_nor_exit_code(
    config: Path, stderr: str, words: list[str], more: str, code: int
) -> None:
    done = shell(f'exec "$@" {more} {stderr}', "--config", config, *words)
    assert done.returncode == code
    assert (done.stdout[:1], done.stderr) == ("{" if code == 3 else "", "")


LATE = """
import select, sys
from dflash_console.cli import main
poll = select.poll()
poll.register(1, 0)
print("waiting", file=sys.stderr, flush=True)
poll.poll()
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ([], 2, "the console needs a terminal"),
        (["--help"], 74, "can't write: Input/output error"),
        (["status"], 74, "can't write: Input/output error"),
        (["status", "--json"], 74, "can't write: Input/output error"),
    ],
)
def test_a_terminal_that_went_away_is_one_line_and_a_code_of_its_own(
    config: Path, words: list[str], code: int, why: str, unbuffered: str
) -> None:
    master, slave = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", LATE, "--config", str(config), *words],
        stdin=slave,
        stdout=slave,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**ENVIRON, "PYTHONUNBUFFERED": unbuffered},
    ) as late:
        os.close(slave)
        assert late.stderr is not None
        assert late.stderr.readline() == b"waiting\n"
        os.close(master)
        told = late.stderr.read().decode()
        assert late.wait(60) == code
    assert why in told
    assert told.count("\n") == 1


# ---- what the console asks of its terminal


def on_a_terminal(term: str | None, *words: str | Path) -> tuple[int, str]:
    """Exit code and stderr of the program on a pseudo terminal."""
    master, slave = os.openpty()
    environ = {name: value for name, value in ENVIRON.items() if name != "TERM"}
    try:
        done = subprocess.run(
            [*PROGRAM, *map(str, words)],
            stdin=slave,
            stdout=slave,
            stderr=subprocess.PIPE,
            text=True,
            env=environ if term is None else {**environ, "TERM": term},
            timeout=60,
            check=False,
        )
    finally:
        os.close(master)
        os.close(slave)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("term", "why"),
    [
        (None, "TERM is not set"),
        ("", "TERM is not set"),
        ("dumb", "a terminal 'dumb' can't move its cursor"),
        ("unknown", "TERM says that the terminal is unknown"),
    ],
)
def test_a_terminal_that_cannot_be_drawn_on_is_refused_with_what_else_there_is(
    config: Path, term: str | None, why: str
) -> None:
    code, told = on_a_terminal(term, "--config", config)
    assert code == 2
    assert why in told
    assert "`dflash-console status [--json]`" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    "term", ["xterm", "xterm-256color", "screen", "linux", "vt100", "younger-than-terminfo"]
)
def test_a_terminal_that_can_move_its_cursor_or_is_not_known_here_is_fine(term: str) -> None:
    code = f"from dflash_console.cli.terminals import why_no_screen; print(repr(why_no_screen({{'TERM': {term!r}}})))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "''\n"


def test_without_a_database_of_terminals_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise curses.error("setupterm: could not find terminfo database")

    monkeypatch.setattr(curses, "setupterm", fail)
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    assert why_no_screen({"TERM": "xterm"}) == ""


# ---- what it starts with


@pytest.fixture
def consoles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, object]]:
    """The program is on a good terminal, in a home of the test's own; the arguments of each console come in."""
    opened: list[dict[str, object]] = []

    def run_console(config: object, **arguments: object) -> int:
        print("the console", file=sys.stderr)  # noqa: T201
        opened.append(arguments)
        return 0

    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr(app, "is_terminal", lambda stream: True)
    monkeypatch.setattr(app, "why_no_screen", lambda environ: "")
    monkeypatch.setattr(ui, "run_console", run_console)
    return opened


def test_an_unknown_theme_is_refused_with_the_nearest_and_the_list(
    consoles: list[dict[str, object]], config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", str(config), "--theme", "nigth"]) == 2
    asked = capsys.readouterr().err
    assert asked.startswith(
        "dflash-console: --theme: no theme is called 'nigth'; did you mean night? There are: "
    )
    assert "sixteen" in asked
    config.write_text(DEAD + "[console]\ntheme = 'plain'\n")
    assert main(["--config", str(config)]) == 2
    assert f"{config}: console.theme: no theme is called 'plain'; there are: " in capsys.readouterr().err
    assert consoles == []


def test_a_theme_of_the_users_own_is_taken_and_a_broken_one_is_told(
    consoles: list[dict[str, object]], config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "dflash-console" / "themes"
    own.mkdir(parents=True)
    (own / "mine.toml").write_text((THEMES / "night.toml").read_text())
    (own / "torn.toml").write_text("colours = ")
    assert main(["--config", str(config), "--theme", "mine"]) == 0
    assert [arguments["theme"] for arguments in consoles] == ["mine"]
    assert main(["--config", str(config), "--theme", "torn"]) == 2
    assert f"the theme 'torn' can't be used: {own}/torn.toml: " in capsys.readouterr().err


def test_a_theme_that_was_only_remembered_may_be_gone(
    consoles: list[dict[str, object]], config: Path, tmp_path: Path
) -> None:
    save_state(tmp_path / "dflash-console" / "state.toml", State(theme="gone"))
    assert main(["--config", str(config)]) == 0
    assert consoles[0]["theme"] == "gone"


def test_a_broken_state_file_is_told_where_the_screen_does_not_hide_it(
    consoles: list[dict[str, object]], config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "dflash-console" / "state.toml"
    state.parent.mkdir()
    state.write_text("theme = ")
    assert main(["--config", str(config)]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert first == "the console"
    assert f"{state}: broken" in second
    assert "moved to state.toml.broken-1" in second


def test_status_without_a_config_says_what_it_watches(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "status", "--json"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**ENVIRON, "XDG_CONFIG_HOME": str(tmp_path)},
        timeout=60,
        check=False,
    )
    file = tmp_path / "dflash-console" / "config.toml"
    assert done.stderr == f"dflash-console: no config at {file}: watching this machine\n"
    (here,) = json.loads(done.stdout)["hosts"]
    assert here["name"] == socket.gethostname()
