"""From a host's table of the config to an agent there, and what that one is to watch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeAlias

import msgspec

from dflash_console.config import Config, HostConfig
from dflash_console.errors import LinkError
from dflash_console.fleet.backoff import Pace
from dflash_console.link import Channel
from dflash_console.model import Note, Sample, WatchSpec

__all__ = ["AgentSession", "Opener", "link_opener", "watch_spec"]

DISTRIBUTIONS = ("torch", "sglang-kernel", "sgl-kernel", "flashinfer-python", "transformers")


class AgentSession(Protocol):
    """What a watcher needs of `link.Session`; every method raises a LinkError when link or agent ends."""

    async def watch(self, spec: WatchSpec) -> None: ...

    async def request(self, do: str, timeout: float, **fields: object) -> msgspec.Raw: ...  # noqa: ASYNC109

    def messages(self) -> AsyncIterator[Sample | Note]: ...

    async def channel(self) -> Channel: ...

    async def close(self, why: LinkError | None = None) -> None: ...


Opener: TypeAlias = Callable[[HostConfig], Awaitable[AgentSession]]
"""Reaches a host and starts the agent there. Raises a LinkError."""


def watch_spec(config: Config, host: HostConfig) -> WatchSpec:
    """What the agent of a host is to watch."""
    venvs = host.venvs
    if host.package_venv is not None and host.package_venv not in (venvs or []):
        venvs = [host.package_venv, *(venvs or [])]
    return WatchSpec(
        interval=config.console.interval,
        package=config.package.name,
        modules=config.package.alternatives,
        distributions=list(dict.fromkeys([config.package.name, *DISTRIBUTIONS])),
        venvs=venvs,
        units=host.units,
        paths=host.paths,
    )


def link_opener(config: Config, pace: Pace) -> Opener:
    """The opener that uses the real link."""
    from dflash_console.link import Session, connect

    async def open_session(host: HostConfig) -> AgentSession:
        connection = await connect(host, ssh_config=config.console.ssh_config, timeout=pace.connect)
        try:
            return await Session.open(connection, host, timeout=pace.opening)
        except BaseException:
            await connection.close()
            raise

    return open_session
