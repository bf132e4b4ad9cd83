"""Opening a connection hop by hop. Hosts behind the same jump host share one connection to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import asyncssh

from dflash_console.errors import LinkError
from dflash_console.link.hostkeys import read_known_hosts
from dflash_console.link.route import Route
from dflash_console.link.ssh.login import Login
from dflash_console.link.ssh.sockets import Proxy, dial, start_proxy
from dflash_console.link.ssh.trouble import login_trouble, needs_plain_key, tunnel_trouble
from dflash_console.link.threads import in_thread

__all__ = ["Bastions", "Hop", "open_hop"]

CLOSE_TIMEOUT = 2.0


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
            self.connection.abort()
        finally:
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
    lease = await bastions.borrow(route.via, limit) if route.via is not None else None
    try:
        try:
            return await _log_in(route, who, limit, lease, certificates=True)
        except _WithoutCertificate:
            return await _log_in(route, who, limit, lease, certificates=False)
    except BaseException:
        await _leave(None, lease)
        raise


class _WithoutCertificate(Exception):
    """The host's certificate is of no use, its plain key may be."""


async def _log_in(
    route: Route,
    who: str,
    limit: float,
    lease: Lease | None,
    *,
    certificates: bool,
) -> Hop:
    reach = route.connect_timeout or limit
    sock, proxy, address = None, None, ""
    if lease is None and route.proxy_command:
        sock, proxy = await start_proxy(route, reach)
    elif lease is None:
        sock, address = await dial(route, who, reach)
    limit = max(limit, reach)
    try:
        known = await in_thread(lambda: read_known_hosts(route, address))
    except BaseException:
        if sock is not None:
            sock.close()
        await _leave(proxy, None)
        raise
    login = Login(route, known, certificates=certificates)
    try:
        connection = await login.run(sock, lease.connection if lease else None, limit)
        return Hop(connection, proxy, lease)
    except (OSError, ValueError, asyncssh.Error, LinkError) as error:
        if certificates and needs_plain_key(error, login):
            raise _WithoutCertificate from None
        raise await _explained(error, login, route, who, limit, proxy) from None
    finally:
        if login.connection is None or login.connection.is_closed():
            await _leave(proxy, None)


async def _explained(
    error: Exception, login: Login, route: Route, who: str, limit: float, proxy: Proxy | None
) -> LinkError:
    if route.via is not None and login.connection is None and not isinstance(error, LinkError):
        return tunnel_trouble(error, route, who, limit)
    found = await login_trouble(error, login, route, who, limit)
    if proxy is None or login.has_server_spoken:
        return found
    await proxy.settle()
    return type(found)(f"no SSH banner from {who}: {proxy.story}")


async def _leave(proxy: Proxy | None, lease: Lease | None) -> None:
    if proxy is not None:
        with suppress(OSError):
            await proxy.close()
    if lease is not None:
        await lease.release()
