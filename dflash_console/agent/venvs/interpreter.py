"""Which Python a virtual environment is, read from its files: nothing of it is run or imported."""

from __future__ import annotations

import errno
import os
import re

from ..section import missing
from .look import Look

__all__ = ["Interpreter", "prefix_of", "read_interpreter"]

DENIED = (errno.EACCES, errno.EPERM)


class Interpreter:
    """A virtual environment, a conda environment, or the prefix of a Python without one."""

    def __init__(self, prefix: str, minor: tuple[int, int], threads: str) -> None:
        self.prefix = prefix
        self.minor = minor
        self.threads = threads
        """`t` for a free-threaded build, else empty."""
        self.python: str | dict[str, str] = f"{minor[0]}.{minor[1]}"
        """`3.12.3`, or why it can't run, ready for the wire."""
        self.is_apart = False
        """Whether the whole folder is an environment's own; a Python without one shares its prefix with others."""
        self.sites: list[str] = []
        """Its own site-packages folders, in the interpreter's order."""
        self.system_sites: list[str] = []
        """Those of the user and the system, if it sees them (include-system-site-packages, or no venv)."""

    @property
    def library(self) -> str:
        """The folder's name under lib, such as `python3.12`."""
        return f"python{self.minor[0]}.{self.minor[1]}{self.threads}"


def prefix_of(interpreter: str) -> str:
    """The folder of the environment that an interpreter belongs to; a folder is its own.

    As CPython looks for pyvenv.cfg: beside the path as it was called, then beside what that links to.
    """
    if os.path.isdir(interpreter):
        return os.path.normpath(interpreter)
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(interpreter)))
    if os.path.exists(f"{prefix}/pyvenv.cfg") or os.path.isdir(f"{prefix}/conda-meta"):
        return prefix
    return os.path.dirname(os.path.dirname(os.path.realpath(interpreter)))


def read_interpreter(prefix: str, look: Look) -> Interpreter | dict[str, str]:
    """The environment in a folder; missing(...) with what is wrong when there is none.

    One whose interpreter is gone still comes back, with the reason in `python`: its packages are there.
    """
    problem = _no_folder(prefix, look)
    if problem:
        return problem
    text = look.text(f"{prefix}/pyvenv.cfg")
    number = look.errors.get(f"{prefix}/pyvenv.cfg", 0)
    if text is None and number not in (errno.ENOENT, errno.ENOTDIR):
        reason = "permission" if number in DENIED else "error"
        odd = look.odd.get(f"{prefix}/pyvenv.cfg")
        words = (
            f"pyvenv.cfg can't be read: {os.strerror(number)}"
            if number
            else f"pyvenv.cfg is {odd}, not a file"
        )
        return missing(reason, words)
    config = read_pyvenv(text or "")
    conda = look.names(f"{prefix}/conda-meta") if text is None else []
    libraries = _libraries(prefix, look)
    if text is None and not conda and not any(_has_stdlib(lib, name, look) for lib, name in libraries):
        return missing("not_found", "not a venv: no pyvenv.cfg")
    executable, problem = _executable(prefix, look)
    real = os.path.realpath(executable) if executable else ""
    full = config.get("version_info") or config.get("version") or _conda_version(conda)
    minor = _minor(os.path.basename(real), full, libraries)
    if minor is None:
        return missing("error", "can't tell its Python version: none in pyvenv.cfg, no lib/pythonX.Y")
    threads = "t" if any(name == f"python{minor[0]}.{minor[1]}t" for _, name in libraries) else ""
    found = Interpreter(prefix, minor, threads)
    found.python = problem or _version(full, minor)
    found.is_apart = text is not None or bool(conda)
    base = prefix
    if text is not None:
        base = os.path.dirname(config.get("home") or os.path.dirname(real))
    sees_system = text is None or config.get("include-system-site-packages", "").lower() == "true"
    _add_sites(found, base, sees_system, look)
    return found


def _minor(executable: str, full: str, libraries: list[tuple[str, str]]) -> tuple[int, int] | None:
    """What runs counts most: after an upgrade of the system, the interpreter may be newer than the venv."""
    for text in (executable, f"python{full}", *(name for _, name in libraries)):
        match = re.match(r"python(\d+)\.(\d+)", text)
        if match:
            return int(match[1]), int(match[2])
    return None


def _version(full: str, minor: tuple[int, int]) -> str | dict[str, str]:
    made_for = re.match(r"(\d+)\.(\d+)(\.\d+)?((a|b|rc)\d+)?", full)
    if made_for is None:
        return f"{minor[0]}.{minor[1]}"
    if (int(made_for[1]), int(made_for[2])) == minor:
        return made_for[0]
    now = f"{minor[0]}.{minor[1]}"
    return missing("mismatch", f"made for {made_for[1]}.{made_for[2]}, but its interpreter is {now} now")


def read_pyvenv(text: str) -> dict[str, str]:
    """The keys of a pyvenv.cfg, as Lib/site.py reads them."""
    pairs = (line.partition("=") for line in text.split("\n") if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _no_folder(prefix: str, look: Look) -> dict[str, str] | None:
    if look.is_folder(prefix):
        return None
    number = look.errors.get(prefix, 0)
    if number == 0:
        return missing("not_found", "not a folder")
    if number in (errno.ENOENT, errno.ENOTDIR):
        if os.path.islink(prefix):
            return missing("not_found", f"a link to {os.readlink(prefix)}, which is not there")
        return missing("not_found", "no such folder")
    return missing("permission" if number in DENIED else "error", os.strerror(number))


def _libraries(prefix: str, look: Look) -> list[tuple[str, str]]:
    """(folder, pythonX.Y) of all that are there, newest first."""
    found = []
    for lib in (f"{prefix}/lib", f"{prefix}/lib64"):
        names = (re.fullmatch(r"python(\d+)\.(\d+)t?", name) for name in look.names(lib))
        found += [(int(name[1]), int(name[2]), lib, name[0]) for name in names if name]
    return [(lib, name) for _, _, lib, name in sorted(found, reverse=True)]


def _has_stdlib(lib: str, name: str, look: Look) -> bool:
    return look.size(f"{lib}/{name}/os.py") is not None


def _executable(prefix: str, look: Look) -> tuple[str | None, dict[str, str] | None]:
    """The interpreter's path, and what is wrong with it."""
    broken: dict[str, str] | None = None
    for name in ("python", "python3"):
        path = f"{prefix}/bin/{name}"
        if look.size(path) is not None:
            if os.access(path, os.X_OK):
                return path, None
            broken = broken or missing("permission", f"bin/{name} may not be executed")
        elif os.path.islink(path):
            target = os.readlink(path)
            gone = "which is a loop" if look.errors.get(path) == errno.ELOOP else "which is not there"
            broken = broken or missing(
                "not_found", f"broken interpreter link: bin/{name} -> {target}, {gone}"
            )
    return None, broken or missing("not_found", "no interpreter: neither bin/python nor bin/python3")


def _conda_version(names: list[str]) -> str:
    matches = (re.match(r"python-(\d+\.\d+\.\d+)-", name) for name in names)
    return next((match[1] for match in matches if match), "")


def _add_sites(found: Interpreter, base: str, sees_system: bool, look: Look) -> None:
    """What Lib/site.py adds, in its order: the environment's own folders, the user's, the system's."""
    # Fedora and its like build Python with sys.platlibdir = lib64: the stdlib lies there, and it comes first.
    libs = ("lib64", "lib") if _has_stdlib(f"{base}/lib64", found.library, look) else ("lib",)
    own = [f"{found.prefix}/{lib}/{found.library}/site-packages" for lib in libs]
    system = [f"{base}/{lib}/{found.library}/site-packages" for lib in libs]
    if os.path.normpath(base) == "/usr":  # Debian
        major = found.minor[0]
        system += [f"/usr/local/lib/{found.library}/dist-packages", f"/usr/lib/python{major}/dist-packages"]
    user = os.path.expanduser(f"~/.local/lib/{found.library}/site-packages")
    if base == found.prefix:
        own, system = system, []
    found.sites = [folder for folder in own if look.is_folder(folder)]
    if sees_system:
        found.system_sites = [folder for folder in (user, *system) if look.is_folder(folder)]
