"""Why an interpreter died before it ran anything of ours: the telling line of what it, or the loader, printed."""

from __future__ import annotations

import errno
import os
import re

from ..regular import read_regular

__all__ = ["telling_line", "why_not_started"]

FATAL = re.compile(r"^Fatal Python error: .*", re.MULTILINE)
LOADER = re.compile(
    r"^.*(error while loading shared libraries: |symbol lookup error: |: version `[^']*' not found|"
    r"wrong ELF class: |cannot open shared object file|Error loading shared library |Error relocating ).*",
    re.MULTILINE,
)
"""What ld.so(8) of glibc, and musl's, say of a program that they can't load."""
RAISED = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Warning)\b.*", re.MULTILINE)
HOME = re.compile(r"^ *PYTHONHOME = (?!\(not set\))(.*)", re.MULTILINE)
MACHINES = {3: "i386", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv"}
"""By e_machine of an ELF header (elf(5))."""
PROGRAM_LOADER = re.compile(rb"/[\w./+-]*/ld[\w.+-]*\.so[\w.+-]*")
HEAD = 8192


def telling_line(output: str, home: str = "") -> str:
    """The one line that says why an interpreter ended at its start; empty when it printed nothing.

    `home` is the PYTHONHOME that it was given: a wrong one is the likely cause, and newer ones don't print it.
    """
    fatal = FATAL.search(output)
    if fatal is not None:
        raised = RAISED.search(output, fatal.end())
        line = fatal[0].strip() + (f": {raised[0].strip()}" if raised is not None else "")
        told = HOME.search(output)
        where = told[1].strip() if told is not None else repr(home) if home else ""
        return f"{line}, PYTHONHOME = {where}" if where else line
    loader = LOADER.search(output)
    if loader is not None:
        return loader[0].strip()
    lines = [line.strip() for line in output.split("\n") if line.strip()]
    if any(line.startswith("Traceback (") for line in lines):
        raised_lines = [found[0].strip() for found in RAISED.finditer(output)]
        if raised_lines:
            return raised_lines[-1]
    return lines[-1] if lines else ""


def why_not_started(program: str, problem: str) -> str:
    """The system's words of a program that could not be executed, with what they mean where they mislead."""
    if not problem.startswith(f"{program}: "):
        return problem
    words = problem[len(program) + 2 :]
    if words == os.strerror(errno.ENOENT) and os.path.exists(program):
        needed = _needed(_head(program))
        return f"{program} is there, but {needed or 'what it needs to be run by'} is not"
    if words == os.strerror(errno.ENOEXEC):
        head = _head(program)
        if not head.startswith(b"\x7fELF"):
            return f"{problem}: it is no program" if head else f"{problem}: it is empty"
        number = int.from_bytes(head[18:20], "big" if head[5:6] == b"\x02" else "little")
        other = MACHINES.get(number, f"another machine ({number})")
        return f"{problem}: it is for {other}, this machine is {os.uname().machine}"
    return problem


def _needed(head: bytes) -> str:
    """What the kernel starts a program by: the interpreter of a script's first line, a binary's loader."""
    if head.startswith(b"#!"):
        words = head[2:].split(b"\n", 1)[0].split()
        return f"{os.fsdecode(words[0])}, which its first line names," if words else ""
    loader = PROGRAM_LOADER.search(head)
    return f"its loader {os.fsdecode(loader[0])}" if loader is not None else ""


def _head(path: str) -> bytes:
    try:
        return read_regular(path, HEAD)
    except OSError:
        return b""
