"""What the place itself says about a change of the package there: disk, mounts, who uses it, who holds it. Pure.

The same for a copy and a rollback.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from dflash_console.copies import Look, Side
from dflash_console.verdict import Check

__all__ = ["BLOCK", "counted", "disk_checks", "few", "is_swap_unsure", "use_checks"]

SHARED_FILESYSTEMS = ("nfs", "9p", "fuse", "cifs", "smb", "lustre", "ceph", "gpfs", "beegfs", "afs")
"""How the types begin of filesystems that are known to refuse an exchange of two folders, or may (rename(2))."""
BLOCK = 4096
"""Bytes that a file may take up beyond its size, a folder by itself."""
SHOWN = 3


_LAYERS = {
    "own": "the package is of its writable layer, and the swap is expected in one step",
    "lower": "the package is of a lower layer (an image) and can't be renamed: it is copied aside and removed before "
    "the new one is put in its place, and who imports it meanwhile finds a part of it or none",
    "unknown": "whether the package is of a lower layer (an image) can't be told there (Linux before 6.6): then it is "
    "copied aside and removed before the new one is put in its place, and who imports it meanwhile finds a part of it "
    "or none",
}


_NAMES = ("mount", "filesystem", "links", "space", "inodes", "writable")


def disk_checks(side: Side, look: Look, size: int, inodes: int) -> tuple[Check, ...]:
    """Where it is laid: `size` bytes and `inodes` files and folders have to be made there."""
    if look.state == "broken":
        why = "not looked at: there is no environment"
        return tuple(Check(name, "unknown", why) for name in _NAMES)
    second = 0
    if look.layer != "own":
        # What can't be renamed is copied to become the backup; its folders are few beside its files.
        second = look.size + BLOCK * look.files
        inodes += look.files
    return (
        _mount(side, look),
        _filesystem(side, look),
        Check(
            "links",
            "pass",
            f"{counted(look.hard_linked, 'file')} with other names elsewhere (a uv cache); those stay as they are",
        )
        if look.hard_linked
        else Check("links", "pass", "no hard links"),
        _space(side, look, size + second, second),
        _inodes(side, look, inodes),
        Check("writable", "pass", f"{look.site} can be written to")
        if look.is_writable
        else Check("writable", "fail", f"{side} can't be written to: {look.denied}; log in as its owner"),
    )


def _mount(side: Side, look: Look) -> Check:
    if look.mount:
        return Check(
            "mount",
            "fail",
            f"{look.mount} is mounted at the package's place on {side} and can't be exchanged: unmount it, or copy to "
            "where it comes from",
        )
    return Check("mount", "pass", "nothing is mounted at the package's place")


def _filesystem(side: Side, look: Look) -> Check:
    kind = look.filesystem
    if not look.is_same_filesystem:
        return Check(
            "filesystem",
            "fail",
            f"environment and site-packages on {side} are on two filesystems: what is laid in one can't be moved into "
            "the other in one step; name an environment that lies on one filesystem",
        )
    if kind.startswith(SHARED_FILESYSTEMS):
        return Check(
            "filesystem",
            "warn",
            f"{kind} on {side} may refuse an exchange of folders: then the swap is two renames, and other hosts that "
            "share it see the change too",
        )
    if kind.startswith("overlay"):
        return Check(
            "filesystem",
            "warn",
            f"overlay on {side}: {_LAYERS[look.layer]}; the change is lost with the container",
        )
    return Check("filesystem", "pass", f"{kind or 'one filesystem'}: the swap is expected in one step")


def _space(side: Side, look: Look, size: int, second: int) -> Check:
    """`second`: what of it is for a second copy of the old package."""
    also = f" ({_size(second)} of it to copy the old package aside)" if second else ""
    if look.free < size:
        return Check(
            "space",
            "fail",
            f"{_size(size)} are needed on {side}{also}, {_size(look.free)} are free: remove old backups or make room",
        )
    return Check("space", "pass", f"{_size(size)} needed at most{also}, {_size(look.free)} free")


def _inodes(side: Side, look: Look, count: int) -> Check:
    if look.free_inodes is None:
        return Check("inodes", "pass", "no limit")
    if look.free_inodes < count:
        return Check(
            "inodes",
            "fail",
            f"{count:,} files and folders have to be made on {side}, {look.free_inodes:,} inodes are free",
        )
    return Check("inodes", "pass", f"{count:,} needed, {look.free_inodes:,} free")


# ---- who is there


def is_swap_unsure(look: Look) -> bool:
    """Whether the filesystem may not know the exchange of two folders, so that the swap needs a yes."""
    return look.filesystem.startswith(SHARED_FILESYSTEMS)


def use_checks(side: Side, look: Look, units: tuple[str, ...]) -> tuple[Check, ...]:
    """Who runs from it (`units`: active ones), who holds its lock, and what an earlier copy left."""
    return _importers(look, side, units), _lock(look, side), _interrupted(look, side)


def _importers(look: Look, side: Side, units: tuple[str, ...]) -> Check:
    who = (*(f"unit {unit}" for unit in units), *look.importers)
    if who:
        return Check(
            "importers",
            "warn",
            f"{few(who)} run from {side}: they go on with what they have loaded, may mix old and new when they import "
            "more, and need a restart",
            who[:256],
        )
    return Check("importers", "pass", "nothing runs from this environment")


def _lock(look: Look, side: Side) -> Check:
    if look.lock is not None:
        holder = look.lock
        return Check(
            "lock",
            "fail",
            f"{side} is held by {holder.by} ({holder.what or 'a copy'}{_since(holder.since)}): wait for its end "
            "and plan again",
        )
    return Check("lock", "pass", "nobody else is changing it")


def _interrupted(look: Look, side: Side) -> Check:
    if look.unsettled is not None:
        left = look.unsettled
        return Check("interrupted", "warn", f"{side}: {left.what} ended at `{left.step}`; {left.outlook}")
    return Check("interrupted", "pass", "no interrupted copy")


# ---- words


def few(words: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    return "; ".join(words[:SHOWN]) + more


def counted(number: int, what: str) -> str:
    """`1 file`, `3,137 files`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _size(size: int) -> str:
    """In the largest binary unit that leaves a whole one: `56.4 MiB`, `206.8 GiB`."""
    value, units = size / (1 << 20), ["MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:,.1f} {units[0]}"


def _since(at: float) -> str:
    return f", since {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(at))} UTC" if at else ""
