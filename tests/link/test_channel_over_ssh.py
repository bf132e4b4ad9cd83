"""A copy process over a real sshd: on the connection of the session, ended with it, and nothing of it stays."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from dflash_console.config import Config, ConsoleConfig, HostConfig, PackageConfig
from dflash_console.errors import LinkError, Unreachable
from dflash_console.fleet import Fleet, HostView
from dflash_console.link import Channel
from tests.link.programs import instead_of_the_agent
from tests.link.sshd import Sshd
from tests.link.world import World
from tests.waiting import until

WAIT = 20.0


def served(world: World) -> Sshd:
    server = world.sshd()
    world.know_server(server)
    world.write_config(f"Host ct129\n  HostName 127.0.0.1\n  Port {server.port}\n")
    return server


@asynccontextmanager
async def watching(world: World) -> AsyncIterator[Fleet]:
    """A console's fleet of one host, once it is up."""
    hosts = {"ct129": HostConfig("ct129", venvs=[], units=[])}
    fleet = Fleet(Config(ConsoleConfig(ssh_config=str(world.config)), PackageConfig(), hosts))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(fleet.run())
        try:
            await until(lambda: view(fleet).link.state == "up", WAIT, "the host is up")
            yield fleet
        finally:
            running.cancel()


def view(fleet: Fleet) -> HostView:
    return fleet.views()[0]


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def look(channel: Channel, folder: Path) -> dict[str, object]:
    raw = await channel.request("look", WAIT, venv=str(folder), package="sglang", entries=False)
    found: dict[str, object] = msgspec.json.decode(raw)
    return found


async def look_on(channel: Channel, folder: Path) -> None:
    """Looks again and again, until it ends with an error."""
    while True:
        await look(channel, folder)


async def test_a_channel_is_kept_for_its_next_use_and_ends_with_the_console(
    world: World, tmp_path: Path
) -> None:
    served(world)
    async with watching(world) as fleet:
        async with fleet.channel("ct129") as channel:
            assert (await look(channel, tmp_path))["state"] == "broken"
            pid = channel.hello.pid
        async with fleet.channel("ct129") as again:
            assert again is channel
            async with fleet.channel("ct129") as other:
                assert other.hello.pid != pid
                assert (await look(other, tmp_path))["state"] == "broken"
        assert is_running(pid) != is_running(other.hello.pid), "one is kept, one was ended"
        kept = pid if is_running(pid) else other.hello.pid
    await until(lambda: not is_running(kept), WAIT, "the kept one ends with its console")


async def test_a_channel_that_was_used_for_a_change_is_not_kept(world: World) -> None:
    served(world)
    async with watching(world) as fleet:
        async with fleet.channel("ct129") as channel:
            channel.is_used_up = True
        assert not is_running(channel.hello.pid)
        async with fleet.channel("ct129") as other:
            assert other is not channel


async def test_a_block_that_fails_ends_its_channel(world: World) -> None:
    served(world)
    async with watching(world) as fleet:
        with pytest.raises(ZeroDivisionError):
            async with fleet.channel("ct129") as channel:
                raise ZeroDivisionError
        assert not is_running(channel.hello.pid)


async def test_a_lost_link_ends_the_channel_in_words_and_its_process_on_the_host(
    world: World, tmp_path: Path
) -> None:
    server = served(world)
    async with watching(world) as fleet:
        pid = 0

        async def ask() -> None:
            nonlocal pid
            async with fleet.channel("ct129") as channel:
                pid = channel.hello.pid
                server.signal(signal.SIGKILL)
                with pytest.raises(LinkError):
                    await look_on(channel, tmp_path)

        await ask()
        await until(lambda: view(fleet).link.state != "up", WAIT, "the host is away")
        await until(lambda: not is_running(pid), WAIT, "its process ends")
        with pytest.raises(Unreachable, match="not connected"):
            async with fleet.channel("ct129"):
                pass


async def test_a_session_that_ends_takes_its_channels_along(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    served(world)
    async with watching(world) as fleet:
        instead_of_the_agent(monkeypatch, "hello()\nhear(); hear(); hear()\n")
        session = fleet._watchers["ct129"]._session
        assert session is not None

        waiting = asyncio.Event()

        async def ask() -> None:
            async with fleet.channel("ct129") as channel:
                number = channel.ask("look")
                waiting.set()
                with pytest.raises(LinkError):
                    await channel.answer(number, WAIT)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ask())
            await waiting.wait()
            await session.close()


async def test_a_transfer_does_not_hold_up_the_samples(world: World, tmp_path: Path) -> None:
    served(world)
    body = """
hello()
asked = hear()
for number in range(200):
    frame(b"x" * (1 << 20), 1)
say(type="answer", id=asked["id"], ok=None)
hear()
"""

    async def take(piece: bytes) -> None:
        pass

    with pytest.MonkeyPatch.context() as patch:
        async with watching(world) as fleet:
            instead_of_the_agent(patch, body)
            heard = view(fleet).heard
            async with fleet.channel("ct129") as channel:
                channel.grant(300 << 20)
                await channel.request("send", 60.0, data=take)
            await until(lambda: view(fleet).heard != heard, WAIT, "a sample came")
            assert view(fleet).link.state == "up"
