"""The check `python_abi`: whether the interpreter, the processor and the C library fit the compiled files.

Only a module of which there is no file for this interpreter is at fault. The kernel wheels ship files of another
minor version beside those that count (`infllm_ops.cpython-310`), in healthy environments too.
"""

from __future__ import annotations

import os
import re

from ..glibc import host_glibc
from ..verify.checks import check, counted, first_few
from .elf import Broken, Library

__all__ = ["check_python_abi"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .compiled import Compiled
    from .environment import Environment

WHEEL_GLIBC = re.compile(r"manylinux_(\d+)_(\d+)|manylinux(2014|2010|1)_")
OLD_TAGS = {"2014": (2, 17), "2010": (2, 12), "1": (2, 5)}


def check_python_abi(environment: Environment, files: list[Compiled]) -> dict[str, Any]:
    """The check, for the package's tree and the kernel package."""
    if environment.tree is None:
        return check("python_abi", "unknown", f"no {environment.package} here")
    faults: list[tuple[str, str]] = []
    lines: list[str] = []
    minor = "{}.{}".format(*environment.interpreter.minor)
    _look_at_names(environment, files, minor, faults, lines)
    _look_at_processor(environment, files, faults)
    _look_at_glibc(environment, files, faults, lines)
    lines = [f"{state}: {words}" for state, words in faults] + lines
    lines += [f"{file.shown}{'' if file.fits else ', not for this interpreter'}" for file in files]
    if faults:
        faults.sort(key=lambda fault: fault[0] != "fail")
        return check("python_abi", faults[0][0], first_few([words for _, words in faults], 2), lines)
    if not files:
        return check("python_abi", "pass", "no compiled files: the package fits any Python")
    host = ".".join(map(str, host_glibc())) or "none"
    return check(
        "python_abi",
        "pass",
        f"{counted(len(files), 'compiled file')} for Python {minor} and glibc {host}",
        lines,
    )


def _look_at_names(
    environment: Environment,
    files: list[Compiled],
    minor: str,
    faults: list[tuple[str, str]],
    lines: list[str],
) -> None:
    tree = f"{environment.tree}/"
    served = {file.stem for file in files if file.fits}
    strange = [file for file in files if file.is_needed and file.stem not in served]
    ours = [file for file in strange if file.path.startswith(tree)]
    # A kernel package without a single file for this interpreter is one for another.
    kernels = [file for file in files if file.is_needed and not file.path.startswith(tree)]
    if kernels and not any(file.fits for file in kernels):
        ours += kernels
    for file in ours:
        made_for = f"for Python {file.minor}" if file.minor else "for another kind of Python"
        faults.append(("fail", f"{file.shown} is {made_for}, the environment is {minor}"))
    lines += [
        f"{file.shown}: no file for Python {minor}; the wheel has none"
        for file in strange
        if file not in ours
    ]
    faults += [
        ("fail" if file.is_needed else "warn", f"{file.shown}: {file.fault}")
        for file in files
        if file.fault and file.fits
    ]


def _look_at_processor(
    environment: Environment, files: list[Compiled], faults: list[tuple[str, str]]
) -> None:
    try:
        ours = Library(os.path.realpath(environment.ground.python())).machine
    except (Broken, OSError):
        return
    for file in files:
        if file.library is not None and file.library.machine != ours and file.is_needed:
            theirs = file.library.machine
            faults.append(
                (
                    "fail",
                    f"{file.shown} is for {_machine(theirs)}, the interpreter here is for {_machine(ours)}",
                )
            )


def _look_at_glibc(
    environment: Environment, files: list[Compiled], faults: list[tuple[str, str]], lines: list[str]
) -> None:
    here = host_glibc()
    needs = [
        (file.glibc, file) for file in files if file.library is not None and file.is_needed and file.fits
    ]
    most, file = max(needs, key=lambda pair: pair[0], default=((), None))
    if file is not None and most:
        lines.append(f"glibc {'.'.join(map(str, most))} is the newest that is needed, by {file.shown}")
        if most > here:
            has = "this host has " + (".".join(map(str, here)) or "no glibc")
            faults.append(("fail", f"{file.shown} needs glibc {'.'.join(map(str, most))}, {has}"))
            return
    promised = _promised(environment)
    if promised > here:
        words = f"the wheel is made for glibc {'.'.join(map(str, promised))}, this host has {'.'.join(map(str, here))}"
        faults.append(("warn", f"{words}; what its compiled files need is here"))


def _promised(environment: Environment) -> tuple[int, ...]:
    """The glibc in the wheel's tag, of a tree that is the one that was installed."""
    if environment.tree_version != environment.dist_version:
        return ()
    wheels = [
        environment.look.text(f"{item.path}/WHEEL") or ""
        for item in environment.installed(environment.package)
    ]
    floors = [
        OLD_TAGS[match[3]] if match[3] else (int(match[1]), int(match[2]))
        for match in WHEEL_GLIBC.finditer("\n".join(wheels))
    ]
    return min(floors, default=())


def _machine(machine: tuple[str, int]) -> str:
    name, bits = machine
    return f"{name[3:].lower() if name.startswith('EM_') else name} ({bits} bit)"
