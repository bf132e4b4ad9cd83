"""Hosts for the length of one command: linked on the way in, left on the way out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import msgspec

from dflash_console.cli.status import as_answered, is_settled
from dflash_console.config import Config
from dflash_console.fleet import Fleet, HostView, Pace

__all__ = ["PACE", "REACH", "is_linked", "only", "reached", "view_of", "with_fleet"]

PACE = Pace(connect=15.0, opening=30.0)
"""Longer than those of `status`, which owes an answer in ten seconds: on a busy host a login and the start of Python
take many times as long as else, and what these commands are about takes minutes at times."""
REACH = 60.0
"""Seconds until a host that was not reached, or has not told what is there, is given up."""

T = TypeVar("T")


def only(config: Config, names: Iterable[str]) -> Config:
    """The config with these hosts and no others, each once."""
    return msgspec.structs.replace(config, hosts={name: config.hosts[name] for name in names})


async def with_fleet(
    config: Config, names: Iterable[str], do: Callable[[Fleet], Awaitable[T]], fleet: Fleet | None = None
) -> T:
    """What `do` gives back, with the fleet of these hosts running as long as that takes, also while it is cancelled."""
    fleet = fleet or Fleet(only(config, names), pace=PACE)
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(fleet.run())
            try:
                return await do(fleet)
            finally:
                running.cancel()
    except ExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


async def reached(fleet: Fleet, name: str, needed: frozenset[str]) -> HostView:
    """The host once it has told the sections that are needed of it, or failed for good."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(REACH):
            while True:
                view = view_of(fleet, name)
                if (is_linked(view) and not (view.unread & needed) - view.notes.keys()) or (
                    not is_linked(view) and is_settled(view, loop.time() - began)
                ):
                    return view
                await fleet.changed()
    except TimeoutError:
        return as_answered(view_of(fleet, name), REACH)


def is_linked(view: HostView) -> bool:
    """Whether a host can be asked."""
    return view.link.state in ("up", "stale")


def view_of(fleet: Fleet, name: str) -> HostView:
    """What is known of a host of the fleet."""
    return next(view for view in fleet.views() if view.config.name == name)
