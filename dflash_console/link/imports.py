"""Which of the agent's modules an errand needs, by the import statements in their text. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

__all__ = ["reached"]

_IMPORT = re.compile(rb"^( *)from (\.+)([\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
"""All imports within the agent are relative. Its blanks tell one that is made when a function is called."""


def reached(modules: Mapping[str, bytes], starts: tuple[str, ...], also: Callable[[str], bool]) -> set[str]:
    """The modules that are imported from some on, their packages too; of those for which `also` holds, what their
    functions import as well. A package's name ends with a dot."""
    found: set[str] = set()
    waiting = [*starts]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for wanted in (*_packages(name), *_imports(name, modules[name], is_whole=also(name))):
            waiting += [each for each in (wanted, f"{wanted}.") if each in modules]
    return found


def _packages(name: str) -> Iterator[str]:
    parts = name.rstrip(".").split(".")
    for count in range(1, len(parts)):
        yield ".".join(parts[:count])


def _imports(name: str, text: bytes, *, is_whole: bool) -> Iterator[str]:
    """What may be a module of all that is named in an import statement."""
    package = name.split(".")[:-1]
    for blanks, dots, module, names in _IMPORT.findall(text):
        if blanks and not is_whole:
            continue
        base = package[: len(package) - len(dots) + 1] + ([module.decode()] if module else [])
        yield ".".join(base)
        for word in re.findall(rb"\w+", names):
            yield ".".join([*base, word.decode()])
