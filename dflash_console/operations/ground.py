"""What the place itself says about a change of the package there: disk, mounts, who uses it, who holds it. Pure.

The same for a copy and a rollback.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from dflash_console.copies import Look, Side
from dflash_console.verdict import Check

__all__ = ["counted", "disk_checks", "few", "is_swap_unsure", "use_checks"]

SHARED_FILESYSTEMS = ("nfs", "9p", "fuse", "cifs", "smb", "lustre", "ceph", "gpfs", "beegfs", "afs")
"""How the types begin of filesystems that are known to refuse an exchange of two folders, or may (rename(2))."""
SHOWN = 3


def disk_checks(side: Side, look: Look, size: int, inodes: int) -> tuple[Check, ...]:
    """Where it is laid: `size` bytes and `inodes` files and folders have to be made there."""
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
        _space(side, look, size),
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
            f"overlay on {side}: a package of a lower layer (an image) can't be renamed, it is copied, and the "
            "swap is not in one step; the change is lost with the container",
        )
    return Check("filesystem", "pass", f"{kind or 'one filesystem'}: the swap is expected in one step")


def _space(side: Side, look: Look, size: int) -> Check:
    if look.free < size:
        return Check(
            "space",
            "fail",
            f"{_size(size)} are needed on {side}, {_size(look.free)} are free: remove old backups or make room",
        )
    return Check("space", "pass", f"{_size(size)} needed at most, {_size(look.free)} free")


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
    """Whether the swap can't be expected to be one step, so that it needs a yes. An overlay alone says little: only a
    package of an image's own layer can't be exchanged there."""
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
