"""The bytes under SSH: a TCP connection, or a ProxyCommand behind one end of a socket pair."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
from contextlib import suppress
from typing import cast

from dflash_console.errors import Unreachable
from dflash_console.link.clean import clean_bytes
from dflash_console.link.processgroup import signal_group
from dflash_console.link.route import Route
from dflash_console.link.threads import in_thread

__all__ = ["Proxy", "dial", "start_proxy"]

STDERR_KEPT = 4 << 10


async def dial(route: Route, who: str, limit: float) -> tuple[socket.socket, str]:
    """A TCP connection to the route's host and the address it goes to, tried one by one as ssh does.

    Raises Unreachable.

    `limit` is in seconds, for name and connection together; each address gets its share of what is left.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit
    addresses = await _addresses(route, who, limit)
    failure: OSError = TimeoutError()
    for number, (family, address) in enumerate(addresses):
        share = (deadline - loop.time()) / (len(addresses) - number)
        try:
            async with asyncio.timeout(share):
                return await _connected(family, address, route), str(address[0])
        except OSError as error:  # TimeoutError is one
            failure = error
    shown = ", ".join(str(address[0]) for _, address in addresses)
    raise Unreachable(_why_not_connected(failure, who, shown, route.port, limit))


async def _addresses(route: Route, who: str, limit: float) -> list[tuple[int, tuple[str, int]]]:
    def look_up() -> list[tuple[int, tuple[str, int]]]:
        found = socket.getaddrinfo(
            route.hostname, route.port, route.address_family, socket.SOCK_STREAM, socket.IPPROTO_TCP
        )
        return [(family, cast(tuple[str, int], address)) for family, _, _, _, address in found]

    try:
        async with asyncio.timeout(limit):
            return await in_thread(look_up)
    except socket.gaierror as error:
        raise Unreachable(
            f"the name {route.hostname} of {who} is not known ({error.strerror}): is it right, does DNS work?"
        ) from None
    except UnicodeError:
        raise Unreachable(f"{route.hostname!r} can't be a host's name") from None
    except TimeoutError:
        raise Unreachable(
            f"the name {route.hostname} of {who} was not resolved in {limit:.0f} s: DNS does not answer"
        ) from None


async def _connected(family: int, address: tuple[str, int], route: Route) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        if route.bind_address:
            connection.bind((route.bind_address, 0))
        await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


def _why_not_connected(error: OSError, who: str, shown: str, port: int, limit: float) -> str:
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return (
            f"{who} does not answer: no connection to {shown} port {port} in {limit:.0f} s "
            "(powered off, or a firewall drops the packets)"
        )
    if isinstance(error, ConnectionRefusedError):
        return f"{who} is there, but port {port} of {shown} refuses connections: is sshd running?"
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return (
            f"no route to {who} at {shown} ({error.strerror}): is the host up, is the network or VPN there?"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{who} can't be reached from the BindAddress of the ssh config: {error.strerror}"
    return f"no connection to {who} at {shown} port {port}: {error.strerror or error}"


class Proxy(asyncio.SubprocessProtocol):
    """A running ProxyCommand."""

    def __init__(self) -> None:
        self._stderr = bytearray()
        self._end = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._stderr += data[-STDERR_KEPT:]
        del self._stderr[:-STDERR_KEPT]

    def process_exited(self) -> None:
        self._end.set()

    @property
    def story(self) -> str:
        """What became of it and what it said, for an error's text."""
        code = self._transport.get_returncode()
        fate = "still runs" if code is None else f"ended with exit {code}"
        said = clean_bytes(bytes(self._stderr), 600)
        return f"the ProxyCommand {fate} and said {said!r}" if said else f"the ProxyCommand {fate}"

    async def settle(self) -> None:
        """Waits a moment for the command to end by itself, so that `story` is whole."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await self._end.wait()

    async def close(self) -> None:
        """Ends the command and all that it started."""
        signal_group(self._transport.get_pid(), signal.SIGHUP)
        self._transport.close()
        await self.settle()
        signal_group(self._transport.get_pid(), signal.SIGKILL)


async def start_proxy(route: Route, limit: float) -> tuple[socket.socket, Proxy]:
    """Runs the ProxyCommand in the operator's shell, as ssh does; gives back the socket to talk through."""
    ours, theirs = socket.socketpair()
    try:
        proxy = await _spawn(route.proxy_command, theirs)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    if not route.proxy_passes_socket:
        ours.setblocking(False)
        return ours, proxy
    try:
        return await _passed_socket(ours, limit), proxy
    except OSError as error:
        await proxy.settle()
        await proxy.close()
        raise Unreachable(f"no socket came from ProxyUseFdpass ({error}): {proxy.story}") from None
    finally:
        ours.close()


async def _spawn(command: str, theirs: socket.socket) -> Proxy:
    shell = os.environ.get("SHELL") or "/bin/sh"
    try:
        _, proxy = await asyncio.get_running_loop().subprocess_exec(
            Proxy,
            shell,
            "-c",
            f"exec {command}",
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise Unreachable(f"the ProxyCommand can't be started with {shell}: {error.strerror}") from None
    return proxy


async def _passed_socket(ours: socket.socket, limit: float) -> socket.socket:
    ours.settimeout(limit)
    _, passed, _, _ = await in_thread(lambda: socket.recv_fds(ours, 1, 1))
    if not passed:
        raise OSError("the command ended without passing one")
    connection = socket.socket(fileno=passed[0])
    connection.setblocking(False)
    return connection
