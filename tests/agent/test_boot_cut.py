"""A boot whose link is cut at any point ends by itself, with all that it started, and never the agent that runs."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from dflash_console.link.bundle import READY, boot_command, bundle
from dflash_console.model import Hello
from tests.agent.driver import PATIENCE, boot, children_of, up_to
from tests.shells import LOGIN_SHELLS, Login, login_shell, marked
from tests.waiting import until_sync

LIMIT = 3
"""Seconds that a boot may take here."""
SHELLS = ("bash --posix", "busybox sh", "dash", "ksh", "mksh", "yash", "zsh --emulate sh")
"""What a host may have as /bin/sh."""

WRAPPER = Login(["/bin/sh", "-c", 'sh -c "$0"; exit $?'], {})
"""A forced command that stays above ours, which then leads no process group."""

TOKEN = secrets.token_hex(8)
SOURCE = bundle(TOKEN, heartbeat=2.0)
HEAD = f"{sys.executable}\n{len(SOURCE)}\n".encode()
STAGES: dict[str, bytes | None] = {
    "before the line runs": None,
    "before anything is sent": b"",
    "in the interpreter's name": HEAD[:9],
    "in the length": HEAD[:-3],
    "before the source": HEAD,
    "in the source": HEAD + SOURCE[: len(SOURCE) // 2],
    "after the source": HEAD + SOURCE,
}


@pytest.fixture
def mark() -> str:
    return uuid.uuid4().hex


def nothing_stays(mark: str) -> None:
    def look() -> bool:
        left = marked(mark)
        assert not left, f"still there: {left}"
        return True

    until_sync(look, PATIENCE, "no process of the boot is left")


@contextmanager
def started(command: Sequence[str], env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program behind a link that is held open on this side to the end of the block."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, **env}, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(BrokenPipeError):
            process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("stage", STAGES)
def test_a_link_that_is_cut_leaves_nothing(stage: str, tmp_path: Path, mark: str) -> None:
    sent = STAGES[stage]
    with ExitStack() as links:
        habit = "slow" if sent is None else "noisy"
        logins = [login_shell(name, tmp_path / name, habit) for name in LOGIN_SHELLS if shutil.which(name)]
        for login in [*logins, WRAPPER]:
            command = [*login.command, boot_command(LIMIT)]
            process = links.enter_context(started(command, {**login.env, "MARK": mark}))
            if sent is not None:
                up_to(f"{READY}\n", process)
                assert process.stdin is not None
                process.stdin.write(sent)
                process.stdin.flush()
        assert marked(mark)
        # Nothing more is sent and nothing more is read, and no end of file tells it.
        nothing_stays(mark)


def is_here(shell: str) -> bool:
    return shutil.which(shell.split()[0]) is not None


def line_of(shell: str, limit: int) -> list[str]:
    match = re.fullmatch("exec /bin/sh -c '(.*)'", boot_command(limit))
    assert match is not None
    return [*shell.split(), "-c", match[1]]


def say_nothing(process: subprocess.Popen[bytes]) -> None:
    pass


def name_a_hanging_python(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"hanging-python\n")
    process.stdin.flush()


def close(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None


@pytest.mark.parametrize("act", [say_nothing, name_a_hanging_python, close])
def test_every_shell_that_may_be_bin_sh_ends_what_hangs(
    act: Callable[[subprocess.Popen[bytes]], None], tmp_path: Path, mark: str
) -> None:
    script(tmp_path / "hanging-python", "sleep 1000\nexit 3\n")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "MARK": mark}
    with ExitStack() as links:
        for shell in filter(is_here, SHELLS):
            process = links.enter_context(started(line_of(shell, 30 if act is close else LIMIT), env))
            up_to(f"{READY}\n", process)
            act(process)
        nothing_stays(mark)


def test_a_python_that_hangs_below_a_forced_command_is_ended(tmp_path: Path, mark: str) -> None:
    script(tmp_path / "hanging-python", "exec sleep 1000\n")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "MARK": mark}
    with started([*WRAPPER.command, boot_command(1)], env) as process:
        up_to(f"{READY}\n", process)
        name_a_hanging_python(process)
        nothing_stays(mark)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("wrapped", [False, True], ids=["python", "wrapper"])
def test_an_agent_that_runs_is_never_ended(shell: str, wrapped: bool, tmp_path: Path, mark: str) -> None:
    if not is_here(shell):
        pytest.skip(f"{shell} is not installed")
    # It stays above Python, so that the guard is not the agent's child, and says that it is the Python itself.
    python = script(
        tmp_path / "python3",
        f'case "$*" in *version_info*) printf %s "$0"; exit 38;; esac\n{sys.executable} "$@"\nexit $?\n',
    )
    *words, line = line_of(shell, LIMIT)
    env = {**os.environ, "MARK": mark}
    agent = boot(str(python) if wrapped else sys.executable, words, program=line, env=env)
    try:
        hello = agent.read()
        assert isinstance(hello, Hello)
        assert (hello.pid != agent.process.pid) == wrapped
        expected = {hello.pid, agent.process.pid}
        until_sync(lambda: set(marked(mark)) == expected, PATIENCE, f"only {expected} are there")
        assert children_of(hello.pid) == []
        assert agent.answer("ping").error is None
        agent.stdin.close()
        assert agent.ended() == 0
    finally:
        agent.close()
    nothing_stays(mark)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path
