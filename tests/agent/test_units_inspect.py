"""A unit's processes tell its real Python and whether it listens; what hangs costs no other unit its own."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from dflash_console.agent.units import inspector as unit_inspect
from dflash_console.agent.units.inspector import DEADLINE, Inspector, inspect_unit
from tests.agent.dead_mount import dead_mount
from tests.agent.environments import make_venv
from tests.waiting import until_sync

LISTEN = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


def exec_start(command: str) -> str:
    ran = "start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0"
    return f"{{ path={command.split()[0]} ; argv[]={command} ; ignore_errors=no ; {ran} }}"


def block(command: str = "", *, pid: int = 0, name: str = "x.service", **more: str) -> dict[str, str]:
    start = {"ExecStart": exec_start(command)} if command else {}
    return {"Id": name, "LoadState": "loaded", "MainPID": str(pid), **start, **more}


class Server:
    """A real Python in a real venv with a listening socket."""

    def __init__(self, python: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [python, "-c", LISTEN, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.pid = self.process.pid

    def stop(self) -> None:
        self.process.communicate(timeout=10)


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "dead").mkdir()
    with dead_mount(tmp_path / "dead"):
        yield tmp_path / "dead"


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    make_venv(tmp_path / "venv")
    return tmp_path / "venv"


@pytest.fixture
def server(venv: Path) -> Iterator[Server]:
    running = Server(venv / "bin" / "python", "--api-key", "verysecret")
    yield running
    running.stop()


def test_a_running_unit_tells_its_python_venv_and_command(server: Server, venv: Path) -> None:
    facts = inspect_unit(block("/bin/bash -lc exec python serve.py", pid=server.pid))
    assert facts["interpreter"] == str(venv / "bin" / "python")
    assert facts["venv"] == str(venv)
    assert str(facts["command"]).endswith("--api-key ***")


def test_a_port_with_a_listening_socket_of_the_unit_is_listening(server: Server) -> None:
    facts = inspect_unit(block(f"/usr/bin/env sglang serve --port {server.port}", pid=server.pid))
    assert (facts["port"], facts["listening"]) == (server.port, True)


def test_the_running_process_knows_its_port_better_than_its_unit(venv: Path) -> None:
    running = Server(venv / "bin" / "python", "--port", "4711")
    try:
        facts = inspect_unit(block("/opt/v/bin/sglang serve --port $PORT", pid=running.pid))
        assert (facts["port"], facts["listening"]) == (4711, False)
    finally:
        running.stop()


def test_another_processs_socket_on_the_port_is_not_the_units() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        other = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
        )
        try:
            port = listening.getsockname()[1]
            facts = inspect_unit(block(f"/opt/v/bin/sglang serve --port {port}", pid=other.pid))
            assert facts["listening"] is False
        finally:
            other.communicate(timeout=10)


def test_an_ipv6_socket_counts_too() -> None:
    try:
        listening = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 here")
    with listening:
        port = listening.getsockname()[1]
        assert inspect_unit(block(f"/x --port {port}", pid=os.getpid()))["listening"] is True


def test_descriptors_that_may_not_be_read_leave_listening_open(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "listdir", forbidden)
    assert inspect_unit(block(f"/x --port {server.port}", pid=server.pid))["listening"] is None


def test_a_unit_that_does_not_run_is_told_by_its_command(venv: Path) -> None:
    facts = inspect_unit(block(f"{venv}/bin/python -m sglang.launch_server"))
    assert (facts["interpreter"], facts["venv"]) == (f"{venv}/bin/python", str(venv))
    assert (facts["port"], facts["listening"]) == (30000, None)
    assert "command" not in facts


def test_a_venv_that_is_reached_by_a_link_is_told_with_its_real_place(venv: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(venv)
    facts = inspect_unit(block(f"{tmp_path}/link/bin/python -m sglang.launch_server"))
    assert (facts["venv"], facts["real_venv"]) == (f"{tmp_path}/link", os.path.realpath(venv))


def test_an_interpreter_outside_any_venv_has_none() -> None:
    facts = inspect_unit(block("/usr/bin/python3 x.py"))
    assert facts["venv"] is None
    assert "real_venv" not in facts


def test_a_unit_without_a_command_and_a_main_process_that_is_gone_have_reasons() -> None:
    gone = subprocess.Popen(["/bin/true"])
    gone.wait(timeout=10)
    for facts in (inspect_unit(block()), inspect_unit(block(pid=gone.pid))):
        assert facts["interpreter"] == {"missing": "not_found", "detail": "the unit starts no command"}
        assert facts["listening"] is None


def test_the_first_python_of_the_units_cgroup_speaks_for_a_shell_that_stays(
    server: Server, venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / "cgroup" / "system.slice" / "x.service"
    (group / "below").mkdir(parents=True)
    shell = subprocess.Popen(["/bin/sh", "-c", "read x"], stdin=subprocess.PIPE)
    (group / "cgroup.procs").write_text(f"{shell.pid}\n")
    (group / "below" / "cgroup.procs").write_text(f"{server.pid}\n")
    monkeypatch.setattr(unit_inspect, "CGROUP_ROOTS", (str(tmp_path / "nowhere"), str(tmp_path / "cgroup")))
    try:
        command = f"/bin/sh -c ./run.sh --port {server.port}"
        facts = inspect_unit(block(command, pid=shell.pid, ControlGroup="/system.slice/x.service"))
        assert facts["interpreter"] == str(venv / "bin" / "python")
        assert facts["listening"] is True
        assert facts["command"] == "/bin/sh -c 'read x'"
    finally:
        shell.communicate(timeout=10)


def test_a_cgroup_outside_its_tree_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    monkeypatch.setattr(unit_inspect, "CGROUP_ROOTS", (str(tmp_path / "below"),))
    (tmp_path / "below").mkdir()
    facts = inspect_unit(block("/bin/true", ControlGroup="/.."))
    assert facts["interpreter"] == {"missing": "unsupported", "detail": "not a Python program: /bin/true"}


# ---- the inspector: children at their pace


def is_readable(inspector: Inspector) -> bool:
    return bool(select.select(inspector.fds(), [], [], 0)[0])


def pump(inspector: Inspector, now: float) -> bool:
    """Serve the inspector's descriptors; whether facts came."""
    return is_readable(inspector) and inspector.ready(now)


@pytest.fixture
def inspector() -> Iterator[Inspector]:
    made = Inspector()
    yield made
    made.close()


def test_units_are_looked_at_when_they_appear(inspector: Inspector) -> None:
    inspector.consider(
        [block("/bin/bash -c x", name="a.service"), block("/opt/v/bin/python", name="b.service")], 0.0
    )
    assert inspector.facts("b.service") == {}
    inspector.tick(0.0)
    until_sync(lambda: pump(inspector, 0.1), 10, "the facts")
    assert inspector.facts("b.service")["interpreter"] == "/opt/v/bin/python"


def test_units_that_stay_as_they_are_are_looked_at_at_the_slow_pace_only(inspector: Inspector) -> None:
    units = [block("/opt/v/bin/python")]
    inspector.consider(units, 0.0)
    inspector.tick(0.0)
    until_sync(lambda: pump(inspector, 0.1), 10, "the facts")
    looks = 0
    for now in (1.0, 2.2, 10.0, 29.0):
        inspector.consider(units, now)
        inspector.tick(now)
        if inspector.fds():
            looks += 1
            until_sync(partial(pump, inspector, now), 10, "the look at what has settled")
    assert looks == 1
    inspector.tick(33.0)
    assert inspector.fds()


def test_a_restart_forgets_the_old_processs_command_and_socket_at_once(
    inspector: Inspector, server: Server
) -> None:
    command = f"/opt/v/bin/sglang serve --port {server.port}"
    inspector.consider([block(command, pid=server.pid)], 0.0)
    inspector.tick(0.0)
    until_sync(lambda: pump(inspector, 0.1), 10, "the facts")
    assert inspector.facts("x.service")["listening"] is True
    inspector.consider([block(command)], 1.0)
    facts = inspector.facts("x.service")
    assert (facts["listening"], facts["command"], facts["port"]) == (None, None, server.port)


def test_a_file_that_never_answers_is_hung_and_the_others_are_read(inspector: Inspector, dead: Path) -> None:
    units = [
        block(f"{dead}/run.sh serve", name="a-hung.service"),
        block("/opt/v/bin/python", name="b.service"),
    ]
    inspector.consider(units, 0.0)
    inspector.tick(0.0)
    assert inspector.tick(DEADLINE + 0.1)
    hung = inspector.facts("a-hung.service")
    assert hung["interpreter"] == {
        "missing": "hung",
        "detail": "a process or file of the unit does not answer",
    }

    # The next look asks the one that hung last.
    later = DEADLINE + 1.0
    until_sync(lambda: inspector.tick(later) or inspector.fds(), 10, "the next look")
    until_sync(lambda: is_readable(inspector), 10, "the first answer")
    assert not inspector.ready(later)
    assert inspector.tick(later + DEADLINE + 0.1)
    assert inspector.facts("b.service")["interpreter"] == "/opt/v/bin/python"
    assert inspector.facts("a-hung.service") == hung
