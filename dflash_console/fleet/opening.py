"""From a host's table of the config to an agent that watches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeAlias

import msgspec

from dflash_console.config import Config, HostConfig
from dflash_console.errors import Unreachable
from dflash_console.fleet.backoff import Pace
from dflash_console.model import Note, Sample, WatchSpec

__all__ = ["AgentSession", "Opener", "link_opener", "watch_spec"]

DISTRIBUTIONS = ("torch", "sglang-kernel", "sgl-kernel", "flashinfer-python", "transformers")


class Heartbeat(Protocol):
    """The answer to a ping."""

    @property
    def latency_ms(self) -> float: ...


class AgentSession(Protocol):
    """What a watcher needs of `link.Session`; every method raises a LinkError when link or agent ends."""

    async def ping(self) -> Heartbeat: ...

    async def request(self, do: str, timeout: float) -> msgspec.Raw: ...  # noqa: ASYNC109 - bounds the answer, not the call

    def messages(self) -> AsyncIterator[Sample | Note]: ...

    async def close(self) -> None: ...


Opener: TypeAlias = Callable[[HostConfig], Awaitable[AgentSession]]
"""Reaches a host, starts the agent there and tells it what to watch. Raises a LinkError."""


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
            session = await Session.open(connection, host)
            await session.watch(watch_spec(config, host))
        except BaseException:
            await connection.close()
            raise
        return session

    async def open_in_time(host: HostConfig) -> AgentSession:
        try:
            async with asyncio.timeout(pace.opening):
                return await open_session(host)
        except TimeoutError:
            raise Unreachable(
                f"the connection stands and the agent did not start in {pace.opening:.0f} s"
            ) from None

    return open_in_time
