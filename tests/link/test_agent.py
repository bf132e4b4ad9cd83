"""An ssh-agent that is none: it hangs, talks nonsense, or sends without end. The files still get in, and where there
is none, the operator reads what is wrong with the agent."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from dflash_console.config import HostConfig
from dflash_console.errors import LinkError, Refused
from dflash_console.link import connect
from dflash_console.link.ssh import agent
from tests.link.sshd import keygen
from tests.link.world import World

IDENTITIES = 12
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def string(data: bytes) -> bytes:
    return framed(data)


def listing(*keys: bytes) -> bytes:
    items = b"".join(string(key) + string(b"a comment\xff\x1b[2J") for key in keys)
    return framed(bytes([IDENTITIES]) + len(keys).to_bytes(4, "big") + items)


NONSENSE = {
    "nothing": b"",
    "half a length": b"\0\0",
    "half a reply": b"\0\0\1\0\x0c",
    "an empty reply": framed(b""),
    "a huge length": b"\xff\xff\xff\xff" + b"x" * 1000,
    "a large length": (16 << 20).to_bytes(4, "big") + b"x" * 1000,
    "a failure": framed(b"\5"),
    "another reply": framed(b"\x0e" + string(b"signature")),
    "more keys than there are": framed(bytes([IDENTITIES]) + b"\xff\xff\xff\xff"),
    "a key of a huge length": framed(bytes([IDENTITIES]) + b"\0\0\0\1\xff\xff\xff\xff"),
    "an empty key": listing(b""),
    "a key without a type": listing(b"\0\0"),
    "more than the keys": framed(bytes([IDENTITIES]) + b"\0\0\0\0more"),
    "a login banner": b"220 mail.example ESMTP\r\n",
}


@asynccontextmanager
async def serving(path: Path, serve: Serve) -> AsyncIterator[None]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (OSError, EOFError):
            return
        finally:
            writer.close()

    server = await asyncio.start_unix_server(handle, path)
    async with server:
        yield


def saying(data: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        writer.write(data)

    return serve


def known_host(world: World, path: Path) -> None:
    server = world.sshd()
    world.know_server(server)
    section = f"  HostName 127.0.0.1\n  Port {server.port}\n  IdentityAgent {path}\n"
    world.write_config(
        f"Host ct129\n{section}  IdentityFile {world.key}\nHost only\n{section}", identity=False
    )


async def failure(world: World, host: str = "only", within: float = 8) -> LinkError:
    with pytest.raises(LinkError) as caught:
        await connect(HostConfig(host), ssh_config=str(world.config), timeout=within)
    return caught.value


@pytest.mark.parametrize("kind", NONSENSE)
async def test_an_agent_that_talks_nonsense(world: World, kind: str) -> None:
    path = world.folder / "agent.sock"
    known_host(world, path)
    async with serving(path, saying(NONSENSE[kind])):
        assert await world.ours("ct129") is None
        error = await failure(world)
    assert isinstance(error, Refused)
    assert f"the ssh-agent at {path} can't be asked" in str(error)


async def test_an_agent_that_sends_without_end_is_left(world: World) -> None:
    path = world.folder / "agent.sock"
    known_host(world, path)
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"\xff\xff\xff\xff")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with serving(path, flood):
        assert await world.ours("ct129") is None
    assert sent < 8 << 20


@pytest.mark.parametrize("what", ["gone", "a file", "closed"])
async def test_an_agent_that_is_not_there(world: World, what: str) -> None:
    path = world.folder / "agent.sock"
    known_host(world, path)
    if what == "a file":
        path.touch()
    elif what == "closed":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    assert await world.ours("ct129") is None
    assert f"the ssh-agent at {path} can't be asked" in str(await failure(world))


async def test_an_agent_that_hangs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "LIST_TIMEOUT", 0.2)
    path = world.folder / "agent.sock"
    known_host(world, path)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(path, hang):
        assert await world.ours("ct129") is None
        assert f"the ssh-agent at {path} does not answer" in str(await failure(world))


async def test_an_agent_that_lists_its_keys_and_never_signs(world: World) -> None:
    path = world.folder / "agent.sock"
    known_host(world, path)
    key = asyncssh.read_public_key(f"{world.key}.pub").public_data

    async def list_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        writer.write(listing(key))
        await reader.read()

    async with serving(path, list_only):
        error = await failure(world, within=1.5)
    assert isinstance(error, Refused)
    assert f"the ssh-agent at {path} gave no signature for only in 2 s: it waits for somebody" in str(error)


async def test_an_agent_that_refuses_to_sign_leaves_the_other_keys(world: World) -> None:
    path = world.folder / "agent.sock"
    known_host(world, path)
    stranger = keygen(world.folder / "stranger")
    keys = [asyncssh.read_public_key(f"{file}.pub").public_data for file in (stranger, world.key)]

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        writer.write(listing(*keys))
        while True:
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            writer.write(framed(b"\5"))

    async with serving(path, refuse):
        error = await failure(world)
    assert isinstance(error, Refused)
    assert "tried 2 keys: a comment" in str(error)
    assert "the ssh-agent did not sign with a key that the host takes" in str(error)
    assert "\x1b" not in str(error)
