"""The check `symbols`: what compiled files want of torch that the torch here does not define.

The kernel package has no requirement on torch in its metadata, so no installer sees this one (sglang PR 30562). The
loader would say `undefined symbol` at the first import.
"""

from __future__ import annotations

import ctypes
import os
import re

from ..verify.checks import check, counted, first_few
from .elf import Broken, Library

__all__ = ["check_symbols", "demangled", "torch_libraries"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .compiled import Compiled
    from .environment import Environment

OURS = re.compile(r"_Z\w*?(?<!\d)(?:3c10|2at|5torch|6caffe2)|(?:aoti_torch|torch|c10)_")
"""Names in torch's namespaces, and the C functions of its stable interface."""
LIBRARY = re.compile(r"lib(torch|c10|shm)\w*\.so")


def check_symbols(environment: Environment, files: list[Compiled]) -> dict[str, Any]:
    """The check, for all compiled files that this interpreter would load."""
    torch = torch_libraries(environment)
    if not torch:
        return check("symbols", "unknown", "no torch libraries to compare with")
    missing: dict[str, list[Compiled]] = {}
    asked = linked = 0
    for file in files:
        names = _wanted(file) if file.fits and file.library is not None else []
        linked += bool(names)
        asked += len(names)
        for name in names:
            if not any(library.defines(name) for library in torch):
                missing.setdefault(name, []).append(file)
    # A name in torch's namespaces may still be one that the files define for each other.
    for name in [
        name for name in missing if any(file.library and file.library.defines(name) for file in files)
    ]:
        del missing[name]
    version = environment.torch or "of an unknown version"
    if not linked:
        return check("symbols", "pass", "no compiled file here uses torch: there is no kernel package")
    if not missing:
        return check(
            "symbols",
            "pass",
            f"torch {version} defines all {asked:,} symbols that {counted(linked, 'file')} want",
        )
    words = {name: demangled(name) for name in missing}
    lines = [
        f"{file.shown}: undefined symbol: {name}" for name, wanting in missing.items() for file in wanting
    ]
    lines = [f"{name} is {words[name]}" for name in missing if words[name] != name] + lines
    is_needed = any(file.is_needed for wanting in missing.values() for file in wanting)
    broken = {file.shown for wanting in missing.values() for file in wanting}
    detail = (
        f"torch {version} lacks {counted(len(missing), 'symbol')}, needed by {first_few(sorted(broken), 2)}: "
        f"{first_few(sorted(words.values(), key=len))}"
    )
    return check("symbols", "fail" if is_needed else "warn", detail, lines)


def torch_libraries(environment: Environment) -> list[Library]:
    """torch's own libraries, as far as they can be read."""
    folder = environment.folder("torch")
    found = []
    for name in environment.look.names(f"{folder}/lib") if folder else ():
        if LIBRARY.match(name):
            try:
                found.append(Library(f"{folder}/lib/{name}"))
            except (Broken, OSError):
                continue
    return found


def demangled(name: str) -> str:
    """A C++ name as one writes it, by this machine's own C++ library; as it is when that is not there."""
    if not name.startswith("_Z"):
        return name
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        free = ctypes.CDLL(None).free
        demangle = library.__cxa_demangle
    except (OSError, AttributeError):
        return name
    demangle.restype = ctypes.c_void_p
    free.argtypes = [ctypes.c_void_p]
    status = ctypes.c_int()
    found = demangle(name.encode(), None, None, ctypes.byref(status))
    if not found or status.value:
        return name
    try:
        return ctypes.string_at(found).decode("utf-8", "replace")
    finally:
        free(found)


def _wanted(file: Compiled) -> list[str]:
    return [
        name
        for name, library in file.undefined
        if (not library or LIBRARY.match(os.path.basename(library))) and OURS.match(name)
    ]
