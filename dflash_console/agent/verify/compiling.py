"""What the environment's own interpreter says of sources: whether they compile, whether bytecode is theirs, and
whether what the import of the package reads first imports modules that are not there.

It runs apart from the environment (-I -S), several processes side by side, imports nothing of it and writes nothing.
"""

from __future__ import annotations

import json
import os

from .compiling_program import PROGRAM
from .program import run

__all__ = ["Chain", "Compiled", "compile_all"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Tuple

    from .bytecode import Pair

    Item = Tuple[str, bool, "list[tuple[str, int]]"]
    """A source, whether it is to be compiled, and its bytecode that is to be compared."""

PROCESSES = 4
"""Side by side at most: what the host serves has the rest."""
AGAIN = "v again, or V (--deep), looks at more"
SPARE = 2.0
"""Seconds beyond its limit in which the program must have ended."""


class Chain:
    """Where an import of the package begins: its imports are followed from file to file."""

    def __init__(self, root: str, package: str, starts: list[str], *, is_whole: bool = True) -> None:
        self.root = root
        """The package's folder."""
        self.package = package
        self.starts = starts
        """Files, in the order in which they are of interest."""
        self.is_whole = is_whole
        """Whether it goes on through all files, or only through those that are to be compiled."""


class Compiled:
    """What the interpreter said, in one look or in several that went on from each other."""

    def __init__(self) -> None:
        self.stale: list[str] = []
        """Bytecode that is of another source."""
        self.compared: set[str] = set()
        """Bytecode that was looked at."""
        self.broken: dict[str, str] = {}
        """Sources that do not compile, and why; those that are imported first come first."""
        self.absent: dict[str, tuple[str, int]] = {}
        """Modules of the package that are imported and not there: the file that imports them, and its line."""
        self.compiled: set[str] = set()
        """Sources that were compiled."""
        self.links: dict[str, bool] = {}
        """Files of the chain, and whether their imports were followed."""
        self.problem = ""
        """Why the interpreter could not be asked."""
        self.is_brief = False
        """Whether the time was cut short, so that the answer comes at once."""

    @property
    def why_not(self) -> str:
        """Why something was not done."""
        return self.problem or (AGAIN if self.is_brief else "there was no time for more")

    @property
    def waiting(self) -> list[str]:
        """Files of the chain whose imports there was no time to follow."""
        return [path for path, is_followed in self.links.items() if not is_followed]

    def kept(self) -> dict[str, Any]:
        """As JSON has it, for `again`."""
        return {**vars(self), "compared": sorted(self.compared), "compiled": sorted(self.compiled)}

    @classmethod
    def again(cls, kept: dict[str, Any]) -> Compiled:
        """What was `kept`, to go on from; a new one when that is empty."""
        compiled = cls()
        vars(compiled).update(kept)
        compiled.compared, compiled.compiled = set(compiled.compared), set(compiled.compiled)
        compiled.problem, compiled.is_brief = "", False
        return compiled


def compile_all(
    python: str,
    sources: list[str],
    pairs: list[Pair],
    chain: Chain | None,
    limit: float,
    compiled: Compiled | None = None,
) -> Compiled:
    """Follow a chain, compile sources and compare pairs, within about `limit` seconds; what there was no time for is
    not in `compiled` and `compared`, and a further call with what came of this one goes on there."""
    compiled = compiled or Compiled()
    if chain is not None and not compiled.links:
        compiled.links = dict.fromkeys(chain.starts, False)
    waiting = compiled.waiting
    items = _items(sources, pairs, compiled)
    if not items and not waiting:
        return compiled
    places = (
        (chain.root, chain.package, chain.is_whole, waiting, list(compiled.links))
        if chain is not None and waiting
        else None
    )
    text = json.dumps([items, places, max(0.1, limit), PROCESSES]).encode("ascii")
    # In UTF-8 mode, as the agent is, a path of any bytes is the same text for both (PEP 540).
    argv = [python, "-I", "-S", "-B", "-X", "utf8", "-c", PROGRAM]
    ended = run(argv, text, limit + SPARE, dict(os.environ), lambda: os.chdir("/"))
    wanted = {source for source, is_wanted, _ in items if is_wanted}
    for line in ended.answers.decode("ascii", "replace").split("\n"):
        _take(compiled, items, wanted, line)
    compiled.stale.sort()
    if ended.problem or ended.status not in (0, None):
        lines = ended.output.decode("utf-8", "replace").strip().split("\n")
        compiled.problem = ended.problem or f"its interpreter ended with {ended.status}: {lines[-1]}"
    return compiled


def _items(sources: list[str], pairs: list[Pair], compiled: Compiled) -> list[Item]:
    """What is still to be done."""
    cached: dict[str, list[tuple[str, int]]] = {
        source: [] for source in sources if source not in compiled.compiled
    }
    wanted = set(cached)
    for source, path, level in pairs:
        if path not in compiled.compared:
            cached.setdefault(source, []).append((path, level))
    return [(source, source in wanted, kept) for source, kept in cached.items()]


def _take(compiled: Compiled, items: list[Item], wanted: set[str], line: str) -> None:
    try:
        kind, *words = json.loads(line) if line else ("",)
    except ValueError:
        return
    if kind == "broken":
        compiled.broken[words[0]] = words[1]
    elif kind == "stale":
        compiled.stale.append(words[0])
    elif kind == "absent":
        compiled.absent.setdefault(words[2], (words[0], words[1]))
    elif kind in ("link", "followed"):
        compiled.links[words[0]] = kind == "followed"
        if kind == "followed" and words[0] in wanted:
            compiled.compiled.add(words[0])
    elif kind == "did":
        at, number, count = words
        for source, is_wanted, kept in items[at::number][:count]:
            compiled.compiled.update([source] if is_wanted else [])
            compiled.compared.update(path for path, _ in kept)
