"""Textual starts tasks eagerly where Python can (3.12): the link has to live with that."""

from __future__ import annotations

import asyncio
import sys

import pytest

from dflash_console.config import HostConfig
from dflash_console.errors import Refused
from dflash_console.link import Session, connect
from dflash_console.model import Sample, WatchSpec
from tests.link.sshd import keygen
from tests.link.world import World

SPEC = WatchSpec(0.2, "sglang", [], [], [], [], ["/tmp"])


@pytest.fixture(autouse=True)
async def eager() -> None:
    if sys.version_info < (3, 12):
        pytest.skip("needs Python 3.12")
    else:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)


async def use(host: HostConfig, ssh_config: str | None) -> None:
    session = await Session.open(await connect(host, ssh_config=ssh_config, timeout=20), host)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(session.ping())
        tasks.create_task(session.watch(SPEC))
    async for message in session.messages():
        assert isinstance(message, Sample)
        break
    await session.close()


async def test_this_machine() -> None:
    await use(HostConfig("here", local=True), None)


async def test_a_jump_host_and_keys_from_agent_and_file(world: World) -> None:
    server = world.sshd(ports=2)
    world.know_server(server)
    agent = world.agent(keygen(world.folder / "stranger"))
    world.write_config(
        f"Host bastion\n  HostName 127.0.0.1\n  Port {server.ports[0]}\n  IdentityAgent {agent}\n"
        f"Host ct200\n  HostName 127.0.0.1\n  Port {server.ports[1]}\n  ProxyJump bastion\n"
    )
    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(use(HostConfig("ct200"), str(world.config)))


@pytest.mark.parametrize("keys", [0, 1, 3])
async def test_a_host_that_lets_nobody_in(world: World, keys: int) -> None:
    server = world.sshd()
    world.know_server(server)
    agent = world.agent(*(keygen(world.folder / f"stranger{number}") for number in range(keys)))
    section = f"  HostName 127.0.0.1\n  Port {server.port}\n  IdentityAgent {agent}\n"
    world.write_config(f"Host ct200\n{section}", identity=False)
    with pytest.raises(Refused, match="does not let"):
        await connect(HostConfig("ct200"), ssh_config=str(world.config), timeout=20)
