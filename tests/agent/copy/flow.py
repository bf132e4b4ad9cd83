"""A copy without a console: what its requests do, called one after the other."""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dflash_console.agent.copy.target import Target

__all__ = ["BY", "ORIGIN", "blocks", "copy", "entries_of", "filled", "lay_small", "state_of", "whole"]

BY = "kim@laptop"
ORIGIN = {"host": "ct129", "venv": "/opt/venv", "version": "0.5.23"}
HEADER = struct.Struct(">BIQI")
BLOCK = 1 << 18
END = HEADER.pack(255, 0, 0, 0)


def lay_small(
    site: Path,
    version: str,
    package: str = "sglang",
    extra: dict[str, str] | None = None,
    infos: bool = True,
    only: str = "",
) -> Path:
    """A small package with its dist-info; gives back the folder they are in."""
    files = {
        f"{package}/__init__.py": f'__version__ = "{version}"\n',
        f"{package}/same.py": "SAME = 1\n" * 50,
        f"{package}/empty.py": "",
        f"{package}/srt/__init__.py": f'VERSION = "{version}"\n',
        f"{package}/srt/speculative/dflash_worker.py": f"# of {version}\n" * 20,
        f"{package}/only_in_{version.replace('.', '_')}.py": "pass\n",
        **(extra or {}),
    }
    if infos:
        info = f"{package}-{version}.dist-info"
        files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        files[f"{info}/RECORD"] = (
            f"{package}/__init__.py,,\n{info}/METADATA,,\n{info}/RECORD,,\n../../../bin/{package},,\n"
        )
    for name, text in files.items():
        if not name.startswith(only):
            continue
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    return site


def entries_of(tree: Path) -> list[list[Any]]:
    """Entries as a source lists them: in the order of their paths, modes masked, no bytecode."""
    entries: list[list[Any]] = []
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        if "__pycache__" in name or name.startswith("."):
            continue
        seen = path.lstat()
        if stat.S_ISLNK(seen.st_mode):
            entries.append([name, "link", seen.st_size, 0o777, os.readlink(path)])
        elif stat.S_ISREG(seen.st_mode):
            mode = 0o755 if seen.st_mode & 0o100 else 0o644
            entries.append([name, "file", seen.st_size, mode, hashlib.sha256(path.read_bytes()).hexdigest()])
    return entries


def blocks(
    tree: Path, entries: list[list[Any]], order: list[int], compress: bool = False, size: int = BLOCK
) -> Iterator[bytes]:
    """What a source sends for these entries, without the end mark."""
    held, begins = b"", (0, 0)

    def block(data: bytes, position: int, offset: int) -> bytes:
        packed = zlib.compress(data, 1) if compress else data
        return HEADER.pack(int(compress), position, offset, len(data)) + packed

    for position, index in enumerate(order):
        data, offset = (tree / entries[index][0]).read_bytes(), 0
        while offset < len(data):
            if not held:
                begins = (position, offset)
            part = data[offset : offset + size - len(held)]
            held += part
            offset += len(part)
            if len(held) == size:
                yield block(held, *begins)
                held = b""
    if held:
        yield block(held, *begins)


def filled(
    target: Target, tree: Path, entries: list[list[Any]], wanted: list[int], compress: bool = False
) -> list[int]:
    """One pass that sends what is wanted; what is missing after it."""
    target.begin_fill(wanted)
    for block in blocks(tree, entries, wanted, compress):
        assert not target.feed(block)
    assert target.feed(END)
    missing: list[int] = target.end_fill()["missing"]
    return missing


def copy(
    venv: Path,
    tree: Path,
    modules: list[list[str]] | None = None,
    *,
    until: str = "",
    keep_backups: int = 5,
    look: Callable[[], dict[str, Any]] = dict,
    may_copy: bool = True,
) -> tuple[Target, dict[str, Any]]:
    """A whole copy up to and with the request `until`, else to its end; the target and the last answer."""
    target = Target(str(venv), "sglang")
    answer = target.claim(BY, "copy from ct129", ORIGIN, "", "", look, keep_backups, may_copy)
    assert not answer.get("locked"), answer
    if until == "claim":
        return target, answer
    entries = entries_of(tree)
    for at in range(0, len(entries), 4000):
        target.expect(entries[at : at + 4000])
    answer = target.want()
    if until == "want":
        return target, answer
    missing = filled(target, tree, entries, answer["wanted"])
    if missing:
        missing = filled(target, tree, entries, missing)
    assert not missing
    if until == "fill":
        return target, answer
    answer = target.check(modules or [], 60.0)
    if until == "check" or any(check["state"] == "fail" for check in answer["checks"]):
        return target, answer
    answer = target.swap()
    if until == "swap" or answer.get("is_undone"):
        return target, answer
    answer = target.settle(True, "")
    target.release()
    return target, answer


def state_of(site: Path, package: str = "sglang") -> dict[str, str]:
    """What is of the package in site-packages: content by path, without bytecode, dist-infos with it."""
    return {
        entry[0]: f"{entry[1]} {entry[4]}"
        for entry in entries_of(site)
        if entry[0].startswith((f"{package}/", f"{package}-"))
    }


def whole(venv: Path, site: Path, *states: dict[str, str]) -> None:
    """The live tree is one of these, and nothing of a copy is left over beside it or in our folder."""
    assert state_of(site) in states
    assert [path.name for path in site.iterdir() if path.name.startswith((".", "~", "stage"))] == []
    ours = venv / ".dflash-console"
    assert [path.name for path in ours.iterdir() if path.name.startswith(("stage", "."))] == []
