"""The bytes under SSH: a TCP connection, a channel of a jump host, or a ProxyCommand behind one end of a socket
pair."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import asyncssh

from dflash_console.errors import Unreachable
from dflash_console.link.clean import clean_bytes
from dflash_console.link.processgroup import signal_group
from dflash_console.link.route import Route
from dflash_console.link.threads import in_thread, start_thread

__all__ = ["Proxy", "Tunnel", "dial", "start_proxy"]

STDERR_KEPT = 4 << 10
LISTENING = 0.05
"""Seconds between two pieces of 64 KiB."""
SETTLING = 0.5
"""Seconds that a ProxyCommand gets to end by itself."""


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
            # In a thread: it may be a name.
            await in_thread(lambda: connection.bind((route.bind_address, 0)))
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


class Tunnel:
    """A jump host's connection, over which asyncssh opens one to a host behind it."""

    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        self.connection = connection

    async def create_connection(
        self, session_factory: Callable[[], asyncssh.SSHTCPSession[bytes]], host: str, port: int
    ) -> tuple[asyncssh.SSHTCPChannel[bytes], asyncssh.SSHTCPSession[bytes]]:
        """Asked by asyncssh, whose own way leaves a channel open that is confirmed after nobody waits for it."""
        is_given_up = False

        def session() -> asyncssh.SSHTCPSession[bytes]:
            if is_given_up:
                return asyncssh.SSHTCPSession()
            return session_factory()

        opening = asyncio.ensure_future(  # noqa: TID251 - ends with the jump host's connection at the latest
            self.connection.create_connection(session, host, port)
        )
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            is_given_up = True
            opening.add_done_callback(_abandon)
            raise


def _abandon(
    opening: asyncio.Future[tuple[asyncssh.SSHTCPChannel[bytes], asyncssh.SSHTCPSession[bytes]]],
) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[0].abort()


class Proxy:
    """A running ProxyCommand."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        self._process = process
        self._complaints = process.stderr
        self._stderr = bytearray()
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        os.set_blocking(self._complaints.fileno(), False)
        self._listen()

    def _listen(self) -> None:
        self._loop.add_reader(self._complaints, self._hear)

    def _hear(self) -> None:
        # One piece now and then: a command that prints without end is to wait, and not to take all our time.
        self._loop.remove_reader(self._complaints)
        if self._take():
            self._pause = self._loop.call_later(LISTENING, self._listen)

    def _take(self) -> bool:
        """Whether more may come."""
        try:
            piece = os.read(self._complaints.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        self._stderr += piece
        del self._stderr[:-STDERR_KEPT]
        return bool(piece)

    @property
    def story(self) -> str:
        """What became of it and what it said, for an error's text."""
        code = self._process.poll()
        how = f"with exit {code}" if code is None or code >= 0 else f"by signal {-code}"
        fate = "still runs" if code is None else f"ended {how}"
        said = clean_bytes(bytes(self._stderr), 600)
        return f"the ProxyCommand {fate} and said {said!r}" if said else f"the ProxyCommand {fate}"

    async def settle(self) -> None:
        """Waits a moment for the command to end by itself, so that `story` is whole."""
        with suppress(subprocess.TimeoutExpired):
            await in_thread(lambda: self._process.wait(SETTLING))
        if not self._complaints.closed:
            self._take()

    async def close(self) -> None:
        """Ends the command and all that it started: politely, then by force; also if it is cancelled meanwhile."""
        signal_group(self._process.pid, signal.SIGHUP)
        try:
            await self.settle()
        finally:
            signal_group(self._process.pid, signal.SIGKILL)
            if self._pause is not None:
                self._pause.cancel()
            self._loop.remove_reader(self._complaints)
            self._complaints.close()
            if self._process.poll() is None:
                # So that no zombie stays; a thread, because only a dead mount can delay it now, but that for long.
                start_thread(self._process.wait)


async def start_proxy(route: Route, limit: float) -> tuple[socket.socket, Proxy]:
    """Runs the ProxyCommand in the operator's shell, as ssh does; gives back the socket to talk through.

    Raises Unreachable. Nothing runs then any more, nor when it is cancelled.
    """
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        proxy = _spawn(route.proxy_command, theirs)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    if not route.proxy_passes_socket:
        return ours, proxy
    with ours:
        try:
            return await _handed_over(ours, proxy, limit), proxy
        except BaseException:
            await proxy.close()
            raise


def _spawn(command: str, theirs: socket.socket) -> Proxy:
    shell = os.environ.get("SHELL") or "/bin/sh"
    try:
        process = subprocess.Popen(
            [shell, "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise Unreachable(f"the ProxyCommand can't be started with {shell}: {error}") from None
    return Proxy(process)


async def _handed_over(ours: socket.socket, proxy: Proxy, limit: float) -> socket.socket:
    try:
        return await _passed_socket(ours, limit)
    except OSError as error:
        await proxy.settle()
        why = f"in {limit:.0f} s" if isinstance(error, TimeoutError) else f"({error})"
        raise Unreachable(f"no socket came from ProxyUseFdpass {why}: {proxy.story}") from None


async def _passed_socket(ours: socket.socket, limit: float) -> socket.socket:
    """The socket that arrives on `ours`. Raises OSError, TimeoutError."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def come() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(ours, come)
    try:
        async with asyncio.timeout(limit):
            await readable
    finally:
        loop.remove_reader(ours)
    _, passed, _, _ = socket.recv_fds(ours, 1, 1)
    if not passed:
        raise OSError("the command ended without passing one")
    try:
        connection = socket.socket(fileno=passed[0])
    except OSError:
        os.close(passed[0])
        raise
    connection.setblocking(False)
    return connection
