"""The configured paths: there or not, what they are, and the room around them.

A path may lie on a dead network mount, where any look hangs: children look, and one that hangs takes only the
path with it that it hangs on.
"""

from __future__ import annotations

import os
import stat

from .child import OneShot
from .mounts import filesystem, mount_of, read_mounts, why
from .section import Section, missing

__all__ = ["PathSection", "read_path"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .child import Channel, Outcome

DEADLINE = 5.0
"""Seconds that all paths of one look may take."""
# A tenth less than meant, so that a tick that comes a little early still counts.
QUICK = 1.9
"""Seconds between two looks at whether a path of this machine's own disks is there and the same."""
FULL = 9.9
"""Seconds between two full readings."""
ITEMS_LIMIT = 1000
"""Paths that are looked at (bounds.MOST_ITEMS)."""
AGAIN = 29.9
"""Seconds before a path that hung is asked again."""
ENTRIES_LIMIT = 20000
"""Entries of a folder whose sizes are added up."""
LOCAL = frozenset(
    ["bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"]
)
"""Filesystems that answer from memory or a disk of this machine: a look at them needs no child."""


class _Look:
    """One child that reads some paths, one after the other."""

    def __init__(self) -> None:
        self.shot = OneShot(DEADLINE)
        self.paths: list[str] = []
        self.due = 0.0

    def start(self, paths: list[str], now: float) -> bool:
        """Read the paths; False while the last child is still there."""

        def work(channel: Channel) -> None:
            mounts = read_mounts()
            for path in paths:
                mark = _mark(path)
                channel.send([mark, _is_local(path, mounts), read_path(path, mounts)])

        if not self.shot.start(work, now):
            return False
        self.paths = paths
        return True


class PathSection(Section):
    """A PathInfo for each configured path, in the config's order."""

    name = "paths"

    def __init__(self) -> None:
        self._paths: list[str] = []
        self._infos: dict[str, dict[str, Any]] = {}
        self._marks: dict[str, object] = {}
        """Of the paths on local filesystems."""
        self._main = _Look()
        self._alone: dict[str, _Look] = {}
        """A look of its own for each path that hung; the child that hangs stays in it until it is gone."""
        self._quick_at = 0.0
        self._dropped = 0

    @property
    def note(self) -> str:
        """How many paths are left out because there are too many; mostly empty, and without a value."""
        if self.value is None or not self._dropped:
            return ""
        return f"{self._dropped} more paths not shown (limit {ITEMS_LIMIT})"

    def configure(self, spec: dict[str, Any]) -> None:
        # Only this host knows the login user's home.
        paths = list(dict.fromkeys(os.path.expanduser(str(path)) for path in spec["paths"]))
        self._paths, self._dropped = paths[:ITEMS_LIMIT], len(paths[ITEMS_LIMIT:])
        self._infos = {path: info for path, info in self._infos.items() if path in self._paths}
        self._main.due = 0.0
        self._publish()

    def refresh(self) -> None:
        for look in self._looks():
            look.due = 0.0

    def fds(self) -> list[int]:
        return [fd for look in self._looks() for fd in look.shot.fds()]

    def ready(self, fd: int, now: float) -> None:
        for look in self._looks():
            if fd in look.shot.fds():
                outcome = look.shot.ready(now)
                if outcome:
                    self._take(look, outcome, now)
                return

    def tick(self, now: float) -> None:
        for look in self._looks():
            outcome = look.shot.tick(now)
            if outcome:
                self._take(look, outcome, now)
        for path, look in list(self._alone.items()):
            if path not in self._paths:
                look.shot.close()
                if not look.shot.is_busy:
                    del self._alone[path]
            elif now >= look.due and look.start([path], now):
                look.due = now + AGAIN
        paths = [path for path in self._paths if path not in self._alone]
        if paths and (now >= self._main.due or self._is_other(paths, now)) and self._main.start(paths, now):
            self._main.due = now + FULL

    def close(self) -> None:
        for look in self._looks():
            look.shot.close()

    def _is_other(self, paths: list[str], now: float) -> bool:
        """Whether one of the paths changed, as far as that can be seen without a risk to hang."""
        if now < self._quick_at:
            return False
        self._quick_at = now + QUICK
        return any(path in self._marks and _mark(path) != self._marks[path] for path in paths)

    def _looks(self) -> list[_Look]:
        return [self._main, *self._alone.values()]

    def _take(self, look: _Look, outcome: Outcome, now: float) -> None:
        for path, found in zip(look.paths, outcome.values):
            mark, is_local, self._infos[path] = found
            if is_local:
                self._marks[path] = mark
            else:
                self._marks.pop(path, None)
        answered = len(outcome.values)
        if not outcome.error:
            for path in look.paths:
                self._alone.pop(path, None)
        elif answered < len(look.paths):
            path = look.paths[answered]
            reason = missing("hung" if outcome.timed_out else "error", outcome.error)
            self._infos[path] = {
                "path": path,
                "kind": reason,
                "size": reason,
                "entries": reason,
                "filesystem": reason,
            }
            if look is self._main:
                self._alone[path] = look
                look.due = now + AGAIN
                self._main = _Look()
        self._publish()

    def _publish(self) -> None:
        if all(path in self._infos for path in self._paths):
            self.value = [self._infos[path] for path in self._paths]


def read_path(path: str, mounts: list[tuple[str, str]]) -> dict[str, Any]:
    """The PathInfo of a path, links followed. May hang."""
    real = os.fsdecode(path.encode("utf-8", "surrogateescape"))
    info: dict[str, Any] = {
        "path": path,
        "size": missing("not_found"),
        "entries": missing("unsupported"),
        "filesystem": missing("not_found"),
    }
    try:
        mode = os.stat(real)
        info["kind"] = (
            "folder" if stat.S_ISDIR(mode.st_mode) else "file" if stat.S_ISREG(mode.st_mode) else "other"
        )
        info["size"] = mode.st_size if info["kind"] == "file" else missing("unsupported")
    except (OSError, ValueError) as error:
        info["kind"] = info["size"] = _missing(error, real)
    if info["kind"] == "folder":
        info["size"], info["entries"] = _sum_folder(real)
    above = real
    while above not in ("", "/") and not os.path.exists(above):
        above = os.path.dirname(above)
    if above:
        info["filesystem"] = filesystem(above, mounts)
    return info


def _sum_folder(path: str) -> tuple[object, object]:
    size: int = 0
    entries = 0
    try:
        with os.scandir(path) as found:
            for entry in found:
                entries += 1
                if entries > ENTRIES_LIMIT:
                    continue
                try:
                    # Links are followed: a model of the Hugging Face cache is a folder of links to its files.
                    facts = entry.stat()
                except OSError:
                    continue
                size += facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    except OSError as error:
        return _missing(error, path), _missing(error, path)
    if entries > ENTRIES_LIMIT:
        return missing("unsupported", f"more than {ENTRIES_LIMIT} entries"), entries
    return size, entries


def _is_local(path: str, mounts: list[tuple[str, str]]) -> bool:
    """Whether neither the path as it is written nor where its links lead is on a filesystem that may hang."""
    return all(mount_of(each, mounts)[1] in LOCAL for each in (path, os.path.realpath(path)))


def _mark(path: str) -> object:
    """What changes when a path appears, vanishes, is replaced or gets another entry or size."""
    try:
        facts = os.stat(os.fsdecode(path.encode("utf-8", "surrogateescape")))
    except (OSError, ValueError) as error:
        return [type(error).__name__]
    return [facts.st_mode, facts.st_ino, facts.st_size, facts.st_mtime_ns]


def _missing(error: Exception, path: str) -> dict[str, str]:
    if not isinstance(error, OSError):
        return missing("error", str(error))
    if isinstance(error, FileNotFoundError) and os.path.islink(path):
        return missing("not_found", "a link to something that is not there")
    return missing(why(error), error.strerror or str(error))
