"""A host that sends without end loses its link, and the others go on as if it were not there."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from dflash_console.config import Config, ConsoleConfig, HostConfig, PackageConfig
from dflash_console.errors import AgentFailed, LinkError
from dflash_console.fleet import Fleet, HostView
from dflash_console.link import Session, connect
from tests.link.programs import behind, instead_of_the_agent
from tests.link.world import World

PYTHON = os.path.realpath(sys.executable)
FLOODS = {
    "samples": 'piece = framed({"type": "sample", "at": 1.0, "paths": []}) * 100',
    "empty samples": 'piece = framed({"type": "sample", "at": 1.0}) * 1000',
    "large samples": 'piece = framed({"type": "sample", "at": 1.0, "venvs": [], "x": [["\\u0001"]] * 100000})',
    "notes": 'piece = framed({"type": "note", "section": "gpu", "text": "x" * 3000}) * 10',
    "answers that nobody asked for": 'piece = framed({"type": "answer", "id": 9, "ok": [[1]] * 90000})',
    "stderr": 'piece, out = b"\\x1b]0;oh\\x07" * 9000, 2',
}
SPEECH = """
import threading

def framed(message):
    payload = json.dumps(message).encode()
    return struct.pack(">IB", len(payload), 0) + payload

def answer():
    while True:
        asked = hear()
        if asked is None:
            os._exit(0)
        os.write(1, framed({"type": "answer", "id": asked["id"], "ok": {"at": time.time()}}))

"""
FLOOD = """
hello()
out = 1
%s
while True:
    os.write(out, piece)
"""
CALM = """
hello()
threading.Thread(target=answer, daemon=True).start()
disk = {"mount": "/", "kind": "ext4", "total": 10, "free": 5}
host = {"hostname": "h", "boot_id": "b", "uptime": 1, "load": [0, 0, 0], "cpus": 1, "memory_total": 1,
        "memory_available": 1, "root": disk, "shm": disk}
while True:
    os.write(1, framed({"type": "sample", "at": time.time(), "host": host}))
    time.sleep(0.2)
"""


def flooding(kind: str) -> str:
    return SPEECH + FLOOD % FLOODS[kind]


async def ending(host: HostConfig, ssh_config: str | None = None) -> LinkError:
    """How a session ends that is only listened to."""
    connection = await connect(host, ssh_config=ssh_config)
    try:
        async with asyncio.timeout(60):
            session = await Session.open(connection, host)
            async for _ in session.messages():
                pass
    except LinkError as error:
        return error
    finally:
        await connection.close()
    raise AssertionError("the messages ended without an error")


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_ends_the_link_and_says_so(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    instead_of_the_agent(monkeypatch, flooding(kind))
    error = await ending(HostConfig("here", local=True))
    assert isinstance(error, AgentFailed)
    assert "no end" in str(error)


@pytest.mark.parametrize("kind", ["samples", "stderr", "answers that nobody asked for"])
async def test_a_flood_over_ssh_ends_the_link_and_says_so(
    monkeypatch: pytest.MonkeyPatch, world: World, kind: str
) -> None:
    server = world.sshd()
    world.know_server(server)
    world.write_config(f"Host ct129\n  HostName 127.0.0.1\n  Port {server.port}\n")
    instead_of_the_agent(monkeypatch, flooding(kind))
    error = await ending(HostConfig("ct129"), str(world.config))
    assert isinstance(error, AgentFailed)
    assert "no end" in str(error)


async def test_a_login_that_floods_stderr_ends_the_link_too(monkeypatch: pytest.MonkeyPatch) -> None:
    behind(monkeypatch, "yes 'buy more disks' >&2")
    error = await ending(HostConfig("here", local=True))
    assert isinstance(error, AgentFailed)
    assert "no end" in str(error)


@pytest.mark.parametrize("kind", ["samples", "notes", "stderr", "answers that nobody asked for"])
async def test_the_other_hosts_stay_fresh_beside_a_flood(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    python = tmp_path / "flooding"
    python.symlink_to(PYTHON)
    flood = FLOOD % FLOODS[kind]
    both = f"exec({flood!r} if sys.executable.endswith('flooding') else {CALM!r})"
    instead_of_the_agent(monkeypatch, SPEECH + both)
    hosts = {
        "flood": HostConfig("flood", local=True, python=str(python)),
        "calm": HostConfig("calm", local=True, python=sys.executable),
    }
    fleet = Fleet(Config(ConsoleConfig(interval=0.2), PackageConfig(), hosts))

    def views() -> tuple[HostView, HostView]:
        flood, calm = fleet.views()
        return flood, calm

    heard: set[float | None] = set()
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(60):
        running = tasks.create_task(fleet.run())
        while views()[1].snapshot is None:
            await fleet.changed()
        while views()[0].failures < 3 or len(heard) < 5:
            await fleet.changed()
            flooding, calm = views()
            heard.add(calm.heard)
            # It would be stale after a silence of three seconds.
            assert calm.link.state == "up"
            if flooding.failures:
                assert flooding.link.state in ("agent_failed", "up")
            if flooding.link.state == "agent_failed":
                assert "no end" in flooding.link.detail
        running.cancel()
