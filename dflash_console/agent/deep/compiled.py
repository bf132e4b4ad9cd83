"""The compiled files that a start of the package would load: those in its tree, and those of the kernel package."""

from __future__ import annotations

import csv
import os
import re

from .elf import Broken, Library
from .requirements import KERNELS

__all__ = ["Compiled", "find_compiled"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .environment import Environment

KERNEL_FOLDER = "sgl_kernel"
TAG = re.compile(r"\.(cpython-(\d)(\d+)t?|abi3|pypy[^.]*)[^/]*\.so$")
FILES_LIMIT = 2000
RECORD_LIMIT = 8 << 20


class Compiled:
    """One compiled file."""

    def __init__(self, path: str, shown: str, is_needed: bool, suffixes: list[str]) -> None:
        self.path = path
        self.shown = shown
        self.is_needed = is_needed
        """Whether the package works only with it; what the kernel package brings besides is optional."""
        name = os.path.basename(path)
        tag = TAG.search(name)
        self.minor = f"{tag[2]}.{tag[3]}" if tag and tag[2] else ""
        """The Python that it is made for, by its name; empty when it says nothing or fits several."""
        self.stem = path[: len(path) - len(name)] + name.partition(".")[0]
        """The module's name, whatever interpreter it is for."""
        self.fits = tag is None or any(name == os.path.basename(self.stem) + suffix for suffix in suffixes)
        """Whether the interpreter would take it, by its name."""
        self.fault = ""
        """Why the loader would refuse it."""
        self.library: Library | None = None
        self.undefined: list[tuple[str, str]] = []
        """As `Library.undefined`."""
        self.glibc: tuple[int, ...] = ()
        """As `Library.glibc`."""
        try:
            library = Library(path)
            self.undefined, self.glibc = library.undefined(), library.glibc()
            self.library = library
        except Broken as error:
            self.fault = str(error)
        except OSError as error:
            self.fault = error.strerror or str(error)


def find_compiled(environment: Environment) -> list[Compiled]:
    """All of them; those in the package's own tree first."""
    suffixes = environment.suffixes
    found: dict[str, Compiled] = {}
    needed = [folder for folder in (environment.tree, environment.folder(KERNEL_FOLDER)) if folder]
    places = [(path, True) for folder in needed for path in _below(folder)]
    places += [(path, False) for path in _recorded(environment)]
    for path, is_needed in places[:FILES_LIMIT]:
        real = os.path.realpath(path)
        if real not in found:
            found[real] = Compiled(path, environment.shown(path), is_needed, suffixes)
    return list(found.values())


def _below(folder: str) -> list[str]:
    paths = []
    for place, folders, names in os.walk(folder):
        folders.sort()
        paths += [f"{place}/{name}" for name in sorted(names) if name.endswith(".so")]
    return paths


def _recorded(environment: Environment) -> list[str]:
    """What the kernel package installed, by its RECORD."""
    paths = []
    for name in KERNELS:
        for item in environment.installed(name):
            text = environment.look.text(f"{item.path}/RECORD", RECORD_LIMIT) or ""
            site = os.path.dirname(item.path)
            for row in csv.reader(text.splitlines()):
                if row and row[0].endswith(".so") and ".." not in row[0].split("/"):
                    path = os.path.join(site, row[0])
                    if os.path.isfile(path):
                        paths.append(path)
    return paths
