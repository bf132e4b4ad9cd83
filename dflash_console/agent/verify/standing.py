"""Which file Python takes for a module where several could be it: a folder with an `__init__` comes before a compiled
module, that before a source, and that before bytecode without one (importlib.machinery.FileFinder)."""

from __future__ import annotations

import os
import stat

from ..venvs.importing import loader_details
from .loadable import why_not_loaded

__all__ = ["Standing"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..venvs.interpreter import Interpreter
    from .tree import Tree


class Standing:
    """The modules of a tree, and the files that they come from."""

    def __init__(self, interpreter: Interpreter, tree: Tree) -> None:
        self._tree = tree
        kinds = loader_details(interpreter)
        self._suffixes = [suffix for _, suffixes in kinds for suffix in suffixes]
        self._compiled = tuple(kinds[0][1])
        self._files: dict[str, list[str]] = {}
        """By module the files that it could come from, that which is taken first."""
        for name, seen in tree.files.items():
            module = self.module_of(name) if stat.S_ISREG(seen.mode) else ""
            if module:
                self._files.setdefault(module, []).append(name)
        for names in self._files.values():
            names.sort(key=self._rank)

    def module_of(self, name: str) -> str:
        """The module as a path, `srt/x` for `srt/x.py` and for `srt/x/__init__.py`, `.` for the package itself; empty
        for what is none."""
        folder, _, leaf = name.rpartition("/")
        stem, dot, rest = leaf.partition(".")
        if f"{dot}{rest}" not in self._suffixes:
            return ""
        return (folder or ".") if stem == "__init__" else f"{folder}/{stem}".lstrip("/")

    def taken(self, name: str) -> str:
        """The file that Python takes for the module that a file, there or not, is for; empty when there is none."""
        return next(iter(self._files.get(self.module_of(name), ())), "")

    def stands_before(self, name: str, others: Iterable[str]) -> bool:
        """Whether Python takes this file though one of the others is for the same module."""
        module = self.module_of(name)
        if not module or self.taken(name) != name:
            return False
        return any(other != name and self.module_of(other) == module for other in others)

    def is_hiding(self, name: str) -> bool:
        """Whether Python takes this file in the place of another one that is there."""
        return len(self._files.get(self.module_of(name), ())) > 1 and self.taken(name) == name

    def bytecode_alone(self) -> list[str]:
        """Bytecode without a source, which is what is imported."""
        return [names[0] for names in self._files.values() if names[0].endswith(".pyc")]

    def unloadable(self, known: set[str]) -> dict[str, str]:
        """By path the compiled modules, but for the `known` names, that the loader would refuse, and why. Raises
        OSError when the disk fails."""
        found = {}
        for name in self._tree.names:
            if name.endswith(self._compiled) and name not in known and self.module_of(name):
                path, seen = f"{self._tree.root}/{name}", self._tree.files[name]
                if not stat.S_ISREG(seen.mode) or not seen.size:
                    continue  # told as what it is
                try:
                    why = why_not_loaded(path, seen.size)
                except (PermissionError, FileNotFoundError):
                    continue
                if why:
                    found[path] = why
        return found

    def _rank(self, name: str) -> tuple[bool, int]:
        leaf = os.path.basename(name)
        return leaf.partition(".")[0] != "__init__", self._suffixes.index(leaf[leaf.index(".") :])
