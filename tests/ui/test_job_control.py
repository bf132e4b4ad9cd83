"""The console as a job of a real shell: stopped, continued, moved to the background, and left alone."""

from __future__ import annotations

import os
import signal
import sys
import termios
from pathlib import Path

import pytest

from tests.ui.terminals import Terminal, opened
from tests.waiting import until_sync

CONSOLE = f"{sys.executable} -m tests.ui.console_process"
PROMPT = b"ready> "


def shell(terminals: list[Terminal], **environ: str) -> Terminal:
    """A terminal with an interactive shell that waits for a command."""
    terminal = Terminal(
        program=("bash", "--norc", "--noprofile", "-i"),
        environ={"PS1": PROMPT.decode(), "HISTFILE": "", **environ},
    )
    terminals.append(terminal)
    terminal.shows(PROMPT)
    return terminal


def tell(terminal: Terminal, line: str, answer: bytes) -> None:
    """Types a line and waits for what comes of it."""
    seen = len(terminal.read())
    terminal.type(line.encode() + b"\n")
    terminal.shows(answer, seen)


def stop(terminal: Terminal) -> None:
    """Presses Ctrl+Z and waits for the shell."""
    seen = len(terminal.read())
    terminal.type(b"\x1a")
    terminal.shows(b"Stopped", seen)
    assert terminal.output.rfind(b"\x1b[?1049l") > terminal.output.rfind(b"\x1b[?1049h")
    tell(terminal, "echo back-$((6 * 7))", b"back-42")


def children(pid: int) -> list[int]:
    """The processes that a process started and that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state != "Z":
            found.append(int(stat.parent.name))
    return found


def test_ctrl_z_stops_the_console_and_fg_draws_it_as_large_as_the_terminal_is_now(
    terminals: list[Terminal],
) -> None:
    terminal = shell(terminals)
    tell(terminal, CONSOLE, b"ct129")
    for rows in (24, 40):
        stop(terminal)
        termios.tcsetwinsize(terminal.slave, (rows, 100))
        seen = len(terminal.read())
        tell(terminal, "fg", b"ct129")
        terminal.shows(f"\x1b[{rows};".encode(), seen)
    seen = len(terminal.read())
    terminal.type(b"?")
    terminal.shows(b"ON THIS SCREEN", seen)
    seen = len(terminal.read())
    terminal.type(b"qq")
    terminal.shows(b"LEFT ", seen)
    tell(terminal, "echo code-$?", b"code-0")


def test_in_the_background_it_waits_for_the_foreground(terminals: list[Terminal]) -> None:
    terminal = shell(terminals)
    tell(terminal, CONSOLE, b"ct129")
    stop(terminal)
    tell(terminal, "bg; sleep 0.2; wait -n; jobs", b"Stopped")
    tell(terminal, "fg", b"ct129")
    terminal.type(b"q")
    terminal.shows(b"LEFT ")


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGSTOP])
def test_one_that_another_process_stopped_is_drawn_again_too(
    terminals: list[Terminal], number: signal.Signals
) -> None:
    terminal = shell(terminals)
    tell(terminal, CONSOLE, b"ct129")
    (console,) = children(terminal.process.pid)
    seen = len(terminal.read())
    os.kill(console, number)
    terminal.shows(b"Stopped", seen)
    tell(terminal, "fg", b"\x1b[?1049h")
    terminal.shows(b"ct129", terminal.output.rfind(b"\x1b[?1049h"))
    terminal.type(b"q")
    terminal.shows(b"LEFT ")
    tell(terminal, "echo code-$?", b"code-0")


def test_a_script_around_the_console_is_stopped_with_it(terminals: list[Terminal]) -> None:
    terminal = shell(terminals)
    tell(terminal, f"sh -c '{CONSOLE}; echo script-ended'", b"ct129")
    stop(terminal)
    tell(terminal, "fg", b"ct129")
    terminal.type(b"q")
    terminal.shows(b"script-ended\r\n")


def test_one_that_is_stopped_ends_with_its_shell(terminals: list[Terminal]) -> None:
    terminal = shell(terminals)
    tell(terminal, CONSOLE, b"ct129")
    (console,) = children(terminal.process.pid)
    stop(terminal)
    terminal.process.kill()
    terminal.process.wait()
    until_sync(lambda: not Path(f"/proc/{console}").exists(), 20, "the console's end")


@pytest.mark.parametrize("is_controlling", [True, False])
@pytest.mark.parametrize("how", ["key", "signal"])
def test_without_a_shell_nothing_stops(terminals: list[Terminal], is_controlling: bool, how: str) -> None:
    terminal = opened(terminals, is_controlling=is_controlling)
    if how == "key":
        terminal.type(b"\x1a")
        terminal.shows(b"no shell to go back to")
    else:
        terminal.process.send_signal(signal.SIGTSTP)
    terminal.type(b"?")
    terminal.shows(b"ON THIS SCREEN")
    terminal.type(b"qq")
    assert terminal.ended() == 0


def test_a_host_that_was_given_up_meanwhile_comes_back_by_itself(
    terminals: list[Terminal], tmp_path: Path
) -> None:
    environ = {
        "HOME": str(tmp_path),
        "DFLASH_CONSOLE_CONFIG": "",
        "XDG_CONFIG_HOME": "",
        "XDG_STATE_HOME": "",
    }
    terminal = shell(terminals, **environ)
    tell(terminal, f"{sys.executable} -m dflash_console", b"1 up")
    (console,) = children(terminal.process.pid)
    agents = children(console)
    assert agents
    stop(terminal)
    for agent in agents:
        os.kill(agent, signal.SIGKILL)  # as the agent does by itself when it hears nothing for long
    tell(terminal, "fg", b"DFLASH")
    until_sync(lambda: set(children(console)) - set(agents), 30, "another agent")
    seen = len(terminal.read())
    terminal.type(b"pp")
    terminal.shows(b"now", seen)
    terminal.type(b"q")
    until_sync(lambda: not Path(f"/proc/{console}").exists(), 20, "the console's end")
