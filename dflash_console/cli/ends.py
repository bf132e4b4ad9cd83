"""`HOST` and `HOST:VENV` of the command line: what they mean, and which of them can't be."""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from dflash_console.cli.reach import is_linked, reached
from dflash_console.cli.status import chosen
from dflash_console.config import Config
from dflash_console.copies import Side
from dflash_console.errors import ConfigError
from dflash_console.fleet import Fleet
from dflash_console.operations.orders import needed_sections
from dflash_console.operations.sides import side_of

__all__ = ["End", "Place", "Unreached", "end_of", "may_be_changed", "places", "refuse_twice"]


class End(NamedTuple):
    """One end of a copy as it was typed."""

    host: str
    venv: str | None = None
    """None for the one of the config, or the only one there."""

    def __str__(self) -> str:
        return self.host if self.venv is None else f"{self.host}:{self.venv}"


class Unreached(NamedTuple):
    """An end whose host can't be asked."""

    end: End
    why: str


Place: TypeAlias = Side | Unreached


def end_of(config: Config, word: str) -> End:
    """What a word means. Raises ConfigError for a host that is not in the config and for a path that could be
    anywhere."""
    host, colon, venv = word.partition(":")
    chosen(config, [host])
    if not colon:
        return End(host)
    if not venv.startswith(("/", "~/")) or not venv.isprintable() or ".." in venv.split("/"):
        raise ConfigError(
            f"{word!r}: {venv!r} is no whole path on the host; write {host}:/path/of/environment"
        )
    # POSIX lets two slashes at the start mean something else, and normpath keeps them.
    return End(host, posixpath.normpath(re.sub("^/+", "/", venv)))


def may_be_changed(config: Config, end: End) -> End:
    """The end, if the host's role lets anything be changed there. Raises ConfigError."""
    if config.hosts[end.host].role == "observe":
        place = f"[hosts.{end.host}] of {config.path}" if config.path else "a config"
        raise ConfigError(
            f'{end.host} is only observed: nothing is changed there; to allow it, write role = "target" in {place}'
        )
    return end


def refuse_twice(source: Side | End | None, targets: Sequence[Side | End]) -> None:
    """Raises ConfigError where the source is among the targets, or one target is there twice."""
    seen: set[Side | End] = set()
    for target in targets:
        if target == source:
            raise ConfigError(f"{target} is source and target at once; name two environments")
        if target in seen:
            raise ConfigError(f"{target} is named twice")
        seen.add(target)


async def places(fleet: Fleet, config: Config, ends: Sequence[End]) -> list[Place]:
    """Where each end is, or why its host can't be asked. Raises ConfigError where the environment has to be named."""
    found = await asyncio.gather(*(_place(fleet, config, end) for end in ends))
    for why in found:
        if isinstance(why, str):
            raise ConfigError(why)
    return [place for place in found if not isinstance(place, str)]


async def _place(fleet: Fleet, config: Config, end: End) -> Place | str:
    host = config.hosts[end.host]
    needed = needed_sections(host, end.venv, is_deep=False)
    if end.venv is None and host.package_venv is None:
        # Of several that the config names it may be the one that holds the package.
        needed |= {"venvs"}
    view = await reached(fleet, end.host, needed)
    if not is_linked(view):
        return Unreached(end, view.link.detail or view.link.state)
    return side_of(view, config, end.venv)
