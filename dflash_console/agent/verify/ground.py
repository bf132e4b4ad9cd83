"""Where a verification stands: the environment, what its interpreter would import, and the metadata beside it.

Read from files alone, in milliseconds, and always anew; nothing of the environment is run or imported.
"""

from __future__ import annotations

import os

from ..venvs.distributions import Distribution, Distributions
from ..venvs.importing import Finder, Found, SearchPath, search_path
from ..venvs.interpreter import Interpreter, read_interpreter
from ..venvs.look import Look, native
from ..venvs.packages import read_packages

__all__ = ["Ground", "as_the_kernel", "folder_of", "leaf"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Ground:
    """An environment and where an import of the package would come from.

    `found` is None without the package; without an environment `problem` says why and the rest is empty.
    Raises OSError when the disk fails.
    """

    def __init__(self, venv: str, package: str) -> None:
        self.package = package
        self.folder = folder_of(venv)
        self.look = Look()
        read = read_interpreter(self.folder, self.look)
        self.problem: dict[str, str] | None = None
        if isinstance(read, dict):
            self.problem = read
            read = Interpreter(self.folder, (3, 0), "")
        self.interpreter = read
        self.path: SearchPath = search_path(read, self.look) if self.problem is None else SearchPath()
        self.finder = Finder(read, self.path, self.look)
        self.distributions = Distributions(self.path.folders, self.look)
        self.found: Found | None = self.finder.find(package) if self.problem is None else None
        self.installed: list[Distribution] = self.distributions.find(package)
        """The dist-infos of the package: mostly one."""
        self.marks = dict(self.look.marks)
        """Of all that was looked at so far; the rest of the verification adds none here."""

    @property
    def where(self) -> str:
        """The package's folder; of a single-file module, the folder it is in. Empty without a package."""
        if self.found is None:
            return ""
        if self.found.folders:
            return self.found.folders[0]
        return os.path.dirname(str(self.found.origin))

    @property
    def home(self) -> str:
        """The folder on the search path that the package is in."""
        return os.path.dirname(self.where) if self.found is not None and self.found.folders else self.where

    @property
    def site(self) -> str:
        """The environment's own site-packages; empty when it has none."""
        return self.interpreter.sites[0] if self.interpreter.sites else ""

    @property
    def vouching(self) -> Distribution | None:
        """The dist-info that lies beside the package and so may list its files."""
        beside = [item for item in self.installed if os.path.dirname(item.path) == self.home]
        return beside[0] if len(beside) == 1 and not beside[0].path.endswith(".egg-info") else None

    def cells(self, modules: list[list[str]]) -> dict[str, Any]:
        """The package as a model.Package has it, or missing(...)."""
        spec = {"package": self.package, "modules": modules, "distributions": []}
        cells: dict[str, Any] = read_packages(self.interpreter, spec, self.look)["package"]
        return cells

    def python(self) -> str:
        """The path of its interpreter, as one types it."""
        names = (f"{self.folder}/bin/{name}" for name in ("python", "python3"))
        return next((path for path in names if os.path.exists(path)), f"{self.folder}/bin/python")

    def stamp(self) -> list[Any]:
        """What of all this makes another verification due, the same for the same disk in every agent.

        Without ctimes and without folders' times: those change when another environment is linked to the
        same files, and when Python writes its bytecode.
        """
        import stat

        stamp: list[Any] = []
        for path, mark in sorted(self.marks.items()):
            if isinstance(mark, int):
                stamp.append((path, mark))
            elif stat.S_ISDIR(mark[2]):
                stamp.append((path, mark[1], mark[2]))
            else:
                stamp.append((path, mark[1], mark[2], mark[3], mark[4]))
        folders = self.path.folders
        return stamp + [
            [name for name in self.look.names(folder) if name != "__pycache__"] for folder in folders
        ]


def folder_of(venv: str) -> str:
    """An environment's folder as the config or the command line names it."""
    return as_the_kernel(os.path.expanduser(native(venv)))


def as_the_kernel(path: str) -> str:
    """The path without `..`, which leads to the folder above that which a link leads to."""
    found = "/" if path.startswith("/") else ""
    for part in path.split("/"):
        if part == "..":
            found = os.path.dirname(os.path.realpath(found or "."))
        elif part not in ("", "."):
            found = os.path.join(found, part)
    return found or "."


def leaf(module: str) -> str:
    """The last part of a dotted name."""
    return module.rpartition(".")[2]
