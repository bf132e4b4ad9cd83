"""The same session over a real sshd: nothing of ours stays there, and a lost link is noticed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dflash_console.config import HostConfig
from dflash_console.errors import AgentFailed, LinkError, Refused, Unreachable
from dflash_console.link import Session, connect
from dflash_console.link.ssh import login
from dflash_console.model import Sample, WatchSpec
from tests.link.programs import instead_of_the_agent
from tests.link.sshd import Sshd
from tests.link.world import World
from tests.waiting import until

SPEC = WatchSpec(0.2, "sglang", [], [], [], [], ["/tmp"])
CT129 = HostConfig("ct129")


def served(world: World, *lines: str) -> Sshd:
    server = world.sshd(lines=lines)
    world.know_server(server)
    world.write_config(f"Host ct129\n  HostName 127.0.0.1\n  Port {server.port}\n")
    return server


@asynccontextmanager
async def opened(world: World) -> AsyncIterator[Session]:
    connection = await connect(CT129, ssh_config=str(world.config), timeout=20)
    try:
        session = await Session.open(connection, CT129)
    except BaseException:
        await connection.close()
        raise
    try:
        yield session
    finally:
        await session.close()


async def how_it_ends(session: Session) -> LinkError:
    try:
        async with asyncio.timeout(20):
            async for _ in session.messages():
                pass
    except LinkError as error:
        return error
    raise AssertionError("the messages ended without an error")


async def until_gone(pid: int) -> None:
    await until(lambda: not Path(f"/proc/{pid}").exists(), 10, f"process {pid} ends")


async def test_the_agent_boots_answers_sends_and_ends(world: World) -> None:
    served(world)
    async with opened(world) as session:
        await session.ping()
        await session.watch(SPEC)
        async for message in session.messages():
            if isinstance(message, Sample):
                break
        pid = session.hello.pid
    await until_gone(pid)


async def test_a_killed_sshd_is_a_lost_connection(world: World) -> None:
    server = served(world)
    async with opened(world) as session:
        server.signal(signal.SIGKILL)
        error = await how_it_ends(session)
        assert isinstance(error, Unreachable)
        assert "lost" in str(error)
        with pytest.raises(Unreachable):
            await session.ping()
        await until_gone(session.hello.pid)


async def test_a_frozen_host_is_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "KEEPALIVE_INTERVAL", 0.2)
    server = served(world)
    async with opened(world) as session:
        server.signal(signal.SIGSTOP)
        error = await how_it_ends(session)
        server.signal(signal.SIGCONT)
        assert isinstance(error, Unreachable)
        await until_gone(session.hello.pid)


async def test_a_killed_agent_is_no_lost_connection(world: World) -> None:
    served(world)
    async with opened(world) as session:
        os.kill(session.hello.pid, signal.SIGKILL)
        error = await how_it_ends(session)
    assert isinstance(error, AgentFailed)
    assert "KILL" in str(error) or "exit 137" in str(error)


async def test_a_key_that_may_only_run_one_command(world: World) -> None:
    world.authorized.write_bytes(
        b'restrict,command="echo only backups here" ' + world.authorized.read_bytes()
    )
    served(world)
    connection = await connect(CT129, ssh_config=str(world.config), timeout=20)
    with pytest.raises(Refused, match="only backups here"):
        await Session.open(connection, CT129)
    await connection.close()


async def test_a_host_that_starts_no_program(world: World) -> None:
    served(world, "MaxSessions 0")
    connection = await connect(CT129, ssh_config=str(world.config), timeout=20)
    with pytest.raises(Refused, match="starts no program"):
        await connection.start()
    await connection.close()


async def test_four_channels_and_no_more(world: World) -> None:
    served(world)
    connection = await connect(CT129, ssh_config=str(world.config), timeout=1.5)
    processes = [await connection.start() for _ in range(4)]
    with pytest.raises(Unreachable, match="all 4 channels"):
        await connection.start()
    await processes[0].close()
    await connection.start()
    await connection.close()


async def test_a_flood_that_nobody_reads_is_held_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_the_agent(monkeypatch, "")
    served(world)
    connection = await connect(CT129, ssh_config=str(world.config), timeout=20)
    process = await connection.start()
    source = b"import sys\nwhile True: sys.stdout.buffer.write(b'x' * 65536)\n"
    process.write(b"\n%d\n%s" % (len(source), source))
    total = 0
    while total < 16 << 20:
        piece = await process.read(1 << 15)
        assert 0 < len(piece) <= 1 << 15
        total += len(piece)
    assert process._size < 4 << 20
    await process.close(0.1)
    await connection.close()
