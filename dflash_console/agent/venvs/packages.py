"""A package as the interpreter of an environment would find it: where it lies, its version, what is wrong.

Nothing of it is imported or run; versions are read as text.
"""

from __future__ import annotations

import errno
import os
import re

from ..section import missing
from .distributions import Distributions
from .importing import Finder, Found, SearchPath, search_path
from .interpreter import Interpreter
from .look import Look

__all__ = ["read_packages"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = re.compile(
    r"^(?:__version__|version)[ \t]*(?::[^=\n]*)?=[ \t]*(?:\w+[ \t]*=[ \t]*)*"
    r"(?P<quote>['\"])(?P<version>[^'\"\n]{1,100})(?P=quote)",
    re.MULTILINE,
)
"""An assignment at the left margin: one inside a try or an if may not be the one that counts."""


def read_packages(interpreter: Interpreter, spec: dict[str, Any], look: Look) -> dict[str, Any]:
    """The fields `packages`, `package` and `torch_build` of a Venv, ready for the wire.

    `spec` is a WatchSpec: package, modules, distributions. Raises OSError when the disk fails.
    """
    path = search_path(interpreter, look)
    finder = Finder(interpreter, path, look)
    distributions = Distributions(path.folders, look)
    return {
        "packages": distributions.versions(spec["distributions"]),
        "package": _Package(interpreter, path, finder, distributions, look).read(
            spec["package"], spec["modules"]
        ),
        "torch_build": _torch_build(finder, look),
    }


NO_INIT = "a folder without __init__.py"


class _Package:
    def __init__(
        self,
        interpreter: Interpreter,
        path: SearchPath,
        finder: Finder,
        distributions: Distributions,
        look: Look,
    ) -> None:
        self._interpreter = interpreter
        self._path = path
        self._finder = finder
        self._distributions = distributions
        self._look = look

    def read(self, name: str, modules: list[list[str]]) -> dict[str, Any]:
        found = self._finder.find(name)
        if found is None:
            return self._absent(name)
        where = found.folders[0] if found.folders else os.path.dirname(str(found.origin))
        direct = self._distributions.direct_url(name)
        editable = direct[0] if direct else None
        kind = self._kind(found, where, bool(direct and direct[1]))
        return {
            "name": name,
            "origin": found.origin or missing("not_found", self._no_init(where)),
            "kind": kind,
            "version": self._version(found, where),
            "dist_version": self._distributions.version(name),
            "nested": any(self._is_nested(folder, name) for folder in found.folders or ()),
            "modules": dict(self._module(alternatives) for alternatives in modules),
            "editable_from": editable or (where if kind == "editable" else None),
            "outside": self._is_outside(found.origin or where),
        }

    def _no_init(self, folder: str) -> str:
        """Why a folder is no regular package."""
        path = f"{folder}/__init__.py"
        odd = self._look.odd_at(path)
        return f"a folder whose __init__.py is {odd}, not a file: {path}" if odd else f"{NO_INIT}: {folder}"

    def _absent(self, name: str) -> dict[str, str]:
        if not self._interpreter.sites:
            return missing("not_found", f"no lib/{self._interpreter.library}/site-packages")
        version = self._distributions.version(name)
        if isinstance(version, str):
            return missing("not_found", f"no {name}, though its dist-info says {version} is installed")
        return missing("not_found", f"no {name}")

    def _kind(self, found: Found, where: str, is_editable: bool) -> str:
        if found.origin is None:
            return "namespace"
        home = os.path.dirname(where) if found.folders else where
        of_line = home not in self._interpreter.sites and home in self._path.folders
        if found.is_mapped or home in self._path.editable or (is_editable and of_line):
            return "editable"
        return "regular"

    def _version(self, found: Found, where: str) -> str | dict[str, str]:
        if found.folders is None:
            files = [str(found.origin)]
        else:
            files = [f"{where}/{name}" for name in ("_version.py", "version.py", "__init__.py")]
        for file in files:
            match = VERSION.search(self._look.text(file) or "")
            if match:
                return match["version"]
        return missing("not_found", "no version in _version.py, version.py or __init__.py")

    def _is_nested(self, folder: str, name: str) -> bool:
        # Marked on its own: a copy under way makes the folder first and its __init__.py later.
        return (
            self._look.is_folder(f"{folder}/{name}")
            and self._look.size(f"{folder}/{name}/__init__.py") is not None
        )

    def _is_outside(self, path: str) -> bool:
        real = os.path.realpath(path)
        homes = [self._interpreter.prefix] if self._interpreter.is_apart else []
        homes += self._interpreter.sites
        return not any(real.startswith(os.path.realpath(home) + "/") for home in homes)

    def _module(self, alternatives: list[str]) -> tuple[str, str | dict[str, str] | None]:
        """The first alternative that serves; else the first that is there, with what is wrong; else None."""
        broken = None
        for name in alternatives:
            found = self._finder.find(name)
            if found is None:
                fault = self._instead(name)
                broken = broken or ((name, fault) if fault is not None else None)
                continue
            fault = self._fault(found)
            if fault is None:
                return name, found.origin
            broken = broken or (name, fault)
        return broken or (alternatives[0], None)

    def _instead(self, name: str) -> dict[str, str] | None:
        """What has the place of a module that import does not find, if that is no file."""
        parent, _, leaf = name.rpartition(".")
        package = self._finder.find(parent) if parent else None
        for folder in (package.folders if package is not None else None) or ():
            odd = self._look.odd_at(f"{folder}/{leaf}.py")
            if odd:
                return missing("error", f"{odd}, not a file: {folder}/{leaf}.py")
        return None

    def _fault(self, found: Found) -> dict[str, str] | None:
        """Why a module that import finds can't serve."""
        origin = found.origin
        if origin is None:
            return missing("error", self._no_init((found.folders or [""])[0]))
        size = self._look.size(origin)
        # An empty package may be meant; one that stands before a module of its name is not.
        if size == 0 and (not found.folders or self._look.size(f"{found.folders[0]}.py") is not None):
            return missing("error", f"zero bytes: {origin}")
        if size is None or self._look.text(origin, 1, is_head=True) is None:
            number = self._look.errors.get(origin, errno.EIO)
            reason = "permission" if number in (errno.EACCES, errno.EPERM) else "error"
            return missing(reason, f"{os.strerror(number)}: {origin}")
        return None


def _torch_build(finder: Finder, look: Look) -> str | dict[str, str]:
    torch = finder.find("torch")
    if torch is None or not torch.folders:
        return missing("not_found", "no torch")
    match = VERSION.search(look.text(f"{torch.folders[0]}/version.py") or "")
    return match["version"] if match else missing("error", "no version in torch/version.py")
