"""`compare`: which files of the package differ between two environments."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from dflash_console.cli.difference_text import counts, file_lines, folder_lines, look_words
from dflash_console.cli.ends import Place, Unreached, end_of, places, refuse_twice
from dflash_console.cli.reach import is_linked, view_of, with_fleet
from dflash_console.cli.status_text import Terminal, painted, terminal
from dflash_console.cli.streams import complain, emit, harmless_json
from dflash_console.config import Config
from dflash_console.copies import Comparison, Entry, Look, Side
from dflash_console.fleet import Fleet
from dflash_console.operations.comparing import folders_of
from dflash_console.operations.planning import compare
from dflash_console.ui.drawing.line import Line, Row, wrap

__all__ = ["Compared", "compare_json", "compare_text", "exit_code", "run_compare"]


class Compared(msgspec.Struct, frozen=True):
    """What was found of both sides."""

    source: Side
    target: Side
    source_look: Look | None = None
    target_look: Look | None = None
    difference: Comparison | None = None
    problem: str = ""
    """Why they can't be compared, or not all of them."""
    is_unreachable: bool = False


def run_compare(config: Config, source: str, target: str, *, as_json: bool) -> int:
    """Prints which files differ; gives back the exit code. Raises ConfigError."""
    ends = end_of(config, source), end_of(config, target)
    refuse_twice(ends[0], [ends[1]])

    async def ask(fleet: Fleet) -> Compared:
        left, right = await places(fleet, config, ends)
        if isinstance(left, Unreached) or isinstance(right, Unreached):
            return _unreached(left, right)
        refuse_twice(left, [right])
        found = Compared(left, right, *await compare(fleet, config, left, right))
        is_there = all(is_linked(view_of(fleet, side.host)) for side in (left, right))
        return msgspec.structs.replace(found, is_unreachable=bool(found.problem) and not is_there)

    found = asyncio.run(with_fleet(config, dict.fromkeys(end.host for end in ends), ask))
    if found.problem:
        whole = " whole" if found.difference is not None else ""
        complain(f"{found.source} and {found.target} can't be compared{whole}: {found.problem}")
    if as_json:
        emit(harmless_json(compare_json(found)) + b"\n")
    elif found.difference is not None:
        emit(compare_text(found, config.package.name, terminal()).encode(errors="replace"))
    return exit_code(found)


def _unreached(*both: Place) -> Compared:
    left, right = (
        Side(place.end.host, place.end.venv or "") if isinstance(place, Unreached) else place
        for place in both
    )
    why = "; ".join(f"{place.end.host}: {place.why}" for place in both if isinstance(place, Unreached))
    return Compared(left, right, problem=why, is_unreachable=True)


def exit_code(found: Compared) -> int:
    """0 when both are equal, 1 when they are not or can't be compared, 3 when a host could not be reached."""
    if found.is_unreachable:
        return 3
    difference = found.difference
    is_equal = difference is not None and not (difference.added or difference.changed or difference.removed)
    return 0 if is_equal and not found.problem else 1


def compare_json(found: Compared) -> bytes:
    """One object: both sides, and the paths that differ; `added` are only in the source."""
    difference = found.difference or Comparison((), (), (), 0)
    return msgspec.json.encode(
        {
            "source": side_object(found.source, found.source_look),
            "target": side_object(found.target, found.target_look),
            "added": _paths(difference.added),
            "changed": _paths(difference.changed),
            "removed": _paths(difference.removed),
            "same": difference.same,
            "equal": exit_code(found) == 0,
            "problem": found.problem or None,
        }
    )


def side_object(side: Side, look: Look | None) -> dict[str, object]:
    """One side of a comparison or the source of a copy; null for what is not known or not there."""
    return {
        "host": side.host,
        "venv": side.venv or None,
        "version": (look.version or None) if look else None,
        "tree": (look.tree or None) if look else None,
        "files": look.files if look else None,
        "size": look.size if look else None,
    }


def _paths(entries: Iterable[Entry]) -> list[str]:
    return [entry.path for entry in entries]


def compare_text(found: Compared, package: str, to: Terminal) -> str:
    """Both sides, the counts, then by folder and by name."""
    return "".join(painted(line, to) + "\n" for line in _lines(found, package, to.width))


def _lines(found: Compared, package: str, width: int) -> Iterable[Line]:
    for word, side, look in (
        ("source", found.source, found.source_look),
        ("target", found.target, found.target_look),
    ):
        first, *rest = wrap(f"{side}  {look_words(look, package)}", max(20, width - 8))
        yield Row(width).add(f"{word}  ", "label").add(first).line()
        for text in rest:
            yield Row(width).add(" " * 8).add(text).line()
    difference = found.difference
    if difference is None:
        return
    words = counts(len(difference.added), len(difference.changed), len(difference.removed))
    yield Row(width).add(f"{words}, {difference.same} the same", "strong").line()
    if exit_code(found):
        yield from folder_lines(folders_of(difference), width, 2)
        yield from file_lines(difference, width, 2)
