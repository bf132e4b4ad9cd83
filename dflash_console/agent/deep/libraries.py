"""The check `libraries`: whether the loader finds what compiled files need, as it looks in a process with torch.

By ld.so(8): a library of the wanted name that is loaded already serves, wherever it lies, so what torch loads comes
first (its files name the folders of the nvidia packages); then the file's own RPATH or RUNPATH, the interpreter's
RPATH, LD_LIBRARY_PATH, and the system's list.
"""

from __future__ import annotations

import os
import re
import subprocess

from ..verify.checks import check, counted, first_few
from .driver import driver_of
from .elf import Broken, Library

__all__ = ["Loader", "check_libraries"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .compiled import Compiled
    from .environment import Environment, Unit

DRIVER = "libcuda.so.1"
FIRST = ("libtorch_global_deps.so", "libtorch_python.so")
"""What `import torch` loads; all else follows from these."""
OF_CUDA = re.compile(r"lib(cu|nv|nccl|caffe2_nv)")
BASIC = re.compile(r"(ld-linux|lib(c|m|dl|rt|pthread|util|gcc_s|stdc\+\+)\.so)")
"""The runtime of C and C++, without which torch itself would not load."""
FOLDERS = (
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/lib/{0}-linux-gnu",
    "/usr/lib/{0}-linux-gnu",
    "/usr/local/lib",
)


class Loader:
    """Finds libraries as ld.so would in a process that has imported torch."""

    def __init__(self, environment: Environment, variables: dict[str, str]) -> None:
        self._folders = [folder for folder in variables.get("LD_LIBRARY_PATH", "").split(":") if folder]
        self._program = _rpath_of(environment.ground.python())
        self._system = _system_libraries()
        self.loaded: dict[str, str] = {}
        """What torch loads, by the names under which it can be asked for."""
        folder = environment.folder("torch")
        for name in FIRST if folder else ():
            self._load(f"{folder}/lib/{name}", [])

    def find(self, library: Library, name: str, inherited: list[str] | None = None) -> str | None:
        """Where a library that another one needs is found; None when it is not."""
        if name in self.loaded:
            return self.loaded[name]
        before = [] if library.runpath else [*library.rpath, *(inherited or ())]
        for folder in (*before, *self._program, *self._folders, *library.runpath):
            if os.path.isfile(f"{folder}/{name}"):
                return f"{folder}/{name}"
        return self._system.get(name)

    def _load(self, path: str, inherited: list[str]) -> None:
        waiting = [(path, inherited)]
        while waiting:
            path, inherited = waiting.pop()
            try:
                library = Library(path)
            except (Broken, OSError):
                continue
            self.loaded.setdefault(library.soname or os.path.basename(path), path)
            self.loaded.setdefault(os.path.basename(path), path)
            down = inherited if library.runpath else [*library.rpath, *inherited]
            for name in library.needed:
                if name not in self.loaded and not BASIC.match(name):
                    found = self.find(library, name, inherited)
                    if found:
                        self.loaded[name] = found
                        waiting.append((found, down))


def check_libraries(
    environment: Environment, files: list[Compiled], unit: Unit, message: dict[str, Any]
) -> dict[str, Any]:
    """The check, for all compiled files that this interpreter would load."""
    if environment.folder("torch") is None:
        return check("libraries", "unknown", "no torch, which would load most of them")
    loader = Loader(environment, {**os.environ, **unit.variables})
    missing: dict[str, list[Compiled]] = {}
    seen: dict[str, str] = {}
    ready = [file for file in files if file.fits and file.library is not None]
    for file in ready:
        for name in file.library.needed if file.library is not None else ():
            if BASIC.match(name):
                continue
            found = loader.find(file.library, name) if file.library is not None else None
            if found:
                seen[name] = found
            else:
                missing.setdefault(name, []).append(file)
    without_driver = missing.pop(DRIVER, [])
    lines = [f"{name}: needed by {file.shown}" for name, wanting in missing.items() for file in wanting]
    lines += [f"{name} => {environment.shown(found)}" for name, found in sorted(seen.items())]
    note = ""
    if without_driver:
        driver = driver_of(message)
        note = f"; {DRIVER} comes with the NVIDIA driver, which is not on this host"
        if driver:
            note = f"{DRIVER} is not found, though the driver {driver} is there: pass its libraries into the container"
            return check("libraries", "fail", note, [note, *lines])
        lines.insert(0, note[2:])
    needed = [name for name, wanting in missing.items() if any(file.is_needed for file in wanting)]
    worst = needed or [name for name in missing if OF_CUDA.match(name)]
    if worst:
        detail = _told(worst, missing, loader) + note
        return check("libraries", "fail" if needed else "warn", detail, lines)
    if not ready:
        return check("libraries", "pass", "no compiled files that need any")
    number = "one needed library is" if len(seen) == 1 else f"{len(seen)} needed libraries are"
    words = f"{number} found, for {counted(len(ready), 'file')}"
    if not seen:
        words = f"nothing but the C library needed by {counted(len(ready), 'file')}"
    return check("libraries", "pass", words + note, lines)


def _told(names: list[str], missing: dict[str, list[Compiled]], loader: Loader) -> str:
    wanting = list(dict.fromkeys(file.shown for name in names for file in missing[name]))
    stems = {name.partition(".so")[0] for name in names}
    others = sorted(known for known in loader.loaded if known.partition(".so")[0] in stems)
    brings = f"; torch brings {first_few(others)}" if others else ""
    return f"{first_few(names)} not found, needed by {first_few(wanting, 2)}{brings}"


def _rpath_of(python: str) -> list[str]:
    """The interpreter's own RPATH, which serves all that it loads (conda)."""
    try:
        return Library(os.path.realpath(python)).rpath
    except (Broken, OSError):
        return []


def _system_libraries() -> dict[str, str]:
    """ldconfig's list, for this machine's processor; the usual folders where there is no ldconfig (Alpine)."""
    machine = os.uname().machine
    found: dict[str, str] = {}
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            done = subprocess.run(
                [program, "-p"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
            )
        except (OSError, subprocess.SubprocessError):
            continue
        for line in done.stdout.decode("utf-8", "surrogateescape").splitlines():
            match = re.fullmatch(r"\s+(\S+) \(([^)]*)\) => (.+)", line)
            if match and ("64" in match[2] or not machine.endswith("64")):
                found.setdefault(match[1], match[3])
        if found:
            return found
    for pattern in FOLDERS:
        folder = pattern.format(machine)
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            found.setdefault(name, f"{folder}/{name}")
    return found
