"""However a connect ends, and wherever it is given up: no file, no task, no child and no thread stays behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import types
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dflash_console.config import HostConfig
from dflash_console.errors import LinkError, Refused, Unreachable
from dflash_console.link import connect
from dflash_console.link.process import Connection
from dflash_console.link.ssh import sockets
from dflash_console.link.ssh.connection import SshConnection
from dflash_console.link.ssh.sockets import Tunnel
from tests.link.sshd import Sshd
from tests.link.world import World
from tests.waiting import until

CT129 = HostConfig("ct129")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def children() -> set[int]:
    """Of this process; a zombie is one, too."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == os.getpid():
                found.add(int(stat.parent.name))
    return found


def holdings() -> tuple[int, int, int, int]:
    return open_files(), len(asyncio.all_tasks()), len(children()), threading.active_count()


async def until_back_to(before: tuple[int, int, int, int], what: str) -> None:
    # The default pool of the loop keeps its threads: asyncssh uses it.
    await until(
        lambda: all(now <= then for now, then in zip(holdings(), before, strict=True)),
        10,
        f"{what}: no more than {before} (files, tasks, children, threads)",
    )


@types.coroutine
def cancelled_at(
    place: int, work: Coroutine[Any, Any, Connection], seen: list[int]
) -> Generator[Any, Any, Connection]:
    """Does the work and cancels the task when it waits for the `place`-th time."""
    task = asyncio.current_task()
    assert task is not None
    value, error, number = None, None, 0
    while True:
        try:
            waits_for = work.send(value) if error is None else work.throw(error)
        except StopIteration as end:
            result: Connection = end.value
            return result
        number += 1
        seen[0] = number
        if number == place:
            task.get_loop().call_soon(task.cancel)
        value, error = None, None
        try:
            value = yield waits_for
        except BaseException as raised:  # noqa: BLE001 - handed on to the work
            error = raised


def section(server: Sshd, number: int = 0) -> str:
    return f"  HostName 127.0.0.1\n  Port {server.ports[number]}\n"


def direct(world: World, server: Sshd) -> str:
    return section(server)


def by_agent(world: World, server: Sshd) -> str:
    return f"{section(server)}  IdentityAgent {world.agent(world.key)}\n"


def by_jump_host(world: World, server: Sshd) -> str:
    return f"{section(server)}  ProxyJump bastion\nHost bastion\n{section(server, 1)}"


def by_proxy_command(world: World, server: Sshd) -> str:
    # With a child that holds on to nothing and does not end by itself.
    return (
        f'{section(server)}  ProxyCommand sh -c \'trap "" HUP; sleep 600 </dev/null >/dev/null & '
        f"exec {sys.executable} {relay(world)} %h %p'\n"
    )


def by_passed_socket(world: World, server: Sshd) -> str:
    script = world.folder / "pass.py"
    script.write_text(
        "import socket, sys, time\n"
        "there = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "socket.send_fds(socket.socket(fileno=1), [b'x'], [there.fileno()])\n"
        "time.sleep(600)\n"
    )
    return f"{section(server)}  ProxyUseFdpass yes\n  ProxyCommand {sys.executable} {script} %h %p\n"


def relay(world: World) -> Path:
    script = world.folder / "relay.py"
    script.write_text(
        "import os, socket, sys, threading\n"
        "there = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def up():\n"
        "    while data := os.read(0, 65536): there.sendall(data)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := there.recv(65536): os.write(1, data)\n"
    )
    return script


def in_group_of(world: World) -> list[int]:
    """The processes that a ProxyCommand started, by their working folder."""
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if cwd.readlink() == world.folder:
                found.append(int(cwd.parent.name))
    return found


@pytest.mark.parametrize("way", [direct, by_agent, by_jump_host, by_proxy_command, by_passed_socket])
async def test_a_connect_may_be_given_up_anywhere(
    world: World, monkeypatch: pytest.MonkeyPatch, way: Callable[[World, Sshd], str]
) -> None:
    # So that whatever a ProxyCommand starts can be told by its working folder.
    monkeypatch.chdir(world.folder)
    server = world.sshd(ports=2, lines=["MaxStartups 100"])
    world.know_server(server)
    world.write_config(f"Host ct129\n{way(world, server)}", identity=way is not by_agent)
    seen = [0]

    async def attempt(place: int) -> None:
        work = connect(CT129, ssh_config=str(world.config), timeout=20)
        assert asyncio.iscoroutine(work)
        connection = await cancelled_at(place, work, seen)
        await connection.close()

    await attempt(0)
    mine = set(in_group_of(world))
    before = holdings()
    most = seen[0]
    assert most > 5
    for place in range(1, most + 1):
        with suppress(asyncio.CancelledError):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(attempt(place))
        # One more thread each for the pool of the loop, which is kept.
        await until_back_to((*before[:3], before[3] + place), f"given up at wait {place} of {most}")
        await until(lambda: set(in_group_of(world)) <= mine, 10, f"{place}: what the command started is gone")


async def test_a_proxy_command_ends_with_all_that_it_started(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.folder)
    server = world.sshd()
    world.know_server(server)
    mine = set(in_group_of(world))
    world.write_config(
        f"Host ct129\n{by_proxy_command(world, server)}"
        f"Host dead\n  ProxyCommand sh -c 'trap \"\" HUP; sleep 600 & echo no way >&2; sleep 600'\n"
        f"Host deaf\n  ProxyUseFdpass yes\n  ProxyCommand sh -c 'trap \"\" HUP; sleep 600 & sleep 600'\n"
        "Host flood\n  ProxyCommand sh -c 'trap \"\" HUP; yes >&2 & sleep 600'\n"
    )
    before = open_files()
    connection = await connect(CT129, ssh_config=str(world.config), timeout=20)
    assert len(set(in_group_of(world)) - mine) == 2
    await connection.close()
    for host in ("dead", "deaf", "flood"):
        with pytest.raises(Unreachable) as caught:
            await connect(HostConfig(host), ssh_config=str(world.config), timeout=1.0)
        assert "ProxyCommand still runs" in str(caught.value)
        assert len(str(caught.value)) < 2000
    await until(lambda: set(in_group_of(world)) <= mine, 10, "all of them are gone")
    await until(lambda: open_files() <= before, 10, "their files are closed")


async def test_a_proxy_command_that_prints_without_end_is_listened_to_now_and_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "LISTENING", 3600.0)
    sizes = []
    read = os.read

    def note(file: int, size: int) -> bytes:
        sizes.append(size)
        return read(file, size)

    monkeypatch.setattr(os, "read", note)
    world.write_config("Host ct129\n  ProxyCommand sh -c 'yes >&2'\n")
    with pytest.raises(Unreachable, match="and said 'y"):
        await connect(CT129, ssh_config=str(world.config), timeout=1.0)
    assert 0 < len(sizes) < 100


async def test_what_is_passed_but_no_socket_is_no_way(world: World) -> None:
    script = world.folder / "pass.py"
    script.write_text(
        "import os, socket\nsocket.send_fds(socket.socket(fileno=1), [b'x'], [os.open('/dev/null', 0)])\n"
    )
    world.write_config(f"Host ct129\n  ProxyUseFdpass yes\n  ProxyCommand {sys.executable} {script}\n")
    assert isinstance(await world.ours("ct129"), Unreachable)
    before = open_files()
    assert isinstance(await world.ours("ct129"), Unreachable)
    await until(lambda: open_files() <= before, 10, "it is closed")


# ---- jump hosts


async def test_a_jump_host_that_dies_during_a_login_behind_it_is_named(world: World) -> None:
    server = world.sshd()
    world.know_server(server)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        world.write_config(
            f"Host bastion\n{section(server)}"
            f"Host ct129\n  HostName 127.0.0.1\n  Port {frozen.getsockname()[1]}\n  ProxyJump bastion\n"
        )
        before = holdings()

        async def give_up() -> LinkError | None:
            return await world.ours("ct129")

        async with asyncio.TaskGroup() as tasks:
            trying = tasks.create_task(give_up())
            loop = asyncio.get_running_loop()
            frozen.setblocking(False)
            there, _ = await loop.sock_accept(frozen)
            server.signal(signal.SIGKILL)
        there.close()
        error = trying.result()
    assert type(error) is Unreachable
    assert "the connection to jump host bastion was lost while ct129 was logged in to" in str(error)
    await until_back_to((*before[:3], before[3] + 4), "the jump host is left")


async def test_a_jump_host_that_hangs_up_after_the_login_is_named(world: World) -> None:
    if os.geteuid() != 0:
        pytest.skip("it is about root")
    jump = world.sshd(lines=["PermitRootLogin forced-commands-only"])
    world.know_server(jump)
    world.write_config(f"Host bastion\n{section(jump)}Host ct129\n{section(jump)}  ProxyJump bastion\n")
    error = await world.ours("ct129")
    assert isinstance(error, LinkError)
    assert "jump host bastion" in str(error)


async def test_a_way_through_a_jump_host_that_opens_too_late_is_closed(world: World) -> None:
    server = world.sshd()
    world.know_server(server)
    world.write_config(f"Host ct129\n{section(server)}")
    bastion = await connect(CT129, ssh_config=str(world.config), timeout=20)
    assert isinstance(bastion, SshConnection)
    tunnel = Tunnel(bastion._hop.connection)
    with socket.create_server(("127.0.0.1", 0)) as target:
        target.settimeout(20)
        server.signal(signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await tunnel.create_connection(never, "127.0.0.1", target.getsockname()[1])
        server.signal(signal.SIGCONT)
        there, _ = await asyncio.to_thread(target.accept)
        there.settimeout(20)
        with there:
            assert await asyncio.to_thread(there.recv, 1) == b""
    await bastion.close()


def never() -> Any:
    raise AssertionError("nobody waits for this connection")


# ---- what comes back from the host


async def test_whatever_the_ssh_library_raises_is_told_as_a_link_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncssh

    # A key whose modulus is negative makes it raise OverflowError.
    key = asyncssh.generate_private_key("ssh-rsa", key_size=2048)
    pair = asyncssh.load_keypairs([key])[0]
    pair.public_data = b"\0\0\0\x07ssh-rsa\0\0\0\3\1\0\1\0\0\0\1\xff"
    server = await asyncssh.listen("127.0.0.1", 0, server_host_keys=[pair])
    try:
        world.write_config(f"Host ct129\n  HostName 127.0.0.1\n  Port {server.get_port()}\n")
        error = await world.ours("ct129")
    finally:
        server.close()
        await server.wait_closed()
    assert isinstance(error, LinkError)
    assert not isinstance(error, Refused)
