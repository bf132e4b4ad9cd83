"""A connection to a host over SSH, and the programs that run on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary

import asyncssh

from dflash_console.config import HostConfig
from dflash_console.errors import LinkError, Unreachable
from dflash_console.link.bundle import BOOT_COMMAND
from dflash_console.link.process import Process
from dflash_console.link.route import Route, resolve
from dflash_console.link.ssh.hops import Bastions, Hop, open_hop
from dflash_console.link.ssh.trouble import channel_trouble, dismissed, lost

__all__ = ["SshConnection", "connect"]

MOST_CHANNELS = 4
"""On one connection; sshd's MaxSessions is 10, and other tools of the operator may share the account."""

_bastions: WeakKeyDictionary[asyncio.AbstractEventLoop, Bastions] = WeakKeyDictionary()


async def connect(host: HostConfig, *, ssh_config: str | None, timeout: float) -> SshConnection:  # noqa: ASYNC109
    """Reaches the host as the operator's own `ssh` would. Raises a LinkError whose text says what to do.

    `timeout` is in seconds, for each hop of the route.
    """
    bastions = _bastions.setdefault(asyncio.get_running_loop(), Bastions())
    route = await resolve(host, ssh_config)
    return SshConnection(await open_hop(route, host.name, timeout, bastions), route, host.name, timeout)


class SshConnection:
    """An open connection to a host. Programs are started on it, a few at a time."""

    def __init__(self, hop: Hop, route: Route, who: str, timeout: float) -> None:
        self._hop = hop
        self._route = route
        self._has_started = False
        self._who = who
        self._timeout = timeout
        self._channels = asyncio.Semaphore(MOST_CHANNELS)

    async def start(self) -> Process:
        """Runs the bootstrap line on a channel of its own, once one of four is free. Raises a LinkError."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._channels.acquire()
        except TimeoutError:
            raise Unreachable(f"all {MOST_CHANNELS} channels to {self._who} are in use") from None
        channel = _Channel(self._who, self._channels.release)
        try:
            # asyncssh has no time limit for opening a channel on a peer that is gone.
            async with asyncio.timeout(self._timeout):
                await self._hop.connection.create_session(
                    lambda: channel, BOOT_COMMAND, encoding=None, request_pty=False
                )
        except (OSError, ValueError, asyncssh.Error) as error:
            channel.give_back()
            raise self._why_not(error) from None
        except BaseException:
            channel.give_back()
            raise
        self._has_started = True
        return channel.process

    def _why_not(self, error: Exception) -> LinkError:
        """The error for a program that was not started."""
        if isinstance(error, TimeoutError):
            return Unreachable(f"{self._who} opened no channel in {self._timeout:.0f} s")
        if self._hop.connection.is_closed():
            # Before the first program it is the host's answer to the login; later, something broke.
            return lost(error, self._who) if self._has_started else dismissed(error, self._route, self._who)
        if isinstance(error, asyncssh.ChannelOpenError):
            return channel_trouble(error, self._who)
        return lost(error, self._who)

    async def close(self) -> None:
        """Ends all programs on it by closing the connection, then leaves the jump hosts."""
        await self._hop.close()


class _Channel(asyncssh.SSHClientSession[bytes]):
    """Carries the bytes of a program on the host; also its Pipe."""

    process: Process

    def __init__(self, who: str, release: Callable[[], None]) -> None:
        self._who = who
        self._release = release
        self._is_given_back = False

    def give_back(self) -> None:
        """Lets another program use the channel's place."""
        if not self._is_given_back:
            self._is_given_back = True
            self._release()

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan
        self.process = Process(self)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype is None:
            self.process.got_output(data)
        else:
            self.process.got_stderr(data)

    def eof_received(self) -> bool:
        self.process.got_eof()
        return False

    def exit_status_received(self, status: int) -> None:
        self.process.got_exit(status)

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self.process.got_exit(None, signal)

    def connection_lost(self, exc: Exception | None) -> None:
        self.give_back()
        self.process.lost(None if exc is None else lost(exc, self._who))

    def pause_writing(self) -> None:
        self.process.got_writable(False)

    def resume_writing(self) -> None:
        self.process.got_writable(True)

    # ---- as a Pipe

    def write(self, data: bytes) -> None:
        if not self._channel.is_closing():
            self._channel.write(data)

    def write_eof(self) -> None:
        self._channel.write_eof()

    def pause_reading(self) -> None:
        self._channel.pause_reading()

    def resume_reading(self) -> None:
        self._channel.resume_reading()

    def kill(self) -> None:
        # OpenSSH delivers signals since 7.9; closing the channel below ends the agent in any case.
        if not self._channel.is_closing():
            self._channel.kill()

    def close(self) -> None:
        self._channel.abort()
