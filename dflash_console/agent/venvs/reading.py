"""What children of the venv section do: read environments one after the other, look for others."""

from __future__ import annotations

import os
from time import process_time

from ..mounts import read_mounts
from ..section import missing
from .copies import FOLDER, count_changes, read_copies
from .interpreter import Interpreter, prefix_of, read_interpreter
from .look import Look, has_changed, native, shown
from .packages import read_packages
from .search import find_venvs, remote_mounts

__all__ = ["absent", "look_at", "read_venv", "search"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..child import Channel
    from .look import Mark

    Counted = tuple[Mark, "int | dict[str, str]"]
    """The mark of a manifest, and what was counted by it."""
    Item = tuple[str, str, "dict[str, Mark] | None", "Counted | None"]


def look_at(channel: Channel, items: list[Item], spec: dict[str, Any]) -> None:
    """Read environments: (folder or a unit's interpreter, source, the marks of the last look or None, the last
    count of changed files while it may still stand).

    Sends one value for each: None when the marks still hold, else what `read_venv` gives.
    """
    remote = remote_mounts(read_mounts())
    for path, source, marks, counted in items:
        is_same = marks and not has_changed(marks)
        channel.send(None if is_same else read_venv(path, source, spec, remote, counted))


def search(channel: Channel) -> None:
    """Look for environments in the usual places; sends their folders, and what the search leaves out."""
    found = find_venvs(remote_mounts(read_mounts()), os.path.expanduser("~"))
    channel.send([found.venvs, found.note])


def read_venv(
    path: str, source: str, spec: dict[str, Any], remote: list[str], counted: Counted | None = None
) -> dict[str, Any]:
    """An environment as it is now.

    `venv` as model.Venv has it, `real` its real path, `marks` of all that was looked at, `is_young` when one
    more look is due soon, `is_remote` when a look may hang, `is_gone` when there is no environment any more,
    `cut` the files and folders that hold more than was read, `counted` of the changed files of a copy (with the
    CPU seconds that it took as `cost`, if they were counted now).
    """
    look = Look()
    folder = path if source == "found" else os.path.expanduser(native(path))
    if source == "unit":
        folder = prefix_of(folder)
    is_gone = is_copying = False
    cost = 0.0
    try:
        interpreter = read_interpreter(folder, look)
        if isinstance(interpreter, Interpreter):
            venv: dict[str, Any] = {"path": folder, "source": source, "python": interpreter.python}
            venv.update(read_packages(interpreter, spec, look))
            copies = read_copies(folder, look)
            is_copying = bool(copies.running)
            venv["interrupted"] = copies.interrupted
            if copies.copied is not None:
                counted, cost = _count(folder, interpreter.sites, look, remote, counted)
                venv["copied"] = {**copies.copied, "changed": counted[1]}
        else:
            venv = absent(folder, source, interpreter)
            is_gone = interpreter["missing"] == "not_found"
    except Exception as error:  # noqa: BLE001 - one spoilt environment must not take the others with it
        venv = absent(folder, source, missing("error", f"can't be read: {error}"))
    return {
        "venv": _shown(venv),
        "real": os.path.realpath(folder),
        "marks": look.marks,
        # A copy that dies changes no file.
        "is_young": look.is_young or is_copying,
        "is_remote": _is_remote(look, remote),
        "is_gone": is_gone,
        "cut": [shown(path) for path in look.cut],
        "counted": counted,
        "cost": cost,
    }


def _count(
    folder: str, sites: list[str], look: Look, remote: list[str], counted: Counted | None
) -> tuple[Counted, float]:
    """The changed files of a copy, and the CPU seconds of counting them; as last time while that stands."""
    mark = look.mark(f"{folder}/{FOLDER}/manifest.json")
    if counted is not None and counted[0] == mark:
        return counted, 0.0
    if _is_remote(look, remote):
        return (mark, missing("unsupported", "not counted on a network filesystem")), 0.0
    began = process_time()
    found = count_changes(folder, sites)
    return (mark, found), process_time() - began


def absent(path: str, source: str, reason: dict[str, str]) -> dict[str, Any]:
    """A Venv of which nothing is known but why."""
    return {
        "path": path,
        "source": source,
        "python": reason,
        "packages": {},
        "package": reason,
        "torch_build": reason,
    }


def _is_remote(look: Look, remote: list[str]) -> bool:
    """Whether anything that was looked at lies on a mount whose server may stop to answer."""
    if not remote:
        return False
    folders = {os.path.realpath(os.path.dirname(path)) for path in look.marks}
    return any(folder == mount or folder.startswith(mount + "/") for folder in folders for mount in remote)


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() and "\\" not in value else shown(value)
    if isinstance(value, dict):
        return {_shown(key): _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list) else value
