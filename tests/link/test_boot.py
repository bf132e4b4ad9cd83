"""A boot behind login files of every habit: it works or tells the cause, and nothing of it stays."""

from __future__ import annotations

import asyncio
import shlex
import uuid
from pathlib import Path

import pytest

from dflash_console.config import HostConfig
from dflash_console.errors import AgentFailed, BootHangs, LinkError, NoPython
from dflash_console.link import Session, connect
from dflash_console.link.bundle import BOOT_COMMAND, READY
from dflash_console.link.process import Connection
from dflash_console.model import WatchSpec
from tests.link.programs import behind, instead_of_the_agent, through
from tests.shells import LOGIN_SHELLS, Login, login_shell, marked
from tests.waiting import until

HERE = HostConfig("here", local=True)
SPEC = WatchSpec(0.2, "sglang", [], [], [], [], ["/tmp"])
HANGS = (
    "another shell",
    "another shell inside",
    "asks",
    "takes a piece of stdin",
    "takes all of stdin",
    "hangs",
)


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """What all that is started from here carries in its environment."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv("MARK", mark)
    return mark


async def life(
    connection: Connection | None = None, host: HostConfig = HERE, within: float = 30.0
) -> LinkError | None:
    """Boots, pings once and ends; why not, if that fails."""
    connection = connection or await connect(host, ssh_config=None)
    try:
        session = await Session.open(connection, host, timeout=within)
        await session.watch(SPEC)
        await session.ping()
        await session.close()
    except LinkError as error:
        return error
    finally:
        await connection.close()
    return None


async def nothing_stays(mark: str) -> None:
    def look() -> bool:
        left = marked(mark)
        assert not left, f"still there: {left}"
        return True

    await until(look, 20, "no process of the boot is left")


@pytest.mark.parametrize("name", LOGIN_SHELLS)
async def test_nothing_is_sent_to_a_login_that_does_not_come_to_our_line(
    name: str, tmp_path: Path, mark: str
) -> None:
    logins = [login_shell(name, tmp_path / habit, habit) for habit in HANGS]
    errors = await asyncio.gather(*(life(through(login), within=2.0) for login in logins))
    for habit, error in zip(HANGS, errors, strict=True):
        assert isinstance(error, BootHangs), (habit, error)
        assert error.is_lasting
        assert "did not run the console's command in 2 s" in str(error)
        # A shell that took our bytes for commands would have complained.
        assert "not found" not in str(error)
        assert ("Continue?" in str(error)) == (habit == "asks" and name != "fish")
    await nothing_stays(mark)


@pytest.mark.parametrize("name", LOGIN_SHELLS)
async def test_background_jobs_of_a_login_do_not_disturb(name: str, tmp_path: Path, mark: str) -> None:
    assert await life(through(login_shell(name, tmp_path, "background"))) is None
    await nothing_stays(mark)


@pytest.mark.parametrize("name", LOGIN_SHELLS)
async def test_a_background_job_that_prints_into_the_channel_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    instead_of_the_agent(monkeypatch, "hello()\nwhile True: time.sleep(0.01); say(type='sample', at=1)")
    connection = through(login_shell(name, tmp_path, "prints for ever"))
    with pytest.raises(AgentFailed, match=r"here: .*tick.*background job of a login file"):
        await endless(connection)
    await nothing_stays(mark)


async def endless(connection: Connection) -> None:
    """Boots and takes what comes."""
    try:
        async with asyncio.timeout(30):
            async for _ in (await Session.open(connection, HERE)).messages():
                pass
    finally:
        await connection.close()


@pytest.mark.parametrize(
    "before",
    [
        "set -x; exec 2>&1",
        "PS4='dflash-console:'; set -v; set -x",
        "echo 'refused: exec /bin/sh -c ...; echo dflash-c\"\"onsole:ready; IFS= read'",
        f"printf %s {READY}; printf '{READY} \\n'",
    ],
)
async def test_a_line_that_is_shown_is_not_taken_for_one_that_runs(
    before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind(monkeypatch, before)
    assert await life() is None


async def test_a_host_that_only_shows_our_line_gets_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    behind(monkeypatch, f"echo refused: {shlex.quote(BOOT_COMMAND)}; exec cat")
    error = await life(within=1.0)
    assert isinstance(error, BootHangs)
    assert "the host said: " in str(error)
    assert "def start(" not in str(error)


def hanging(folder: Path, when: str) -> Path:
    """A Python that hangs, in a grandchild, when it is asked what `when` matches."""
    python, behind_it = folder / "a python3", folder / "another python3"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in {when}) sleep 1000; exit 3;; '
        f'*version_info*) printf %s "{behind_it}"; exit 38;; esac\n'
        'exec python3 "$@"\n'
    )
    behind_it.write_text("#!/bin/sh\nsleep 1000\nexit 3\n" if when == "*zlib*" else "#!/bin/sh\nexit 3\n")
    for script in (python, behind_it):
        script.chmod(0o755)
    return python


@pytest.mark.parametrize("when", ["*version_info*", "*zlib*", "*readline*"], ids=["probe", "shim", "agent"])
async def test_a_python_that_hangs_is_named_and_ended(when: str, tmp_path: Path, mark: str) -> None:
    python = hanging(tmp_path, when)
    error = await life(host=HostConfig("here", local=True, python=str(python)), within=2.0)
    assert isinstance(error, BootHangs)
    assert f"`{python}` did not start the agent in 2 s" in str(error)
    assert "`python` in [hosts.here]" in str(error)
    await nothing_stays(mark)


async def test_a_python_that_ends_with_a_complaint_is_quoted(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text(
        "#!/bin/sh\ncase $1 in -V) echo Python 3.11.2; exit;; esac\n"
        "echo 'python3: error while loading shared libraries: libm.so.6' >&2; exit 127\n"
    )
    python.chmod(0o755)
    error = await life(host=HostConfig("here", local=True, python=str(python)))
    assert isinstance(error, NoPython)
    assert f"{python} (Python 3.11.2); " in str(error)
    assert "the host said: python3: error while loading shared libraries: libm.so.6" in str(error)


@pytest.mark.parametrize("limits", ["-n 8", "-n 5", "-n 4", "-v 12000", "-v 8000", "-u 1"])
async def test_a_host_whose_limits_let_no_agent_run_says_so(limits: str, mark: str) -> None:
    login = Login(["bash", "-c", f'ulimit {limits}; eval "$0"'], {})
    error = await life(through(login), HostConfig("here", local=True, python="/usr/bin/python3"))
    if error is not None:
        assert "the host said" in str(error)
    await nothing_stays(mark)
