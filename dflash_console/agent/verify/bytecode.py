"""Bytecode that Python would run though its source says something else.

A .pyc is taken when the source's mtime (whole seconds) and size are those in its header (PEP 552), so a source
that was replaced with both kept is never seen. Only the environment's own interpreter can tell for sure: it
compiles those few sources that are newer than their bytecode all the same.
"""

from __future__ import annotations

import json
import os

from .program import run

__all__ = ["Compiled", "compile_all", "stale_candidates"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..venvs.interpreter import Interpreter
    from .tree import Seen, Tree

SCRIPT = r"""
import importlib.util, json, marshal, os, sys
def say(*words):
    data = (json.dumps(words) + "\n").encode()
    while data:
        data = data[os.write(3, data):]
def code(path):
    with open(path, "rb") as file:
        return compile(file.read(), path, "exec", 0, True, 0)
def is_stale(source, cached):
    with open(cached, "rb") as file:
        data = file.read()
    if data[:4] != importlib.util.MAGIC_NUMBER:
        return False
    try:
        kept = marshal.loads(data[16:])
    except Exception:
        return False
    try:
        return kept != code(source)
    except (SyntaxError, ValueError):
        return True
sources, pairs = json.load(sys.stdin)
for source in sources:
    try:
        code(source)
    except (SyntaxError, ValueError) as error:
        where = " at line %d" % error.lineno if getattr(error, "lineno", None) else ""
        say("broken", source, type(error).__name__ + where + ": " + str(getattr(error, "msg", error)))
    except (OSError, RecursionError, MemoryError):
        pass
for source, cached in pairs:
    try:
        say("stale" if is_stale(source, cached) else "same", source)
    except (OSError, RecursionError, MemoryError):
        say("same", source)
"""


class Compiled:
    """What the interpreter said."""

    def __init__(self) -> None:
        self.stale: list[str] = []
        """Sources whose bytecode is another's."""
        self.compared = 0
        self.broken: dict[str, str] = {}
        """Sources that do not compile, and why."""
        self.problem = ""


def stale_candidates(interpreter: Interpreter, tree: Tree, vouched: set[str]) -> list[tuple[str, str]]:
    """Pairs of a source and the bytecode that Python takes for it, where the source changed later.

    Not those in `vouched`, that are as they were installed: of them only the ctime is newer (a hard link, a
    change of owner, a copy of the whole environment).
    """
    suffix = f".cpython-{interpreter.minor[0]}{interpreter.minor[1]}{interpreter.threads}.pyc"
    found: list[tuple[str, str]] = []
    for cache in tree.caches:
        folder = os.path.dirname(cache)
        prefix = f"{folder}/" if folder else ""
        try:
            entries = list(os.scandir(f"{tree.root}/{cache}"))
        except OSError:
            continue
        for entry in entries:
            name = f"{prefix}{entry.name[: -len(suffix)]}.py"
            source = tree.files.get(name)
            if not entry.name.endswith(suffix) or source is None or name in vouched:
                continue
            try:
                is_later = source.ctime > entry.stat().st_ctime_ns
                if is_later and _is_taken(entry.path, source):
                    found.append((f"{tree.root}/{name}", entry.path))
            except OSError:
                continue
    return sorted(found)


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


def compile_all(python: str, pairs: list[tuple[str, str]], sources: list[str], limit: float) -> Compiled:
    """Have the environment's interpreter compare the pairs and compile the sources, within `limit` seconds.

    It runs apart from the environment (-I -S) and writes nothing.
    """
    compiled = Compiled()
    if not pairs and not sources:
        return compiled
    text = json.dumps([sources, pairs]).encode("ascii")
    ended = run(
        [python, "-I", "-S", "-B", "-c", SCRIPT], text, limit, dict(os.environ), lambda: os.chdir("/")
    )
    for line in ended.answers.decode("ascii", "replace").split("\n"):
        try:
            kind, source, *words = json.loads(line) if line else ("", "")
        except ValueError:
            continue
        if kind == "broken":
            compiled.broken[source] = words[0]
        elif kind:
            compiled.compared += 1
            if kind == "stale":
                compiled.stale.append(source)
    if ended.problem or ended.status not in (0, None):
        lines = ended.output.decode("utf-8", "replace").strip().split("\n")
        compiled.problem = ended.problem or f"its interpreter ended with {ended.status}: {lines[-1]}"
    return compiled
