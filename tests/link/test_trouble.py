"""What an operator reads when a host can't be reached, and that one such host costs the others nothing."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dflash_console.config import HostConfig
from dflash_console.errors import LinkError, Refused, Unreachable
from dflash_console.link import connect, turns
from dflash_console.link.ssh import agent
from tests.link.sshd import free_ports
from tests.link.world import World
from tests.waiting import until


def at_port(world: World, port: int, more: str = "") -> HostConfig:
    """A host of the config behind a loopback port."""
    world.write_config(f"Host ct129\n  HostName 127.0.0.1\n  Port {port}\n{more}")
    return HostConfig("ct129")


async def failure(world: World, host: HostConfig, within: float = 0.5) -> LinkError:
    with pytest.raises(LinkError) as caught:
        await connect(host, ssh_config=str(world.config), timeout=within)
    return caught.value


@contextmanager
def black_hole() -> Iterator[int]:
    """A port that answers no connection: the kernel drops what comes to a listener whose queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        try:
            yield listener.getsockname()[1]
        finally:
            for filler in fillers:
                filler.close()


async def test_a_port_that_refuses(world: World) -> None:
    port = free_ports(1)[0]
    error = await failure(world, at_port(world, port))
    assert type(error) is Unreachable
    assert f"port {port} of 127.0.0.1 refuses connections" in str(error)


async def test_a_host_that_is_off(world: World) -> None:
    with black_hole() as port:
        error = await failure(world, at_port(world, port))
    assert type(error) is Unreachable
    assert "does not answer" in str(error)
    assert f"127.0.0.1 port {port}" in str(error)


async def test_a_host_that_is_off_behind_a_jump_host(world: World) -> None:
    server = world.sshd()
    world.know_server(server)
    with black_hole() as port:
        world.write_config(
            f"Host bastion\n  HostName 127.0.0.1\n  Port {server.port}\n"
            f"Host ct129\n  HostName 127.0.0.1\n  Port {port}\n  ProxyJump bastion\n"
        )
        error = await failure(world, HostConfig("ct129"), within=2)
    assert type(error) is Unreachable
    assert f"ct129 does not answer jump host bastion: no connection to 127.0.0.1 port {port}" in str(error)


async def test_a_frozen_host(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        error = await failure(world, at_port(world, listener.getsockname()[1]))
    assert type(error) is Unreachable
    assert "sent no SSH banner" in str(error)


async def test_a_frozen_sshd(world: World) -> None:
    server = world.sshd()
    world.know_server(server)
    server.signal(signal.SIGSTOP)
    error = await failure(world, at_port(world, server.port))
    assert "sent no SSH banner" in str(error)


async def test_the_configs_connect_timeout_comes_first(world: World) -> None:
    with black_hole() as port:
        error = await failure(world, at_port(world, port, "  ConnectTimeout 1\n"), within=30)
    assert "in 1 s" in str(error)


async def test_something_that_is_no_sshd(world: World) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        error = await failure(world, at_port(world, server.sockets[0].getsockname()[1]), within=5)
    assert type(error) is Unreachable
    assert "closed it before its SSH banner" in str(error)


async def test_an_sshd_at_its_limit_of_startups(world: World) -> None:
    server = world.sshd(lines=["MaxStartups 1"])
    world.know_server(server)
    with socket.create_connection(("127.0.0.1", server.port)) as holder:
        assert holder.recv(4) == b"SSH-"
        error = await failure(world, at_port(world, server.port), within=5)
    assert type(error) is Unreachable
    assert "MaxStartups" in str(error)


async def test_a_name_that_nobody_knows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*arguments: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    world.write_config("Host ct129\n  HostName ct129.invalid\n")
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    error = await failure(world, HostConfig("ct129"))
    assert type(error) is Unreachable
    assert "ct129.invalid" in str(error)
    assert "Name or service not known" in str(error)


async def test_a_name_that_can_be_none(world: World) -> None:
    world.write_config("Host ct129\n  HostName a..b\n")
    assert type(await failure(world, HostConfig("ct129"))) is Unreachable


async def test_a_name_server_that_hangs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(*arguments: object) -> object:
        asyncio.run_coroutine_threadsafe(is_over.wait(), loop).result()
        return []

    world.write_config("Host ct129\n  HostName ct129.invalid\n")
    monkeypatch.setattr(socket, "getaddrinfo", hang)
    error = await failure(world, HostConfig("ct129"))
    is_over.set()
    assert "DNS does not answer" in str(error)


async def test_a_user_whom_nobody_lets_in(world: World) -> None:
    banner = world.folder / "banner"
    banner.write_text("authorized staff only\x1b[2J\n")
    server = world.sshd(lines=[f"Banner {banner}"])
    world.know_server(server)
    world.authorized.write_text("")
    error = await failure(world, at_port(world, server.port), within=8)
    assert type(error) is Refused
    assert error.is_lasting
    text = str(error)
    assert f"does not let {server.user} in" in text
    assert f"tried 1 key: {world.key}" in text
    assert f"`ssh -v -F {world.config} ct129` tells more" in text
    assert "the host says 'authorized staff only'" in text


async def test_an_agent_that_hangs_costs_the_files_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "LIST_TIMEOUT", 0.2)
    server = world.sshd()
    world.know_server(server)
    path = world.folder / "deaf.sock"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(path))
        deaf.listen()
        host = at_port(world, server.port, f"  IdentityAgent {path}\n")
        connection = await connect(host, ssh_config=str(world.config), timeout=8)
        await connection.close()


async def test_ssh_is_not_installed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write_config("")
    monkeypatch.setenv("PATH", str(world.folder))
    assert "install OpenSSH's client" in str(await failure(world, HostConfig("ct129")))


# ---- together


async def test_hosts_that_are_off_do_not_hold_up_one_that_is_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LENGTH", 0.2)
    server = world.sshd()
    world.know_server(server)
    with black_hole() as port:
        world.write_config(
            f"Host up\n  HostName 127.0.0.1\n  Port {server.port}\n"
            f"Host off*\n  HostName 127.0.0.1\n  Port {port}\n"
        )

        async def try_off(number: int) -> None:
            with pytest.raises(Unreachable):
                await connect(HostConfig(f"off{number}"), ssh_config=str(world.config), timeout=20)

        async with asyncio.TaskGroup() as tasks:
            trying = [tasks.create_task(try_off(number)) for number in range(30)]
            start = time.monotonic()
            connection = await connect(HostConfig("up"), ssh_config=str(world.config), timeout=20)
            assert time.monotonic() - start < 10
            assert not any(task.done() for task in trying)
            await connection.close()
            for task in trying:
                task.cancel()


async def test_few_connect_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "AT_ONCE", 3)
    monkeypatch.setattr(turns, "LENGTH", 60.0)
    at_once, most = 0, 0
    three = asyncio.Barrier(3)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await reader.readline()
        await three.wait()
        at_once -= 1
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host = at_port(world, server.sockets[0].getsockname()[1])
        found = await asyncio.gather(*(failure(world, host, within=20) for _ in range(9)))
    assert len(found) == 9
    assert most == 3


async def test_hosts_behind_one_jump_host_share_its_connection(world: World) -> None:
    jump, targets = world.sshd(), world.sshd(ports=4)
    world.know_server(jump)
    world.know_server(targets)
    world.write_config(
        f"Host bastion\n  HostName 127.0.0.1\n  Port {jump.port}\n"
        + "".join(
            f"Host ct{number}\n  HostName 127.0.0.1\n  Port {port}\n  ProxyJump bastion\n"
            for number, port in enumerate(targets.ports)
        )
    )
    hosts = [HostConfig(f"ct{number}") for number in range(4)]
    connections = await asyncio.gather(
        *(connect(host, ssh_config=str(world.config), timeout=20) for host in hosts)
    )

    def logins() -> int:
        return sum("Connection from" in line for line in jump.log)

    def goodbyes() -> int:
        return sum("Disconnected from" in line for line in jump.log)

    assert logins() == 1
    for connection in connections[:3]:
        await connection.close()
    again = await connect(hosts[0], ssh_config=str(world.config), timeout=20)
    assert (logins(), goodbyes()) == (1, 0)
    await again.close()
    await connections[3].close()
    await until(lambda: goodbyes() == 1, 10, "the last host leaves the jump host")
    back = await connect(hosts[0], ssh_config=str(world.config), timeout=20)
    assert logins() == 2
    await back.close()


async def test_a_dead_jump_host_costs_one_time_out_for_all_behind_it(world: World) -> None:
    with black_hole() as port:
        world.write_config(
            f"Host bastion\n  HostName 127.0.0.1\n  Port {port}\n"
            "Host ct*\n  HostName 127.0.0.1\n  Port 1\n  ProxyJump bastion\n"
        )
        start = time.monotonic()
        found = await asyncio.gather(
            *(failure(world, HostConfig(f"ct{number}"), within=2.0) for number in range(6))
        )
    assert time.monotonic() - start < 8
    assert all("jump host bastion does not answer" in str(error) for error in found)


async def test_a_connect_that_is_given_up_leaves_nothing_open(world: World) -> None:
    server = world.sshd(ports=2)
    world.know_server(server)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        world.write_config(
            f"Host bastion\n  HostName 127.0.0.1\n  Port {server.port}\n"
            f"Host ct200\n  HostName 127.0.0.1\n  Port {frozen.getsockname()[1]}\n  ProxyJump bastion\n"
        )
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await connect(HostConfig("ct200"), ssh_config=str(world.config), timeout=60)
    await until(
        lambda: any("Disconnected from" in line or "Connection closed" in line for line in server.log),
        10,
        "the jump host is left",
    )
