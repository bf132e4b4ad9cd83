"""How a host is reached, and how the agent there is started and spoken to.

`connect` opens a Connection (over SSH, or to this machine without it). `Session.open` starts the agent on it
and gives back what speaks with it: `watch`, `ping`, `request`, `messages`, `close`; its `channel` starts a second
process there, for a copy. Every error is a LinkError whose text is for the operator. All text that comes from a host
has been cleaned (`clean`).
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import Protocol

from dflash_console.config import HostConfig
from dflash_console.link.channel import Channel, Listed
from dflash_console.link.clean import clean
from dflash_console.link.frames import pack_data
from dflash_console.link.memory import give_back_large_pieces
from dflash_console.link.process import Connection, Process
from dflash_console.link.route import wish_of
from dflash_console.link.session import Pong, Session
from dflash_console.link.threads import in_thread
from dflash_console.link.turns import turn

__all__ = [
    "Channel",
    "Connection",
    "Listed",
    "Pong",
    "Process",
    "Session",
    "clean",
    "connect",
    "pack_data",
    "ssh_command",
]


async def connect(host: HostConfig, *, ssh_config: str | None, timeout: float = 10.0) -> Connection:  # noqa: ASYNC109
    """Reaches a host. Raises a LinkError.

    `ssh_config` is as for `ssh -F`, None for the operator's own files; `timeout` is in seconds, for each hop.
    """
    # Before the first large piece: what came earlier leaves holes for good.
    give_back_large_pieces()
    if host.local:
        from dflash_console.link.local import LocalConnection

        return LocalConnection()
    async with turn():
        # The first time it takes 0.15 s, which this machine and the first frame need not wait for.
        is_loaded = hasattr(sys.modules.get("dflash_console.link.ssh"), "connect")
        connect_by_ssh = _import_ssh() if is_loaded else await in_thread(_import_ssh)
        return await connect_by_ssh(host, ssh_config=ssh_config, timeout=timeout)


def ssh_command(host: HostConfig, ssh_config: str | None) -> str:
    """The command that reaches a host by hand as `connect` does; empty for this machine."""
    return "" if host.local else wish_of(host).command(ssh_config)


class _Connect(Protocol):
    def __call__(
        self, host: HostConfig, *, ssh_config: str | None, timeout: float
    ) -> Awaitable[Connection]: ...


def _import_ssh() -> _Connect:
    from dflash_console.link.ssh import connect as connect_by_ssh

    return connect_by_ssh
