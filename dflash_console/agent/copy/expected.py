"""The tree that shall be there, as the console lists it: nothing of it is believed before it was looked at."""

from __future__ import annotations

import os
import re

from ..venvs.distributions import INFO, normalise
from .place import MOST_PARTS, Fault

__all__ = ["EMPTY", "MOST_FILES", "Expected"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_FILES = 100_000
"""As copies.MOST_FILES."""
MODES = (0o644, 0o755)
PATH_LIMIT, NAME_LIMIT = 3000, 255
"""Bytes; the system's limits are 4096 with the environment before it, and 255."""
CHAIN_LIMIT = 40
"""Links that lead to links."""
HASH = re.compile(r"[0-9a-f]{64}")
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""sha256 of nothing."""


class Expected:
    """Entries in the source's order; an index in what console and agent say counts from the first one."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.paths: list[str] = []
        self.sizes: list[int] = []
        self.modes: list[int] = []
        self.contents: list[str] = []
        """sha256 of a file, where a link leads."""
        self.links: set[int] = set()
        self.folders: dict[str, None] = {}
        """All that are needed, each after the one it is in."""
        self.infos: list[str] = []
        """Names of the dist-infos that come beside the package."""
        self._known: dict[str, int] = {}
        self._distribution = normalise(package)

    def add(self, entries: object) -> None:
        """Take the next entries. Raises Fault for what may not be there."""
        if not isinstance(entries, list):
            raise Fault("no list of files")
        if len(self.paths) + len(entries) > MOST_FILES:
            raise Fault(f"more than {MOST_FILES:,} files: that is no Python package")
        for entry in entries:
            self._take(entry)

    def finish(self) -> None:
        """All entries came. Raises Fault for a tree that can't be."""
        if f"{self.package}/__init__.py" not in self._known:
            raise Fault(f"no {self.package}/__init__.py in what was sent: an import would not find a package")
        for path in self._known:
            if path in self.folders:
                raise Fault(f"{path} is sent both as a file and as a folder")
        for index in self.links:
            self._follow(index)

    @property
    def tops(self) -> list[str]:
        """The folders that are moved in one piece: the package first."""
        return [self.package, *self.infos]

    def index(self, path: str) -> int | None:
        """The entry of a path."""
        return self._known.get(path)

    @property
    def files(self) -> list[int]:
        """The indexes of what is no link."""
        return [index for index in range(len(self.paths)) if index not in self.links]

    def _take(self, entry: Any) -> None:
        if not isinstance(entry, (list, tuple)) or len(entry) != 5:
            raise Fault("an entry is not [path, kind, size, mode, content]")
        path, kind, size, mode, content = entry
        folder = self._check_path(path)
        if path in self._known:
            raise Fault(f"{path} is sent twice")
        if not isinstance(content, str) or type(size) is not int or type(mode) is not int:
            raise Fault(f"{path}: size, mode or content are of a wrong kind")
        index = len(self.paths)
        if kind == "link":
            self.links.add(index)
        elif kind != "file":
            raise Fault(f"{path} is neither a file nor a link but {str(kind)[:40]!a}")
        elif mode not in MODES:
            raise Fault(f"{path} has the mode {mode:o}, not 644 or 755")
        elif not HASH.fullmatch(content) or not 0 <= size < 1 << 62 or (size == 0) != (content == EMPTY):
            raise Fault(f"{path}: no sha256, or none that its size can have")
        self._known[path] = index
        self.paths.append(path)
        self.sizes.append(size)
        self.modes.append(mode)
        self.contents.append(content)
        if folder not in self.folders:
            self._add_folders(folder)

    def _add_folders(self, folder: str) -> None:
        above, _, _ = folder.rpartition("/")
        if above and above not in self.folders:
            self._add_folders(above)
        self.folders[folder] = None

    def _check_path(self, path: object) -> str:
        """The folder of a path. Raises Fault for one that may not be."""
        if not isinstance(path, str):
            raise Fault("a path is no text")
        folder, _, _ = path.rpartition("/")
        if folder in self.folders and folder:
            names = [path[len(folder) + 1 :]]
        else:
            names = path.split("/")
            if len(names) < 2:
                raise Fault(f"{_quoted(path)} lies beside the package, not in it")
        try:
            data = os.fsencode(path)
        except UnicodeEncodeError:
            raise Fault(f"{_quoted(path)} can't be a file name here") from None
        if len(data) > PATH_LIMIT or any(len(os.fsencode(name)) > NAME_LIMIT for name in names):
            raise Fault(f"{_quoted(path)} is too long")
        if path.count("/") >= MOST_PARTS:
            raise Fault(f"{_quoted(path)} is nested more than {MOST_PARTS} folders deep")
        for name in names:
            if name in ("", ".", "..") or name == "__pycache__" or not name.isprintable():
                raise Fault(f"{_quoted(path)}: no path that a package may hold")
        if len(names) > 1 and names[0] != self.package and names[0] not in self.infos:
            self._check_top(names[0], path)
        return folder

    def _check_top(self, name: str, path: str) -> None:
        match = INFO.fullmatch(name)
        if match is None or normalise(match[1]) != self._distribution:
            raise Fault(f"{_quoted(path)} is neither in {self.package} nor in its dist-info")
        if self.infos:
            raise Fault(f"two dist-infos at once: {self.infos[0]} and {name}")
        self.infos.append(name)

    def _follow(self, index: int) -> None:
        """Raises Fault for a link that leads out of the tree, to nothing, or through another link."""
        path = where = self.paths[index]
        for _ in range(CHAIN_LIMIT):
            number = self._known.get(where)
            if number is None or number not in self.links:
                break
            where = self._behind(where, self.contents[number], path)
        else:
            raise Fault(f"{_quoted(path)} is a link that leads in a circle")
        if f"{path}/".startswith(f"{where}/"):
            raise Fault(f"{_quoted(path)} is a link to a folder that it is in itself")
        if number is None and where not in self.folders:
            raise Fault(f"{_quoted(path)} is a link to {_quoted(self.contents[index])}, which is not sent")

    def _behind(self, where: str, target: str, path: str) -> str:
        names = where.split("/")[:-1]
        if not target or len(target) > PATH_LIMIT or not target.isprintable():
            raise Fault(f"{_quoted(path)} is a link to nowhere")
        for name in target.split("/"):
            # What comes before a step up has to be a folder and no link: else it would lead somewhere else.
            if name == ".." and len(names) > 1 and "/".join(names) in self.folders:
                names.pop()
            elif name == ".." or target.startswith("/"):
                raise Fault(f"{_quoted(path)} is a link out of the package: {_quoted(target)}")
            elif name not in ("", "."):
                names.append(name)
        return "/".join(names)


def _quoted(text: str) -> str:
    """Anything as a short printable text."""
    return text if text.isprintable() and len(text) <= 200 else ascii(text[:200])
