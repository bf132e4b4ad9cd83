"""What children of the venv section do: read environments one after the other, look for others."""

from __future__ import annotations

import os

from ..mounts import read_mounts
from ..section import missing
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

    Item = tuple[str, str, "dict[str, Mark] | None"]


def look_at(channel: Channel, items: list[Item], spec: dict[str, Any]) -> None:
    """Read environments: (folder or a unit's interpreter, source, the marks of the last look or None).

    Sends one value for each: None when the marks still hold, else what `read_venv` gives.
    """
    remote = remote_mounts(read_mounts())
    for path, source, marks in items:
        channel.send(None if marks and not has_changed(marks) else read_venv(path, source, spec, remote))


def search(channel: Channel) -> None:
    """Look for environments in the usual places; sends their folders, and what the search leaves out."""
    found = find_venvs(remote_mounts(read_mounts()), os.path.expanduser("~"))
    channel.send([found.venvs, found.note])


def read_venv(path: str, source: str, spec: dict[str, Any], remote: list[str]) -> dict[str, Any]:
    """An environment as it is now.

    `venv` as model.Venv has it, `real` its real path, `marks` of all that was looked at, `is_young` when one
    more look is due soon, `is_remote` when a look may hang, `is_gone` when there is no environment any more,
    `cut` the files and folders that hold more than was read.
    """
    look = Look()
    folder = os.path.expanduser(native(path))
    if source == "unit":
        folder = prefix_of(folder)
    is_gone = False
    try:
        interpreter = read_interpreter(folder, look)
        if isinstance(interpreter, Interpreter):
            venv = {"path": folder, "source": source, "python": interpreter.python}
            venv.update(read_packages(interpreter, spec, look))
        else:
            venv = absent(folder, source, interpreter)
            is_gone = interpreter["missing"] == "not_found"
    except Exception as error:  # noqa: BLE001 - one spoilt environment must not take the others with it
        venv = absent(folder, source, missing("error", f"can't be read: {error}"))
    return {
        "venv": _shown(venv),
        "real": os.path.realpath(folder),
        "marks": look.marks,
        "is_young": look.is_young,
        "is_remote": _is_remote(look, remote),
        "is_gone": is_gone,
        "cut": [shown(path) for path in look.cut],
    }


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
        return value if value.isascii() else shown(value)
    if isinstance(value, dict):
        return {_shown(key): _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list) else value
