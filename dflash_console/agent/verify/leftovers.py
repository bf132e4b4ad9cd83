"""The check `leftovers`: files of an older version below a copied tree, and what somebody or pip put beside it."""

from __future__ import annotations

import os
import re

from .checks import check, counted, first_few
from .record import is_code

__all__ = ["check_leftovers"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .ground import Ground
    from .record import Comparison
    from .tree import Tree

BURST = 60_000_000_000
"""Nanoseconds within which one installation unpacks its files."""
STRAY = r"[-_. ~]*(bak|back|backup|old|orig|original|saved?|copy|tmp|temp|prev|before|broken|new|\d)"
"""How a folder that somebody put aside goes on after the package's name."""


def check_leftovers(
    ground: Ground, tree: Tree, split: Comparison | None, version: object, installed: object
) -> dict[str, Any]:
    """The check `leftovers`. `split`: the RECORD of another version than the tree's against the files."""
    stray = _stray(ground)
    left: list[str] | None = []
    if split is not None:
        left = _left_below(ground, tree, split)
    told = []
    if left:
        told.append(
            f"{counted(len(left), 'file')} of {installed} below the tree of {version}: {first_few(left)}"
        )
    if stray:
        told.append(f"beside the package: {first_few(stray)}")
    evidence = [f"{ground.home}/{name}" for name in (left or []) + stray]
    if told:
        return check("leftovers", "warn", "; ".join(told), evidence)
    if left is None:
        return check(
            "leftovers", "unknown", f"files of {installed} can't be told from copied ones by their times"
        )
    return check("leftovers", "pass", "none")


def _left_below(ground: Ground, tree: Tree, found: Comparison) -> list[str] | None:
    """Code that the old RECORD lists, unchanged, and that was there before the copy; None when times don't
    tell.

    The copy began when the first file that differs came; the installation ended when RECORD was written.
    """
    vouching = ground.vouching
    prefix = os.path.relpath(tree.root, ground.home) + "/"
    if vouching is None:
        return None
    try:
        written, metadata = os.stat(f"{vouching.path}/RECORD"), os.stat(f"{vouching.path}/METADATA")
    except OSError:
        return None
    ended = written.st_ctime_ns if written.st_nlink == 1 else written.st_mtime_ns
    copied = [
        tree.files[name[len(prefix) :]] for name in found.changed + found.extra if name.startswith(prefix)
    ]
    began = min((seen.ctime for seen in copied if seen.ctime > ended), default=None)
    if began is None:
        return None
    left = []
    for name in found.same:
        seen = tree.files.get(name[len(prefix) :]) if name.startswith(prefix) and is_code(name) else None
        if seen is None:
            continue
        # A hard link elsewhere changes the ctime, so of those the time at which they were unpacked counts.
        is_old = seen.ctime < (ended + began) / 2
        if seen.links > 1:
            is_old = abs(seen.mtime - metadata.st_mtime_ns) < BURST
        if is_old:
            left.append(name)
    return left


def _stray(ground: Ground) -> list[str]:
    """What pip leaves of the package when it fails, and copies that somebody put beside it."""
    name = re.escape(ground.package)
    put_aside = re.compile(f"{name}{STRAY}.*", re.IGNORECASE | re.DOTALL)
    failed = re.compile(f"~+-?{re.escape(ground.package[1:])}([-.].*)?", re.IGNORECASE | re.DOTALL)
    known = re.compile(r".*\.(dist-info|egg-info|libs|data|pth|egg-link)", re.DOTALL)
    return [
        item
        for item in ground.look.names(ground.home)
        if failed.fullmatch(item) or (put_aside.fullmatch(item) and not known.fullmatch(item))
    ]
