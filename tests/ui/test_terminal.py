"""The console in a real terminal: what it leaves behind, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.ui.terminals import CONSOLE, MOUSE_ON, Terminal, assert_clean, opened
from tests.waiting import until_sync


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_ends_the_console_and_leaves_the_terminal_clean(
    terminals: list[Terminal], number: signal.Signals, code: int
) -> None:
    terminal = opened(terminals)
    terminal.process.send_signal(number)
    assert terminal.ended() == code
    assert_clean(terminal)


def test_q_ends_with_zero_and_leaves_the_terminal_clean(terminals: list[Terminal]) -> None:
    terminal = opened(terminals)
    terminal.type(b"q")
    assert terminal.ended() == 0
    assert_clean(terminal)


def test_a_crash_ends_with_one_a_clean_terminal_and_no_local_variable(terminals: list[Terminal]) -> None:
    terminal = opened(terminals, "crash")
    terminal.type(b"\x12")
    assert terminal.ended() == 1
    assert_clean(terminal)
    said = terminal.read().rpartition(b"\x1b[?1049l")[2]
    assert b"stopped by a fault of its own: RuntimeError: a fault with 21 characters" in said
    assert b"console_process.py" in said
    assert b"SECRET" not in terminal.read()
    assert len(said.splitlines()) < 20


def test_a_terminal_that_goes_away_ends_the_console(terminals: list[Terminal]) -> None:
    terminal = opened(terminals)
    terminal.hang_up()
    assert terminal.ended() == 129


def test_a_terminal_that_goes_away_without_a_signal_ends_it_too(terminals: list[Terminal]) -> None:
    terminal = opened(terminals, is_controlling=False, ignores_hangup=True)
    terminal.hang_up()
    assert terminal.ended() == 129


def test_bytes_that_are_not_utf8_do_not_end_the_console(terminals: list[Terminal]) -> None:
    terminal = opened(terminals)
    terminal.type(b"\xff\xfe\x80")

    def is_last_selected() -> bool:
        terminal.type(b"G")
        return "▸ kpro6".encode() in terminal.read()

    until_sync(
        is_last_selected, 20, "a key after the bytes, which may have been lost together with the first few"
    )
    terminal.type(b"q")
    assert terminal.ended() == 0


# ---- what it starts on


@pytest.mark.parametrize("stage", ["gone", "gone-before-the-console"])
@pytest.mark.parametrize("is_controlling", [True, False])
def test_a_terminal_that_goes_away_while_the_console_starts_ends_it_in_one_way(
    terminals: list[Terminal], stage: str, is_controlling: bool
) -> None:
    read, write = os.pipe()
    program = CONSOLE if stage == "gone" else (sys.executable, "-c", LATE)
    terminal = Terminal(
        stage, is_controlling=is_controlling, ignores_hangup=True, program=program, stderr=write
    )
    terminals.append(terminal)
    os.close(write)
    with os.fdopen(read) as told:
        assert told.readline() == "waiting\n"
        terminal.hang_up()
        assert terminal.ended() == (129 if stage == "gone" else 2)
        said = told.read()
    if stage == "gone":
        assert said == ""
    else:
        assert said.startswith("dflash-console: the console needs a terminal")
        assert said.count("\n") == 1


LATE = """
import sys
from tests.ui.console_process import until_gone
from dflash_console.cli import main
until_gone()
sys.exit(main([]))
"""


@pytest.mark.parametrize("stderr", ["/dev/full", "/dev/null"])
def test_the_screen_is_drawn_on_stdout_and_stderr_may_be_elsewhere(
    terminals: list[Terminal], stderr: str
) -> None:
    with open(stderr, "wb") as elsewhere:
        terminal = opened(terminals, stderr=elsewhere)
        terminal.type(b"q")
        assert terminal.ended() == 0
    assert_clean(terminal)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_knows_few_characters_gets_others_in_their_place(
    terminals: list[Terminal], encoding: str
) -> None:
    terminal = opened(terminals, environ={"PYTHONIOENCODING": encoding})
    terminal.type(b"q")
    assert terminal.ended() == 0
    assert_clean(terminal)


def test_without_mouse_the_terminals_own_selection_works(terminals: list[Terminal]) -> None:
    terminal = opened(terminals, "--no-mouse")
    terminal.type(b"q")
    assert terminal.ended() == 0
    assert MOUSE_ON not in terminal.read()


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
@pytest.mark.parametrize("size", [(0, 0), (1, 1), (3, 5), (24, 80)])
def test_a_terminal_of_any_size_is_drawn_once_and_not_for_ever(
    terminals: list[Terminal], size: tuple[int, int], term: str
) -> None:
    terminal = Terminal(size=size, environ={"TERM": term})
    terminals.append(terminal)
    terminal.shows(b"\x1b[?1049h")
    used: list[tuple[float, float]] = []

    def is_calm() -> bool:
        """Whether a second went by in which hardly anything was done."""
        terminal.read()
        used.append((time.monotonic(), cpu_seconds(terminal.process)))
        earlier = [cpu for at, cpu in used if at < used[-1][0] - 1]
        return bool(earlier) and used[-1][1] - earlier[-1] < 0.3

    until_sync(is_calm, 20, "a console at rest")
    terminal.type(b"q")
    assert terminal.ended() == 0
    assert_clean(terminal)
