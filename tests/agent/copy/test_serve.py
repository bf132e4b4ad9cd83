"""The copy process's loop: one answer to each request, and an end in every way that a console or a host may choose."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.copy.client import Client, Refusal
from tests.agent.copy.trees import copying, package
from tests.agent.driver import children_of, is_gone
from tests.agent.environments import make_venv, pythons
from tests.waiting import until_sync

LARGE = 8 << 20
"""Bytes; more than any pipe holds."""


@pytest.fixture
def client() -> Iterator[Client]:
    with copying() as client:
        yield client


@pytest.fixture
def large(venv: Path, site: Path) -> Path:
    """An environment whose package does not fit into a pipe."""
    (package(site) / "large.bin").write_bytes(os.urandom(LARGE))
    return venv


def indexes(client: Client) -> list[int]:
    return [number for number, entry in enumerate(client.entries) if entry.kind == "file"]


@pytest.mark.parametrize("minor", list(pythons()))
def test_it_looks_reads_and_sends_as_shipped_on_every_python(tmp_path: Path, minor: str) -> None:
    site = make_venv(tmp_path / "venv")
    folder = package(site)
    (folder / "large.bin").write_bytes(os.urandom(5 << 20))
    with copying(pythons()[minor]) as client:
        look = client.look(tmp_path / "venv")
        assert (look.state, look.version, look.dist_version) == ("whole", "0.5.9", "0.5.9")
        for compress in (False, True):
            found = client.send(indexes(client), compress=compress)
            assert found == {
                entry.path: (site / entry.path).read_bytes()
                for entry in client.entries
                if entry.kind == "file"
            }
        path = "sglang/srt/server.py"
        told = client.request("read", venv=str(tmp_path / "venv"), package="sglang", path=path, limit=100)
        assert told == {"size": 1500, "is_cut": True}
        assert b"".join(client.blocks) == (site / path).read_bytes()[:100]


def test_a_request_that_fails_is_answered_and_the_process_stays(
    client: Client, venv: Path, site: Path
) -> None:
    package(site)
    for do, fields, words in (
        ("dance", {}, "knows no request 'dance'"),
        ("look", {}, "KeyError"),
        ("send", {"files": [0]}, "nothing was looked at"),
        ("expect", {"entries": []}, "claim"),
        ("swap", {}, "claim"),
    ):
        with pytest.raises(Refusal, match=words):
            client.request(do, **fields)
    assert client.request("release") is None
    assert client.look(venv).state == "whole"
    with pytest.raises(Refusal, match="no entry 4000"):
        client.request("send", files=[4000])
    with pytest.raises(Refusal, match="no entry -1"):
        client.request("send", files=[-1])
    with pytest.raises(Refusal, match="not among the package's files"):
        client.request("read", venv=str(venv), package="sglang", path="../../../pyvenv.cfg", limit=10)
    assert client.request("ping")["at"] > 1e9


def test_requests_may_be_asked_before_the_first_is_answered_and_come_in_any_pieces(
    client: Client, venv: Path, site: Path
) -> None:
    package(site)
    asked = [("look", 7), ("ping", 8), ("look", 9)]
    data = b""
    for do, number in asked:
        payload = json.dumps({"do": do, "id": number, "venv": str(venv), "package": "sglang"}).encode()
        data += struct.pack(">IB", len(payload), 0) + payload
    for at in range(0, len(data), 5):
        os.write(client.stdin.fileno(), data[at : at + 5])
    answered: list[int] = []
    while len(answered) < 3:
        message = json.loads(client.frame()[1])
        if message["type"] == "answer":
            answered.append(message["id"])
    assert sorted(answered) == [7, 8, 9]
    assert answered.index(7) < answered.index(9)


def test_a_ping_is_answered_while_a_file_is_sent_and_pace_counts_from_the_next_block(
    client: Client, venv: Path, site: Path
) -> None:
    (package(site) / "large.bin").write_bytes(b"text " * (LARGE // 5))
    client.look(venv)
    entries = client.entries
    (index,) = (number for number, entry in enumerate(entries) if entry.path.endswith("large.bin"))
    number = client.ask("send", files=[index], compress=False)
    assert client.frame()[0] == 1
    pinged = client.ask("ping")
    paced = client.ask("pace", compress=True)
    codecs: list[int] = []
    answered: list[int] = []
    while number not in answered:
        kind, payload = client.frame()
        if kind == 1:
            codecs.append(payload[0])
        else:
            answered.append(json.loads(payload)["id"])
    assert answered == [pinged, paced, number]
    assert codecs == sorted(codecs)
    assert codecs[-1] == 1


ENDS = ["eof", "SIGTERM", "SIGHUP", "SIGINT", "stdout"]


def end(client: Client, how: str) -> None:
    """What a console that goes, or a host that shuts down, does to the process."""
    if how == "eof":
        client.stdin.close()
    elif how == "stdout":
        client.stdout.close()
        client.stdin.close()
    else:
        client.process.send_signal(getattr(signal, how))


def begin(client: Client, venv: Path, request: str) -> None:
    """Bring the process to where it waits, in the middle of a request."""
    if request in ("send", "read"):
        client.look(venv)
        path = next(entry.path for entry in client.entries if entry.path.endswith("large.bin"))
        index = next(number for number, entry in enumerate(client.entries) if entry.path == path)
        if request == "send":
            client.ask("send", files=[index])
        else:
            client.ask("read", venv=str(venv), package="sglang", path=path, limit=2 << 20)
        # It has begun, and the pipe is too small for the rest.
        assert client.stdout.read(1) == b"\0"
    elif request == "waiting":
        client.request("ping")


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("request_", ["waiting", "send", "read"])
def test_it_ends_whatever_ends_it_and_whatever_it_waits_for(
    client: Client, large: Path, request_: str, how: str
) -> None:
    begin(client, large, request_)
    end(client, how)
    assert client.ended() == 0


@pytest.mark.parametrize("how", ENDS)
def test_it_ends_in_the_middle_of_a_look(client: Client, venv: Path, site: Path, how: str) -> None:
    # So much that it takes seconds, and none of it takes room on the disk.
    with (package(site) / "sparse.bin").open("wb") as file:
        file.truncate(1 << 40)
    client.ask("look", venv=str(venv), package="sglang", entries=True)
    assert json.loads(client.frame()[1])["type"] == "progress"
    children = children_of(client.process.pid)
    end(client, how)
    assert client.ended() == 0
    until_sync(lambda: all(is_gone(pid) for pid in children), 10, "the children have ended")


@pytest.mark.parametrize("request_", ["waiting", "send", "read"])
def test_it_ends_when_the_console_is_silent(large: Path, request_: str) -> None:
    with copying(heartbeat=1.0) as client:
        begin(client, large, request_)
        assert client.ended() == 0


def test_work_that_takes_longer_than_the_heartbeat_does_not_end_it(venv: Path, site: Path) -> None:
    with (package(site) / "sparse.bin").open("wb") as file:
        file.truncate(1 << 30)
    with copying(heartbeat=0.2) as client:
        number = client.ask("look", venv=str(venv), package="sglang", entries=False)
        assert client.take(number)["size"] > 1 << 30


def test_a_console_that_pings_while_it_does_not_read_keeps_the_process(large: Path) -> None:
    with copying(heartbeat=1.0) as client:
        begin(client, large, "send")
        for _ in range(6):
            client.ask("ping")
            end_of_pause = os.times().elapsed + 0.4
            until_sync(lambda end=end_of_pause: os.times().elapsed > end, 60, "a while has passed")  # type: ignore[misc]
        assert client.process.poll() is None


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">IB", 1 << 30, 0),
        struct.pack(">IB", (4 << 20) + 1, 1),
        struct.pack(">IB", 2, 7) + b"{}",
        struct.pack(">IB", 2, 0) + b"][",
        struct.pack(">IB", 2, 0) + b"{}",
        struct.pack(">IB", 2, 0) + b"[]",
        struct.pack(">IB", 100_000, 0) + b"[" * 100_000,
    ],
    ids=["huge", "huge raw", "strange", "no JSON", "no request", "a list", "deep"],
)
def test_what_is_no_request_of_a_console_ends_it_with_words(client: Client, frame: bytes) -> None:
    os.write(client.stdin.fileno(), frame[: 1 << 16])
    if len(frame) > 1 << 16:
        client.stdin.write(frame[1 << 16 :])
        client.stdin.flush()
    assert client.ended() == 1
    assert "does not speak this agent's protocol" in client.errors()


def test_data_that_nobody_wants_any_more_is_dropped(client: Client) -> None:
    client.write(1, b"x" * 300_000)
    assert client.request("ping")["at"] > 1e9


def test_no_other_errand_is_known() -> None:
    from dflash_console.agent.main import main

    with pytest.raises(ValueError, match="no errand"):
        main(30.0, "dance")


def modules_after(statement: str) -> set[str]:
    code = f"{statement}; import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stdout))


def test_only_the_errand_pays_for_copying_and_only_the_standard_library() -> None:
    watching = modules_after("import dflash_console.agent.main")
    assert not [name for name in watching if ".agent.copy" in name]
    rooms = "looking, sending, serve, target, target_requests"
    ours = {
        name.partition(".")[0] for name in modules_after(f"from dflash_console.agent.copy import {rooms}")
    }
    assert ours - modules_after("pass") - set(sys.stdlib_module_names) == {"dflash_console"}
    # Each costs a host more memory or time than its use is worth.
    dear = {
        "asyncio",
        "typing",
        "dataclasses",
        "logging",
        "multiprocessing",
        "subprocess",
        "concurrent",
        "ssl",
    }
    assert ours & dear == set()
