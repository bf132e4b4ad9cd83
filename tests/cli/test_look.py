"""`status` over the real link: this machine, a port where nothing listens, and one that never says a word."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until_sync


def start(folder: Path, tables: str, *words: str) -> subprocess.Popen[str]:
    """The program on a config with these tables, in a folder as its home."""
    file = folder / "config.toml"
    file.write_text(tables)
    return subprocess.Popen(
        [sys.executable, "-m", "dflash_console", "--config", str(file), "status", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(folder)},
    )


def answer(folder: Path, tables: str) -> tuple[int, list[dict[str, Any]], float]:
    """Exit code, hosts of the JSON, and the seconds that it took."""
    began = time.perf_counter()
    process = start(folder, tables, "--json")
    out, err = process.communicate(timeout=60)
    assert err == ""
    return process.returncode, json.loads(out)["hosts"], time.perf_counter() - began


def local(folder: Path) -> str:
    return f'[hosts.here]\nlocal = true\nunits = []\npaths = ["{folder}", "{folder}/nothing"]\n'


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers, as a frozen host does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        yield port


def agents_of(process: subprocess.Popen[str]) -> set[int]:
    """The processes that a running program has started, by /proc."""
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    except FileNotFoundError:
        return set()
    return {int(pid) for pid in children}


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_this_machine_is_told_whole(tmp_path: Path) -> None:
    code, (here,), _ = answer(tmp_path, local(tmp_path))
    assert code in (0, 1)
    assert here["link"]["state"] == "up"
    assert here["hostname"] == socket.gethostname()
    assert here["unread"] == []
    there, nothing = here["paths"]
    assert there["kind"] == "folder"
    assert nothing["kind"]["missing"] == "not_found"
    assert [
        finding["code"] for finding in here["findings"] if finding["subject"] == f"{tmp_path}/nothing"
    ] == ["path_missing"]


def test_a_port_where_nothing_listens_is_unreachable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    tables = local(tmp_path) + f'[hosts.gone]\naddress = "127.0.0.1"\nport = {port}\n'
    code, (here, gone), seconds = answer(tmp_path, tables)
    assert code == 3
    assert (here["link"]["state"], gone["link"]["state"]) == ("up", "unreachable")
    assert "refuses connections" in gone["link"]["detail"]
    assert seconds < 15


def test_a_host_that_never_says_a_word_is_given_up_in_time(tmp_path: Path, silent_port: int) -> None:
    tables = local(tmp_path) + f'[hosts.frozen]\naddress = "127.0.0.1"\nport = {silent_port}\n'
    code, (here, frozen), seconds = answer(tmp_path, tables)
    assert code == 3
    assert (here["link"]["state"], frozen["link"]["state"]) == ("up", "unreachable")
    assert frozen["link"]["detail"]
    assert seconds < 15


def test_ctrl_c_ends_it_quietly_and_leaves_no_agent(tmp_path: Path, silent_port: int) -> None:
    tables = local(tmp_path) + f'[hosts.frozen]\naddress = "127.0.0.1"\nport = {silent_port}\n'
    process = start(tmp_path, tables)
    agents = until_sync(lambda: agents_of(process), 30, "the agent on this machine")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out + err.strip() == ""
    until_sync(lambda: not any(map(is_running, agents)), 30, "the agent's end")


def test_no_agent_is_left_behind(tmp_path: Path, silent_port: int) -> None:
    tables = local(tmp_path) + f'[hosts.frozen]\naddress = "127.0.0.1"\nport = {silent_port}\n'
    process = start(tmp_path, tables)
    agents = until_sync(lambda: agents_of(process), 30, "the agent on this machine")
    process.communicate(timeout=30)
    assert process.returncode == 3
    assert not any(map(is_running, agents))
