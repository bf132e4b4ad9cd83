"""Whether what a process runs is what lies there now.

Only what Python may import counts: an editor's swap file or bytecode changes a folder's times, a backup by hard links
changes the ctimes of files. A file's ctime tells when it came or was changed, as a copy may keep old mtimes; a whole
tree may also be moved into the place of another, or a link be turned to another tree, and then only the folder's or
the link's own times tell.
"""

from __future__ import annotations

import os
import stat

from .bytecode import is_bytecode_of
from .checks import counted, when
from .record import compare, read_record

__all__ = ["Change", "find_change"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .ground import Ground
    from .tree import Tree

MARGIN = 1.0
"""Seconds by which a change must be later than a start: clocks tick coarsely, and no import is faster."""
TICK = 20_000_000
"""Nanoseconds between a folder's mtime and ctime from which on they are of two events."""
UNTOUCHED_LEAST = 3
"""Folders without bytecode from which on it says something that all of them are new."""
MAPS_LIMIT = 8 << 20
_STATX_BTIME, _AT_FDCWD = 0x800, -100


class Change:
    """What changed since a process started."""

    def __init__(self, at: float, what: str) -> None:
        self.at = at
        """Seconds since 1970 by the host's clock; 0 when that can't be told."""
        self.what = what
        self.mere_touch = ""
        """Why the code is what it was, though its times changed; empty when it is not known to be."""


def find_change(ground: Ground, tree: Tree, pid: int, started: float | None, prefix: str) -> Change | None:
    """The newest change of the package since a process started in the environment, whose path it took to be `prefix`;
    None when there is none. Raises OSError when the disk fails."""
    gone = _replaced(ground, tree, pid)
    if started is not None:
        since = int((started + MARGIN) * 1e9)
        files = _changed_files(tree, since)
        places = _swapped(ground, tree, since, prefix)
        installed = _installed(ground, since)
        newest = max([*files.items(), *places.items(), *installed.items()], key=_time, default=None)
        if newest is not None:
            more = (
                f" and {counted(len(files) - 1, 'more file')}"
                if newest[0] in files and len(files) > 1
                else ""
            )
            change = Change(newest[1] / 1e9, newest[0] + more)
            if not installed and not gone:
                if _is_as_recorded(ground, tree, files, bool(places)):
                    change.mere_touch = "as RECORD has it"
                elif _is_same_inside(ground, tree, files, since):
                    change.mere_touch = "only owner or mode, by all that shows"
            return change
    return Change(0.0, f"it has {gone[0]} open, which was replaced") if gone else None


def describe(change: Change, started: float | None) -> str:
    """The change in words."""
    if not change.at or started is None:
        return change.what
    return f"started {when(started)}, tree changed {when(change.at)}: {change.what}"


def _time(item: tuple[str, int]) -> int:
    return item[1]


def _changed_files(tree: Tree, since: int) -> dict[str, int]:
    """Files that Python may import and the times of their last change. A hard link to a file elsewhere changes the
    ctime too (uv makes one for each environment, `cp -al` for a backup), so of several names the mtime counts."""
    found = {}
    for name in tree.code:
        seen = tree.files[name]
        time = max(seen.ctime if seen.links == 1 else seen.mtime, tree.link_times.get(name, 0))
        if time > since:
            found[name] = time
    return found


def _swapped(ground: Ground, tree: Tree, since: int, prefix: str) -> dict[str, int]:
    """Links and folders that took the place of others, as far as their own times tell: those on the way that the
    process took."""
    found = {
        f"the link {tree.root}/{name}": time
        for name, time in tree.link_times.items()
        if time > since and name in tree.linked_folders
    }
    path = tree.root
    if f"{path}/".startswith(f"{ground.folder}/"):
        path = prefix + path[len(ground.folder) :]
    root = path
    while path not in ("/", ""):
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            if status.st_ctime_ns > since:
                found[f"the link {path}"] = status.st_ctime_ns
            status = os.stat(path)
        is_within = f"{path}/".startswith(f"{prefix}/") or path == root
        # A new name in a folder changes both times, a move of the folder (or its owner or mode) the ctime alone.
        if is_within and status.st_ctime_ns > max(since, status.st_mtime_ns + TICK):
            found[f"the folder {path} came here"] = status.st_ctime_ns
        path = os.path.dirname(path)
    untouched = [
        ctime
        for name, ctime in tree.folders.items()
        if (f"{name}/__pycache__" if name else "__pycache__") not in tree.caches
    ]
    if len(untouched) >= UNTOUCHED_LEAST and min(untouched) > since:
        found[f"all folders of {tree.root} are new"] = min(untouched)
    return found


def _installed(ground: Ground, since: int) -> dict[str, int]:
    """The marks of an installer that wrote after the start."""
    found = {}
    for name in ("RECORD", "INSTALLER") if ground.vouching is not None else ():
        path = f"{ground.vouching.path}/{name}" if ground.vouching is not None else ""
        try:
            status = os.stat(path)
        except OSError:
            continue
        # A change of the owner is none of the content.
        born = _birth(path) if status.st_ctime_ns > since else 0
        time = max(
            status.st_mtime_ns, status.st_ctime_ns if born is None and status.st_nlink == 1 else born or 0
        )
        if time > since:
            found[f"{os.path.basename(ground.vouching.path)}/{name}" if ground.vouching else ""] = time
    return found


def _birth(path: str) -> int | None:
    """When a file's inode was made, in nanoseconds, by statx(2); None where that is not kept."""
    import ctypes

    buffer = ctypes.create_string_buffer(256)
    try:
        statx = ctypes.CDLL(None).statx
    except AttributeError:
        return None
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, buffer):
        return None
    raw = buffer.raw
    if not int.from_bytes(raw[:4], "little") & _STATX_BTIME:
        return None
    return int.from_bytes(raw[80:88], "little", signed=True) * 1_000_000_000 + int.from_bytes(
        raw[88:92], "little"
    )


def _is_as_recorded(ground: Ground, tree: Tree, files: dict[str, int], is_swapped: bool) -> bool:
    """Whether the files, or the whole tree, are as the RECORD has them, which is older than the process."""
    if ground.vouching is None:
        return False
    record = read_record(ground.vouching.path)
    if isinstance(record, str):
        return False
    found = compare(record, tree)
    prefix = os.path.relpath(tree.root, ground.home) + "/" if tree.root != ground.home else ""
    same = set(found.same)
    return all(prefix + name in same for name in (tree.code if is_swapped else files))


def _is_same_inside(ground: Ground, tree: Tree, files: dict[str, int], since: int) -> bool:
    """Whether nothing but owners or modes changed, where no RECORD tells.

    No file or folder came anew, which would be younger than the start, and no folder took another's place. A file
    that was written in its place with its mtime kept is not of the size and mtime in its bytecode any more. Where
    there is no bytecode, only all files at once speak for `chown -R`: a copy over them adds some.
    """
    if not files or any(time > since for time in tree.link_times.values()):
        return False
    is_all = all(max(seen.ctime, seen.mtime) > since for seen in tree.files.values())
    for name in files:
        seen = tree.files[name]
        born = _birth(f"{tree.root}/{name}")
        if seen.mtime > since or seen.links > 1 or born is None or born > since:
            return False
        is_known = is_bytecode_of(ground.interpreter, tree, name)
        if is_known is False or (is_known is None and not is_all):
            return False
    for name in tree.folders:
        born = _birth(f"{tree.root}/{name}" if name else tree.root)
        if born is None or born > since:
            return False
    # A move into its place changes the mtime of the folder above, up to that of the environment.
    path = tree.root
    while path not in ("/", "", os.path.dirname(ground.folder)):
        path = os.path.dirname(path)
        if os.stat(path).st_mtime_ns > since:
            return False
    return True


def _replaced(ground: Ground, tree: Tree, pid: int) -> list[str]:
    """Files of the tree that a process has mapped and that are there no more under their name."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            lines = os.fsdecode(file.read(MAPS_LIMIT)).split("\n")
    except OSError:
        return []
    paths = {f"/{line.partition('/')[2]}" for line in lines if "/" in line}
    roots = tuple(f"{root}/" for root in {ground.where, os.path.realpath(ground.where)})
    homes = {os.path.dirname(root.rstrip("/")) for root in roots}
    libraries = [name for name in tree.code if not name.endswith(".py")]
    gone = " (deleted)"
    found = []
    for path in paths:
        if path.endswith(gone) and path.startswith(roots):
            found.append(path[: -len(gone)])
        elif not path.startswith(roots):
            # The tree was moved aside.
            tails = (name for name in libraries if path.endswith(f"/{name}"))
            found += [path for name in tails if os.path.dirname(path[: -len(name) - 1]) in homes]
    return sorted(found)
