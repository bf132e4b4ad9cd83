"""Unit files on disk: which are installed, and whether one was edited. Reads names and times only."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase

from .text import is_glob, refusal, system_name

__all__ = ["FileWatch", "installed_units", "unit_folders"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

LOCAL = ("/etc/", "/run/", "/usr/", "/lib/")
"""A stat below these can't wait for a network."""


def unit_folders(runtime: str) -> list[str]:
    """Where unit files lie, by systemd.unit(5), "Unit File Load Path": of the user's manager when its runtime
    folder is given, else of the system's."""
    if not runtime:
        folders = ["/etc/systemd/system", "/run/systemd/system", "/run/systemd/generator"]
        return [*folders, "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"]
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    folders = [config + "/systemd/user", data + "/systemd/user", runtime + "/systemd/generator"]
    return [
        *folders,
        "/etc/systemd/user",
        "/run/systemd/user",
        "/usr/local/lib/systemd/user",
        "/usr/lib/systemd/user",
    ]


def installed_units(folders: Iterable[str], globs: list[str]) -> list[str]:
    """The units with a file in one of `folders` that a glob names, without templates, sorted.

    systemctl's own globs only see loaded units, and one that was stopped is none any more. Home folders may
    lie on a dead mount: call it in a child.
    """
    found: set[str] = set()
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        found.update(
            name
            for name in names
            if any(fnmatchcase(name, glob) for glob in globs)
            and not is_glob(name)
            and system_name(name) == name
            and not refusal(name)
        )
    return sorted(found)


class FileWatch:
    """Tells whether files or folders have changed, by one lstat each. Those that may hang are left out."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int] | None] = {}

    def watch(self, paths: Iterable[str]) -> None:
        """Look at these paths from now on, as they are now."""
        self._seen = {path: _stamp(path) for path in paths if path.startswith(LOCAL)}

    def has_changed(self) -> bool:
        """Whether one came, went or was written since `watch` or the last call."""
        now = {path: _stamp(path) for path in self._seen}
        changed = now != self._seen
        self._seen = now
        return changed


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
