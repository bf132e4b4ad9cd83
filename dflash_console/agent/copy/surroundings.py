"""The place that a package would be laid in: room, filesystem, mounts, and whether the login user may write."""

from __future__ import annotations

import os
import stat

from ..mounts import has_failed, mount_of, read_mounts
from ..venvs.look import shown
from .layers import layer_of
from .place import FOLDER

__all__ = ["surroundings"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def surroundings(venv: str, site: str, names: list[str]) -> dict[str, Any]:
    """The fields of copies.Look about it; `names` are what lies in `site` now and would be replaced."""
    if not site or not os.path.isdir(venv):
        return {}
    ours = f"{venv}/{FOLDER}"
    stage = os.path.realpath(ours if os.path.isdir(ours) else venv)
    real = os.path.realpath(site)
    mounts = read_mounts()
    room = os.statvfs(stage)
    is_root = os.geteuid() == 0
    denied = _denied(stage, real, names) or _failed([stage, real], mounts)
    kind = mount_of(stage, mounts)[1]
    return {
        "free": room.f_frsize * (room.f_bfree if is_root else room.f_bavail),
        "free_inodes": None if room.f_files == 0 else room.f_ffree if is_root else room.f_favail,
        "filesystem": kind,
        "layer": layer_of([f"{real}/{name}" for name in names]) if kind == "overlay" else "own",
        "mount": "; ".join(_mounted(real, names, mounts))[:1000],
        # By path as well: of one filesystem that is mounted twice, nothing can be moved from the one to the other.
        "is_same_filesystem": os.stat(stage).st_dev == os.stat(real).st_dev
        and mount_of(stage, mounts)[0] == mount_of(real, mounts)[0],
        "is_writable": not denied,
        "denied": denied,
    }


def _mounted(real: str, names: list[str], mounts: list[tuple[str, str]]) -> list[str]:
    tops = [f"{real}/{name}" for name in names]
    places = dict.fromkeys(mount for mount, _ in mounts)
    return [
        shown(mount) for mount in places if any(mount == top or mount.startswith(f"{top}/") for top in tops)
    ]


def _denied(stage: str, site: str, names: list[str]) -> str:
    """Why the login user could not lay a package there; empty when nothing is in the way."""
    folders = [stage, site, *(f"{site}/{name}" for name in names)]
    for folder in folders:
        if not os.path.isdir(folder) or os.access(folder, os.W_OK | os.X_OK):
            continue
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            return f"{shown(folder)} is on a filesystem that is mounted read-only"
        facts = os.stat(folder)
        if os.geteuid() in (0, facts.st_uid):
            return f"{shown(folder)} can't be written to, not even by its owner (chmod, chattr +i?)"
        return (
            f"{shown(folder)} belongs to {_name(facts.st_uid)}, and {_name(os.geteuid())} may not write there"
        )
    facts = os.stat(site)
    if facts.st_mode & stat.S_ISVTX and os.geteuid() not in (0, facts.st_uid):
        for name in names:
            path = f"{site}/{name}"
            if os.path.isdir(path) and os.lstat(path).st_uid != os.geteuid():
                return f"{shown(path)} may only be moved by its owner: {shown(site)} has the sticky bit"
    return ""


def _failed(folders: list[str], mounts: list[tuple[str, str]]) -> str:
    """Why nothing is written there any more; empty when it is."""
    for folder in folders:
        mount, _ = mount_of(folder, mounts)
        if has_failed(mount):
            return (
                f"the filesystem at {shown(mount)} has failed and takes no more writes: see the kernel's log"
            )
    return ""


def _name(uid: int) -> str:
    from ..procs import user_name

    return user_name(uid)
