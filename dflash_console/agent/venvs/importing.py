"""Finds modules where the interpreter of another environment would, by CPython's rules, importing nothing.

A dotted name is walked leaf by leaf: find_spec of a dotted name imports the parents, which for sglang takes
seconds and may raise. The search path is what Lib/site.py makes of the environment's folders; code in .pth
files is never run, but what the editable installs among them map is read from their source.
"""

from __future__ import annotations

import importlib.machinery
import os
import re

from .interpreter import Interpreter
from .look import Look

__all__ = ["Finder", "Found", "SearchPath", "search_path"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LINES_LIMIT = 1000
LINE_END = re.compile(r"\r\n|\r|\n")
FINDER_LIMIT = 1 << 20
EDITABLE_MODULE = re.compile(r"import[ \t]+((?:__editable__|__editables_|_editable_impl_)\w+)")


class SearchPath:
    """Where an interpreter looks for top-level modules."""

    def __init__(self) -> None:
        self.folders: list[str] = []
        """In order, each once."""
        self.editable: set[str] = set()
        """Those of them that an editable install added."""
        self.mapping: dict[str, str] = {}
        """What the editable finders map: a module's name to its folder or file. They are asked last."""
        self.namespaces: dict[str, list[str]] = {}


class Found:
    """A module as the interpreter would find it."""

    def __init__(self, origin: str | None, folders: list[str] | None, is_mapped: bool = False) -> None:
        self.origin = origin
        """Its file; None for a namespace package."""
        self.folders = folders
        """Where its children lie; None when it is no package."""
        self.is_mapped = is_mapped
        """Found by an editable finder's map."""


def search_path(interpreter: Interpreter, look: Look) -> SearchPath:
    """What the interpreter's site adds to sys.path, which leaves out stdlib and PYTHONPATH."""
    path = SearchPath()
    for site in interpreter.sites + interpreter.system_sites:
        _add_site(path, os.path.abspath(site), look)
    return path


class Finder:
    """Looks modules up; remembers each, so one Finder is good for one look."""

    def __init__(self, interpreter: Interpreter, path: SearchPath, look: Look) -> None:
        self._path = path
        self._look = look
        self._details = loader_details(interpreter)
        self._finders: dict[str, importlib.machinery.FileFinder] = {}
        self._found: dict[str, Found | None] = {}

    def find(self, name: str) -> Found | None:
        """A module by its dotted name; None when import would not find it. Raises OSError."""
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> Found | None:
        parent, _, leaf = name.rpartition(".")
        if not leaf or "/" in name:
            return None
        if not parent:
            return self._in_folders(name, leaf, self._path.folders)
        package = self.find(parent)
        if package is None or package.folders is None:
            return None
        return self._in_folders(name, leaf, package.folders)

    def _in_folders(self, name: str, leaf: str, folders: list[str]) -> Found | None:
        """PathFinder's rule, then the editable finders, which stand behind it in sys.meta_path.

        The first folder with a module or regular package wins, else all that are there make a namespace.
        """
        portions: list[str] = []
        for folder in folders:
            self._look.mark(folder)
            self._look.mark(f"{folder}/{leaf}")
            spec = self._finder(folder).find_spec(leaf)
            if spec is None:
                continue
            if spec.loader is not None:
                return self._file(str(spec.origin), spec.submodule_search_locations)
            portions += spec.submodule_search_locations or []
        portions += self._path.namespaces.get(name, [])
        if portions:
            return Found(None, portions)
        mapped = self._path.mapping.get(name)
        return self._mapped(mapped) if mapped else None

    def _mapped(self, path: str) -> Found | None:
        """As setuptools' finder does: the folder's __init__.py, else the path with a module's suffix."""
        if self._look.size(f"{path}/__init__.py") is not None:
            return self._file(f"{path}/__init__.py", [path], True)
        stem = os.path.splitext(path)[0]
        for candidate in (path, *(stem + suffix for _, suffixes in self._details for suffix in suffixes)):
            if self._look.size(candidate) is not None:
                return self._file(candidate, None, True)
        return None

    def _file(self, origin: str, folders: list[str] | None, is_mapped: bool = False) -> Found:
        self._look.mark(origin)
        if folders is None and os.path.basename(origin) == "__init__.py":
            folders = [os.path.dirname(origin)]
        return Found(origin, folders, is_mapped)

    def _finder(self, folder: str) -> importlib.machinery.FileFinder:
        if folder not in self._finders:
            self._finders[folder] = importlib.machinery.FileFinder(folder, *self._details)
        return self._finders[folder]


def loader_details(interpreter: Interpreter) -> list[tuple[Any, list[str]]]:
    """The kinds of files that the interpreter takes for a module, in its order.

    The suffixes of compiled ones are this machine's, with the interpreter's version in them.
    """
    tag = f"cpython-{interpreter.minor[0]}{interpreter.minor[1]}{interpreter.threads}"
    compiled = [re.sub(r"cpython-\d+t?", tag, suffix) for suffix in importlib.machinery.EXTENSION_SUFFIXES]
    if interpreter.threads:
        compiled = [suffix for suffix in compiled if "abi3" not in suffix]
    return [
        (importlib.machinery.ExtensionFileLoader, compiled),
        (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES),
        (importlib.machinery.SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES),
    ]


# ---- the search path


def _add_site(path: SearchPath, site: str, look: Look) -> None:
    if site in path.folders:
        return
    path.folders.append(site)
    names = look.names(site)
    linked = [look.text(f"{site}/{name}") for name in names if name.endswith(".egg-link")]
    path.editable.update(os.path.abspath(text.split("\n")[0].strip()) for text in linked if text)
    for name in names:
        # site skips hidden ones since 3.8.19, 3.9.19, 3.10.14, 3.11.8, 3.12.2 (gh-113659).
        if name.endswith(".pth") and not name.startswith("."):
            is_editable = name.startswith("__editable__") or name == "easy-install.pth"
            _add_lines(path, f"{site}/{name}", is_editable, look)


def _add_lines(path: SearchPath, file: str, is_editable: bool, look: Look) -> None:
    """The lines of one .pth file, as Lib/site.py's addpackage reads them."""
    site = os.path.dirname(file)
    lines = LINE_END.split((look.text(file) or "").lstrip("\ufeff"))
    if len(lines) > LINES_LIMIT:
        look.cut.append(file)
    for line in lines[:LINES_LIMIT]:
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith(("import ", "import\t")):
            match = EDITABLE_MODULE.match(line)
            if match:
                _read_finder(path, look.text(f"{site}/{match[1]}.py", FINDER_LIMIT) or "")
            continue
        folder = os.path.abspath(os.path.join(site, line.rstrip()))
        if folder not in path.folders and not isinstance(look.mark(folder), int):
            path.folders.append(folder)
            if is_editable:
                path.editable.add(folder)


def _read_finder(path: SearchPath, source: str) -> None:
    """What an editable finder maps, from its source.

    The literals MAPPING and NAMESPACES of setuptools, the calls map_module(name, file) of `editables`.
    """
    import ast  # dear to import, and few environments need it

    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            if names & {"MAPPING", "NAMESPACES"}:
                _take(path, "MAPPING" in names, _literal(node.value))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            function = node.value.func
            words = [_literal(argument) for argument in node.value.args]
            if isinstance(function, ast.Attribute) and function.attr == "map_module" and len(words) == 2:
                _take(path, True, {words[0]: words[1]} if isinstance(words[0], str) else {})


def _take(path: SearchPath, is_mapping: bool, pairs: object) -> None:
    for name, where in pairs.items() if isinstance(pairs, dict) else ():
        if is_mapping and isinstance(name, str) and isinstance(where, str):
            path.mapping.setdefault(name, where)
        elif not is_mapping and isinstance(name, str) and isinstance(where, list):
            path.namespaces.setdefault(name, [folder for folder in where if isinstance(folder, str)])


def _literal(node: Any) -> object:
    import ast

    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
