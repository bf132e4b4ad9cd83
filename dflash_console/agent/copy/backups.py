"""Trees that were replaced: `backups/<id>` holds package and dist-infos, info.json (a Backup) and manifest.json."""

from __future__ import annotations

import contextlib
import os
import time

from ..verify.checks import counted
from . import disk, place, processes
from .place import (
    FOLDER,
    ID,
    MANIFEST,
    MANIFEST_LIMIT,
    Fault,
    Place,
    manifest_of,
    provenance_of,
    read_json,
    step,
)
from .survey import survey

__all__ = ["Unfit", "about", "drop", "listing", "proved", "prune", "seal", "users"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

INFO = "info.json"
LISTED = 256
"""As copies.Look takes."""
MOST_TURNS = 1 << 40
MAPS_LIMIT = 64 << 20
FDS_LIMIT = 4096


class Unfit(Fault):
    """There is no backup to put back, or it is not as it was made. Nothing was changed."""


def about(
    number: str, reason: str, look: dict[str, Any], provenance: dict[str, Any] | None
) -> dict[str, Any]:
    """What is kept beside a package that is replaced now, as it was looked at; empty for none."""
    return {
        "id": number,
        "at": time.time(),
        "version": str(look.get("version") or ""),
        "reason": reason,
        "tree": str(look.get("tree") or ""),
        "provenance": provenance,
    }


def seal(target: int, folder: int, info: object, known: list[list[Any]], names: list[str]) -> None:
    """Write what a backup is into its folder; with its info.json it is one. Raises OSError.

    `target` is the folder of ours, of which it becomes the newest. `known` are the files as they were listed before
    they were replaced: what changed since is hashed again.
    """
    lines = survey(folder, names, known)
    place.write_json(folder, MANIFEST, {"entries": lines})
    about = info if isinstance(info, dict) else {}
    about = {"files": len(lines), "size": sum(line[1] for line in lines), "at": time.time(), **about}
    about.update(files=len(lines), size=sum(line[1] for line in lines), turn=_next_turn(target))
    place.write_json(folder, INFO, about)


def _next_turn(target: int) -> int:
    try:
        folder = disk.open_folder("backups", target)
    except OSError:
        return 1
    try:
        return 1 + max((item["turn"] for item in _infos(folder)), default=0)
    finally:
        os.close(folder)


def listing(venv: str) -> list[dict[str, Any]]:
    """The Backups of an environment, newest first, with who still uses each. Changes nothing."""
    try:
        folder = disk.open_folder(f"{venv}/{FOLDER}/backups")
    except OSError:
        return []
    try:
        found = _infos(folder)[:LISTED]
    finally:
        os.close(folder)
    in_use = users([item["id"] for item in found])
    told = [{key: value for key, value in item.items() if key != "turn"} for item in found]
    return [{**item, "in_use": in_use.get(item["id"], "")} for item in told]


def _infos(folder: int) -> list[dict[str, Any]]:
    found = []
    for name in os.listdir(folder):
        if ID.fullmatch(name):
            info = _info(folder, name)
            if info is not None:
                found.append(info)
    # A clock may have been set back since an older one was made.
    found.sort(key=lambda item: (item["turn"], item["at"], item["id"]), reverse=True)
    return found


def _info(folder: int, name: str) -> dict[str, Any] | None:
    """One backup, with no more than its fields, each of its kind; None for what is none."""
    try:
        inside = disk.open_folder(name, folder)
    except OSError:
        return None
    try:
        value = read_json(inside, INFO)
    finally:
        os.close(inside)
    if not isinstance(value, dict):
        return None
    at, files, size = value.get("at"), value.get("files"), value.get("size")
    if not place.is_time(at) or not place.is_count(files) or not place.is_count(size):
        return None
    reason, turn = value.get("reason"), value.get("turn", 0)
    return {
        "id": name,
        "turn": turn if place.is_count(turn) and turn < MOST_TURNS else 0,
        "at": at,
        "version": str(value.get("version") or "")[:4096],
        "files": files,
        "size": size,
        "reason": reason if reason in ("copy", "rollback") else "copy",
        "tree": str(value.get("tree") or "")[:4096],
        "provenance": provenance_of(value.get("provenance")),
    }


def proved(target: Place, number: str) -> tuple[dict[str, Any], list[str], list[list[Any]]]:
    """A backup that is as it was when it was made: its info, the names in it, its files. "" is the newest.

    Newest of those that a copy replaced. Raises Unfit and OSError.
    """
    folder = disk.open_folder("backups", target.fd)
    try:
        found = _infos(folder)
        chosen = [item for item in found if (item["id"] == number if number else item["reason"] == "copy")]
        if not chosen:
            there = ", ".join(item["id"] for item in found) or "none"
            raise Unfit(f"{target.path}/backups holds no {number or 'backup of a copy'}; there are: {there}")
        info = chosen[0]
        spoilt = [] if number else _spoilt(folder, info["id"])
        if spoilt:
            raise Unfit(
                f"{target.path}/backups/{spoilt[-1]} is newer and can't be read as a backup (no info.json that makes "
                f"sense): look at it, or name the one to put back, such as {info['id']}"
            )
        inside = disk.open_folder(info["id"], folder)
        try:
            names = sorted(name for name in os.listdir(inside) if name not in (INFO, MANIFEST))
            lines = manifest_of(read_json(inside, MANIFEST, MANIFEST_LIMIT))
            now = survey(inside, names)
        finally:
            os.close(inside)
    finally:
        os.close(folder)
    if not lines and info["files"]:
        raise Unfit(
            f"backup {info['id']}: its manifest.json can't be read, so nothing proves that it is whole"
        )
    before, after = ({line[0]: (line[1], line[6]) for line in some} for some in (lines, now))
    different = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    if different:
        raise Unfit(
            f"backup {info['id']} is not as it was made: {counted(len(different), 'file')} not, first "
            f"{different[0]}; name another one, if there is one"
        )
    return info, names, now


def _spoilt(folder: int, since: str) -> list[str]:
    """What bears the name of a backup that was made after that one, and is none: it may be the newest package that was
    replaced."""
    names = sorted(name for name in os.listdir(folder) if ID.fullmatch(name) and name > since)
    return [name for name in names if _info(folder, name) is None]


def drop(target: Place, number: str) -> None:
    """Remove a backup; one that is half removed is a stage that anybody sweeps away. Raises OSError."""
    gone = f"stage-{number}-gone"
    step("set backup aside")
    disk.remove(target.fd, gone)
    with contextlib.suppress(FileNotFoundError):
        disk.rename(target.fd, f"backups/{number}", target.fd, gone)
    step("remove backup")
    disk.remove(target.fd, gone)


def prune(target: Place, keep: int, protected: Iterable[str] = ()) -> list[str]:
    """Remove the oldest beyond `keep`, but none that is in use or protected; their ids.

    Raises OSError, and Fault, with nothing removed, when it can't be told what is in use.
    """
    folder = disk.open_folder("backups", target.fd)
    try:
        old = [item["id"] for item in _infos(folder)][max(0, keep) :]
    finally:
        os.close(folder)
    old = [number for number in old if number not in protected]
    in_use = _users_asked_beside(old)
    gone = [number for number in old if number not in in_use]
    for number in gone:
        drop(target, number)
    return gone


# ---- who uses one


def users(numbers: list[str]) -> dict[str, str]:
    """Who has files of a backup open or mapped, by its id: `process 4711 (python)`. As far as /proc may be read."""
    found: dict[str, str] = {}
    if not numbers:
        return found
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            for number in _used_by(int(pid), numbers):
                found.setdefault(number, f"process {pid} ({_name(pid)})")
    return found


def _users_asked_beside(numbers: list[str]) -> dict[str, int]:
    """As `users`, the pid of each, by a child: what hangs in a driver would keep the lock. Raises Fault when not all
    processes could be asked."""
    found: dict[str, int] = {}
    if not numbers:
        return found
    search = processes.ProcessSearch(lambda pid: _used_by(pid, numbers))
    try:
        for pid, used in search.read():
            found.update(dict.fromkeys(used, pid))
    finally:
        search.close()
    if search.unseen:
        raise Fault(f"it can't be told whether one is in use: {search.unseen}")
    return found


def _used_by(pid: int, numbers: list[str]) -> list[str]:
    """Which of the backups a process has files of open or mapped."""
    text = _paths_of(f"/proc/{pid}")
    return [number for number in numbers if f"/{FOLDER}/backups/{number}/".encode() in text]


def _paths_of(folder: str) -> bytes:
    """The paths of all that a process has mapped or open."""
    parts: list[bytes] = []
    with contextlib.suppress(OSError), open(f"{folder}/maps", "rb") as file:
        parts.append(file.read(MAPS_LIMIT))
    parts += [_link(f"{folder}/cwd"), _link(f"{folder}/exe")]
    try:
        names = os.listdir(f"{folder}/fd")[:FDS_LIMIT]
    except OSError:
        names = []
    parts += [_link(f"{folder}/fd/{name}") for name in names]
    return b"\n".join(parts)


def _link(path: str) -> bytes:
    try:
        return os.readlink(os.fsencode(path)) + b"/"
    except OSError:
        return b""


def _name(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read(64).strip()
    except OSError:
        return "gone"
