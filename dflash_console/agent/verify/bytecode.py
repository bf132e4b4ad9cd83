"""Bytecode that Python would run though its source may say something else.

A .pyc is taken when the source's mtime (whole seconds) and size are those in its header (PEP 552), so a source
that was replaced with both kept is never seen. Only the environment's own interpreter can tell for sure, by compiling
the source, which is too dear to do for all. But two sources have the same mtime only when somebody kept or set the
mtime of one, so bytecode is above suspicion where it was written in its place after the source was, and the source's
mtime is the time at which that was written.
"""

from __future__ import annotations

import os
import re

__all__ = ["find_suspects", "is_bytecode_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple

    from ..venvs.interpreter import Interpreter
    from .tree import Seen, Tree

    Pair = Tuple[str, str, int]
    """A source, bytecode that Python may take for it, and the level of optimisation that this is for."""

KEPT = 2_000_000_000
"""Nanoseconds between mtime and ctime beyond which the mtime is not the time at which the file was written."""


def find_suspects(interpreter: Interpreter, tree: Tree, vouched: set[str]) -> list[Pair]:
    """The bytecode that Python takes and that may be of another source, also that of `python -O` and `-OO`; first that
    of sources which are not in `vouched`, those that are as they were installed."""
    minor = f"{interpreter.minor[0]}{interpreter.minor[1]}{interpreter.threads}"
    pattern = re.compile(rf"(.+)\.cpython-{minor}(?:\.opt-([12]))?\.pyc", re.DOTALL)
    found: list[tuple[bool, Pair]] = []
    for cache in tree.caches:
        folder = os.path.dirname(cache)
        prefix = f"{folder}/" if folder else ""
        try:
            entries = list(os.scandir(f"{tree.root}/{cache}"))
            changed = os.stat(f"{tree.root}/{folder}").st_mtime_ns
        except OSError:
            continue
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            name = f"{prefix}{match[1]}.py" if match is not None else ""
            source = tree.files.get(name)
            if match is None or source is None:
                continue
            try:
                is_suspect = _may_be_of_another(entry, source, name in vouched, changed)
                if is_suspect and _is_taken(entry.path, source):
                    pair = (f"{tree.root}/{name}", entry.path, int(match[2] or 0))
                    found.append((name in vouched, pair))
            except OSError:
                continue
    return [pair for _, pair in sorted(found)]


def is_bytecode_of(interpreter: Interpreter, tree: Tree, name: str) -> bool | None:
    """Whether the bytecode in the cache is of a source of that size and mtime; None when there is none that was
    written before the source last changed."""
    folder, leaf = os.path.split(name)
    tag = f"cpython-{interpreter.minor[0]}{interpreter.minor[1]}{interpreter.threads}"
    path = os.path.join(tree.root, folder, "__pycache__", f"{leaf[: -len('.py')]}.{tag}.pyc")
    source = tree.files[name]
    try:
        is_older = leaf.endswith(".py") and os.stat(path).st_mtime_ns <= source.ctime
        return _is_taken(path, source) if is_older else None
    except OSError:
        return None


def _may_be_of_another(entry: os.DirEntry[str], source: Seen, is_vouched: bool, changed: int) -> bool:
    """`changed`: when a name last came into the source's folder, or went from there, in nanoseconds."""
    status = entry.stat()
    is_copied = abs(status.st_ctime_ns - status.st_mtime_ns) > KEPT
    if source.links > 1 and is_vouched:
        # A link to it from another environment changes the ctime, and the mtime is that of uv's cache.
        return is_copied or changed >= status.st_ctime_ns
    is_kept = abs(source.ctime - source.mtime) > KEPT
    return is_copied or is_kept or source.ctime >= status.st_ctime_ns


def _is_taken(path: str, source: Seen) -> bool:
    """Whether Python takes a .pyc for the source without reading that (importlib._bootstrap_external)."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        header = os.read(fd, 16)
    finally:
        os.close(fd)
    if len(header) < 16:
        return False
    flags, time, size = (int.from_bytes(header[at : at + 4], "little") for at in (4, 8, 12))
    if flags:
        return flags == 1  # by hash, and not to be checked
    return time == source.mtime // 1_000_000_000 & 0xFFFFFFFF and size == source.size & 0xFFFFFFFF
