"""What is asked of a copy process, request by request; answers are validated structs.

Every function raises CopyError when the host says no, and a LinkError when the link or the process ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from dflash_console.bounds import Count
from dflash_console.copies import LISTED_AT_ONCE, MOST_FILES, Claim, Entry, Look, Side, Swapped
from dflash_console.errors import AgentFailed
from dflash_console.link import Channel, Listed, clean
from dflash_console.link.channel import Progress, TakeData, TakeEntries
from dflash_console.verdict import Check

__all__ = [
    "CHECK_LIMIT",
    "Missing",
    "Settled",
    "Wanted",
    "check",
    "claim",
    "expect",
    "fill",
    "find_spec",
    "look",
    "read",
    "release",
    "restore",
    "send",
    "settle",
    "swap",
    "want",
]

DISK = 300.0
"""Seconds without a word, for what reads or writes whole trees: on a slow disk, many go by."""
WHOLE = 1800.0
"""Seconds within which a host has done what no other one is waited for with, however much it says meanwhile."""
CHECK_LIMIT = 60.0
"""Seconds for the import check on the host."""
LISTING = 96 << 20
"""Bytes that a listing may take on the link."""
SPARE = 1 << 20
"""Bytes that come beside the data that was asked for: progress, answers, headers."""
READ_LIMIT = 2 << 20

Index = Annotated[int, Meta(ge=0, lt=MOST_FILES)]
T = TypeVar("T")


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """The answer to `want`."""

    wanted: Annotated[tuple[Index, ...], Meta(max_length=MOST_FILES)]
    """Indexes into the expected entries, of files that have to be sent."""
    reused: Count = 0
    reused_bytes: Count = 0


class Missing(msgspec.Struct, frozen=True, gc=False):
    """The answer to `fill`."""

    missing: Annotated[tuple[Index, ...], Meta(max_length=MOST_FILES)] = ()


class Settled(msgspec.Struct, frozen=True, gc=False):
    """The answer to `settle`."""

    undone: bool = False
    detail: str = ""


class _Checks(msgspec.Struct, frozen=True, gc=False):
    checks: Annotated[tuple[Check, ...], Meta(max_length=64)] = ()


class _Read(msgspec.Struct, frozen=True, gc=False):
    size: Count
    is_cut: bool = False


def _as(kind: type[T], raw: msgspec.Raw, channel: Channel) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise AgentFailed(
            f"{channel.name}: the copy's agent answered with nonsense: {clean(str(error), 200)}"
        ) from None


async def look(
    channel: Channel,
    venv: str,
    package: str,
    *,
    entries: bool,
    progress: Progress | None = None,
    give: TakeEntries | None = None,
) -> tuple[Look, list[Entry]]:
    """What is at a place; its entries only when they are asked for, and not when `give` gets them part by part (see
    `link.Listed`). What the console can't name is `strange`."""
    listed = Listed(give)
    channel.grant(LISTING if entries else 0)
    try:
        raw = await channel.request(
            "look",
            DISK,
            whole=WHOLE,
            listed=listed,
            progress=progress,
            venv=venv,
            package=package,
            entries=entries,
        )
    finally:
        channel.revoke()
    found = _as(Look, raw, channel)
    strange = tuple(f"{name}: its name holds characters that can't be shown" for name in listed.strange[:100])
    return msgspec.structs.replace(found, strange=(*found.strange, *strange)[:512]), listed.entries


async def read(channel: Channel, side: Side, package: str, path: str) -> tuple[bytes, bool]:
    """The beginning of a file, at most 2 MiB, and whether that is not all."""
    data = bytearray()

    async def take(piece: bytes) -> None:
        data.extend(piece[: READ_LIMIT - len(data)])

    channel.grant(READ_LIMIT + SPARE)
    try:
        raw = await channel.request(
            "read", DISK, data=take, venv=side.venv, package=package, path=path, limit=READ_LIMIT
        )
    finally:
        channel.revoke()
    return bytes(data), _as(_Read, raw, channel).is_cut


async def send(channel: Channel, files: Sequence[int], size: int, *, compress: bool, take: TakeData) -> None:
    """Has these files sent, `size` bytes; `take` gets the blocks."""
    channel.is_used_up = True
    # What zlib can't compress grows by a thousandth, and each block has a header.
    channel.grant(size + size // 256 + SPARE)
    try:
        await channel.request("send", DISK, data=take, files=list(files), compress=compress)
    finally:
        channel.revoke()
    channel.is_used_up = False


async def claim(
    channel: Channel,
    side: Side,
    package: str,
    *,
    by: str,
    what: str,
    origin: Side | None,
    version: str,
    stamp: str,
    tree: str,
    keep_backups: int,
    may_copy: bool = False,
) -> Claim:
    """Takes the lock there, if nobody has it and nothing has changed. `may_copy`: a package that can't be renamed may
    be copied aside and removed."""
    channel.is_used_up = True
    where = {"host": origin.host, "venv": origin.venv, "version": version} if origin is not None else {}
    raw = await channel.request(
        "claim",
        DISK,
        whole=WHOLE,
        venv=side.venv,
        package=package,
        by=by,
        what=what,
        origin=where,
        stamp=stamp,
        tree=tree,
        keep_backups=keep_backups,
        may_copy=may_copy,
    )
    return _as(Claim, raw, channel)


async def expect(channel: Channel, entries: Sequence[Entry]) -> None:
    """Tells what the tree shall be."""
    asked = []
    for at in range(0, len(entries), LISTED_AT_ONCE):
        some: list[Any] = msgspec.to_builtins(entries[at : at + LISTED_AT_ONCE])
        asked.append(channel.ask("expect", entries=some))
    await channel.drain()
    for number in asked:
        await channel.answer(number, DISK)


async def want(channel: Channel) -> Wanted:
    """Which files have to come."""
    return _as(Wanted, await channel.request("want", DISK, whole=WHOLE), channel)


async def fill(channel: Channel, number: int, progress: Progress) -> Missing:
    """The answer to a `fill` that was asked for: what is still wanted once the end mark has come."""
    return _as(Missing, await channel.answer(number, DISK, progress=progress), channel)


async def check(channel: Channel, modules: list[list[str]]) -> tuple[Check, ...]:
    """Checks the stage: all there, every hash again, the import."""
    raw = await channel.request("check", DISK, whole=WHOLE, modules=modules, limit=CHECK_LIMIT)
    return _as(_Checks, raw, channel).checks


async def swap(channel: Channel) -> Swapped:
    """Puts the stage into the package's place."""
    return _as(Swapped, await channel.request("swap", DISK, whole=WHOLE), channel)


async def restore(channel: Channel, backup: str, modules: list[list[str]]) -> Swapped:
    """Puts a backup into the package's place; empty for the newest that a copy replaced."""
    raw = await channel.request(
        "restore", DISK, whole=WHOLE, backup=backup, modules=modules, limit=CHECK_LIMIT
    )
    return _as(Swapped, raw, channel)


async def find_spec(channel: Channel, modules: object, limit: float) -> msgspec.Raw | None:
    """The answer to the part `find_spec` of a verification of what was just put in its place; None when the host has
    no short way to it, and the part has to be asked of its agent."""
    raw = await channel.request("find_spec", DISK, whole=WHOLE, modules=modules, limit=limit)
    return raw if _as(_Checks, raw, channel).checks else None


async def settle(channel: Channel, *, keep: bool, note: str) -> Settled:
    """Keeps what was swapped, or undoes it."""
    return _as(Settled, await channel.request("settle", DISK, whole=WHOLE, keep=keep, note=note), channel)


async def release(channel: Channel, silence: Literal[5, 300] = 300) -> None:
    """Gives the lock back; a stage that was not swapped is removed."""
    await channel.request("release", float(silence))
