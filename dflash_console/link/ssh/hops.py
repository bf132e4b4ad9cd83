"""Opening a connection hop by hop. Hosts behind the same jump host share one connection to it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import asyncssh

from dflash_console.errors import LinkError, Unreachable
from dflash_console.link.files import MOST_OF_A_KEY, look
from dflash_console.link.knownhosts import KnownHosts, Lists, known_in, read_lists
from dflash_console.link.route import Route
from dflash_console.link.ssh.identities import KeyFiles, key_paths
from dflash_console.link.ssh.login import Login
from dflash_console.link.ssh.sockets import Proxy, Tunnel, dial, start_proxy
from dflash_console.link.ssh.trouble import jump_host_lost, login_trouble, needs_plain_key, tunnel_trouble
from dflash_console.link.threads import in_thread

__all__ = ["Bastions", "Hop", "open_hop"]

CLOSE_TIMEOUT = 2.0
GRACE = 5.0
"""Seconds that a failed login may take to be undone."""


@dataclass
class Hop:
    """An open connection to one host of a route, and what it stands on."""

    connection: asyncssh.SSHClientConnection
    proxy: Proxy | None = None
    lease: Lease | None = None

    async def close(self) -> None:
        """Closes the connection, then what carries it. Never raises; takes a few seconds at most."""
        try:
            self.connection.close()
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self.connection.wait_closed()
        except (TimeoutError, OSError, asyncssh.Error):
            pass
        finally:
            self.connection.abort()
            await _leave(self.proxy, self.lease)


@dataclass
class _Bastion:
    """A connection to a jump host and how many use it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    hop: Hop | None = None
    users: int = 0
    tries: int = 0
    failure: LinkError | None = None
    """How the last try ended, for those who waited meanwhile."""


class Lease:
    """The use of a shared connection."""

    def __init__(
        self, connection: asyncssh.SSHClientConnection, give_back: Callable[[], Awaitable[None]]
    ) -> None:
        self.connection = connection
        self._give_back = give_back

    async def release(self) -> None:
        """Gives it back; the last one closes the connection."""
        await self._give_back()


class Bastions:
    """The jump hosts that are in use."""

    def __init__(self) -> None:
        self._bastions: dict[Route, _Bastion] = {}

    async def borrow(self, route: Route, limit: float) -> Lease:
        """A connection to the jump host, opened if there is none. Raises a LinkError that names it.

        Those who come while another opens it share its outcome, also a failure: a dead jump host costs one
        time-out, not one for each host behind it.
        """
        bastion = self._bastions.setdefault(route, _Bastion())
        bastion.users += 1
        seen = bastion.tries
        try:
            async with bastion.lock:
                if bastion.tries != seen and bastion.failure is not None:
                    raise type(bastion.failure)(str(bastion.failure))
                if bastion.hop is None or bastion.hop.connection.is_closed():
                    await self._open(bastion, route, limit)
                hop = bastion.hop
                assert hop is not None
        except BaseException:
            await self._give_back(bastion, route)
            raise
        return Lease(hop.connection, lambda: self._give_back(bastion, route))

    async def _open(self, bastion: _Bastion, route: Route, limit: float) -> None:
        dead, bastion.hop, bastion.failure = bastion.hop, None, None
        if dead is not None:
            await dead.close()
        try:
            bastion.hop = await open_hop(route, f"jump host {route.name}", limit, self)
        except LinkError as error:
            bastion.failure = error
            raise
        finally:
            bastion.tries += 1

    async def _give_back(self, bastion: _Bastion, route: Route) -> None:
        bastion.users -= 1
        if bastion.users == 0:
            self._bastions.pop(route, None)
            if bastion.hop is not None:
                await bastion.hop.close()


async def open_hop(route: Route, who: str, limit: float, bastions: Bastions) -> Hop:
    """A connection to the route's host, over its jump hosts if it has any. Raises a LinkError.

    `limit` is in seconds, for each hop; ConnectTimeout of the ssh config comes before it.
    """
    # Before anything goes over the network: a host is not to wait, half logged in, for a file of ours.
    local = await look(
        lambda files: (read_lists(route, files), files.read_all(key_paths(route), MOST_OF_A_KEY)),
        key=("hop", *_files_of(route)),
    )
    lease = await bastions.borrow(route.via, limit) if route.via is not None else None
    try:
        login = _Attempt(route, who, limit, lease, *local)
        try:
            return await login.run(certificates=True)
        except _WithoutCertificate:
            return await login.run(certificates=False)
    except BaseException:
        await _leave(None, lease)
        raise


def _files_of(route: Route) -> tuple[object, ...]:
    return (route.user_known_hosts, route.global_known_hosts, route.revoked_host_keys, key_paths(route))


class _WithoutCertificate(Exception):
    """The host's certificate is of no use, its plain key may be."""


@dataclass
class _Attempt:
    """One login to one host, and all that it stands on."""

    route: Route
    who: str
    limit: float
    lease: Lease | None
    lists: Lists
    keys: KeyFiles

    async def run(self, *, certificates: bool) -> Hop:
        """The connection. Raises a LinkError, or _WithoutCertificate. Leaves nothing open but the lease."""
        reach = self.route.connect_timeout or self.limit
        limit = max(self.limit, reach)
        try:
            # Over all: each step has a limit of its own, and what follows a failure is to have one, too.
            async with asyncio.timeout(reach + limit + GRACE):
                return await self._run(reach, limit, certificates)
        except TimeoutError:
            raise Unreachable(
                f"{self.who} did not let us in within {reach + limit + GRACE:.0f} s, and the attempt could not be "
                "ended properly"
            ) from None

    async def _run(self, reach: float, limit: float, certificates: bool) -> Hop:
        sock, proxy, address = await self._bytes(reach)
        try:
            login = Login(self.route, await self._known(sock, address), self.keys, certificates=certificates)
            return Hop(await self._logged_in(login, sock, proxy, limit), proxy, self.lease)
        except BaseException:
            await _leave(proxy, None)
            raise

    async def _known(self, sock: socket.socket | None, address: str) -> KnownHosts:
        try:
            # In a thread: of 100,000 hashed names each takes a hash.
            return await in_thread(lambda: known_in(self.lists, self.route, address))
        except BaseException:
            if sock is not None:
                sock.close()
            raise

    async def _logged_in(
        self, login: Login, sock: socket.socket | None, proxy: Proxy | None, limit: float
    ) -> asyncssh.SSHClientConnection:
        tunnel = Tunnel(self.lease.connection) if self.lease else None
        try:
            return await login.run(sock, tunnel, limit)
        except Exception as error:  # noqa: BLE001 - asyncssh passes on whatever a host's bytes made it raise
            if login.certificates and needs_plain_key(error, login):
                raise _WithoutCertificate from None
            if proxy is not None and not login.has_server_spoken:
                await proxy.settle()
            raise self._explained(error, login, limit, proxy) from None

    async def _bytes(self, reach: float) -> tuple[socket.socket | None, Proxy | None, str]:
        """What carries the login unless a jump host does, and the address that it goes to if that is known."""
        if self.lease is not None:
            return None, None, ""
        if self.route.proxy_command:
            return *await start_proxy(self.route, reach), ""
        sock, address = await dial(self.route, self.who, reach)
        return sock, None, address

    def _explained(self, error: Exception, login: Login, limit: float, proxy: Proxy | None) -> LinkError:
        if self.lease is not None and self.lease.connection.is_closed():
            return jump_host_lost(self.route, self.who)
        if self.lease is not None and login.connection is None and not isinstance(error, LinkError):
            return tunnel_trouble(error, self.route, self.who, limit)
        if proxy is not None and not login.has_server_spoken and not isinstance(error, LinkError):
            return Unreachable(f"no SSH banner from {self.who}: {proxy.story}")
        return login_trouble(error, login, self.route, self.who, limit)


async def _leave(proxy: Proxy | None, lease: Lease | None) -> None:
    try:
        if proxy is not None:
            await proxy.close()
    finally:
        if lease is not None:
            await lease.release()
