"""The part `files`: what the files of an environment tell, without importing or running anything of it.

Hashing a tree takes a good part of a second, so what came of it is kept in the agent until a file changes.
"""

from __future__ import annotations

import gc
import os
import time

from ..jobs import Job
from ..venvs.look import shown
from .checks import check
from .content import check_contents, check_version
from .copy_check import check_copy
from .ground import Ground, folder_of
from .odd_files import with_odd_files
from .places import check_modules, check_nested, check_origin, check_python, check_shadow
from .record import read_record
from .tree import Tree, digest, walk

__all__ = ["files_job", "fingerprint_job", "newest_change", "tree_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Tuple

    from ..child import Channel, Outcome

    Kept = Tuple[str, "list[dict[str, Any]]", "dict[str, Any]"]
    """What the files were like, the checks of their contents, and when those could not be finished how far they
    came."""

KEPT_LIMIT = 64
"""Environments whose contents the agent keeps the checks of."""
COMPILE_SHARE = 0.4
"""Of the time limit that the environment's interpreter may take for compiling."""
YOUNG = 1.5
"""Seconds after a change in which a second one may bear the same time; nothing is kept of such a look."""
FINGERPRINT_LIMIT = 20.0

NOTHING: Kept = ("", [], {})
_kept: dict[tuple[str, str], Kept] = {}
"""By environment and package."""


def files_job(message: dict[str, Any]) -> Job:
    """A job for the part; see the module `verify` for the message. `brief`: seconds for compiling, where answers are
    to come at once and a further look goes on; None for what the limit allows."""
    venv, package, limit = str(message["venv"]), str(message["package"]), float(message["limit"])
    modules: list[list[str]] = message["modules"]
    brief: float | None = message.get("brief")
    known = _kept.get((venv, package), NOTHING)

    def work(channel: Channel) -> None:
        gc.disable()  # it would go through the agent's own memory and so have it copied
        channel.send(look(venv, package, modules, known, limit, brief))

    def finish(outcome: Outcome) -> object:
        if not outcome.values:
            return _unanswered(venv, outcome)
        answer, *kept = outcome.values[-1]
        while len(_kept) >= KEPT_LIMIT:
            del _kept[next(iter(_kept))]
        _kept.pop((venv, package), None)
        if kept[0]:
            _kept[venv, package] = tuple(kept)
        return answer

    return Job(work, limit, finish, key=f"files {venv}", is_quick=True)


def fingerprint_job(message: dict[str, Any]) -> Job:
    """A job that answers `fingerprint`: as the fact of that name of `files`, for the same files."""
    venv, package = str(message["venv"]), str(message["package"])

    def work(channel: Channel) -> None:
        gc.disable()  # it would go through the agent's own memory and so have it copied
        ground = Ground(venv, package)
        channel.send({"fingerprint": _fingerprint(ground, tree_of(ground))})

    return Job(work, FINGERPRINT_LIMIT, key=f"files {venv}", is_quick=True)


def look(
    venv: str,
    package: str,
    modules: list[list[str]],
    known: Kept,
    limit: float,
    brief: float | None = None,
) -> tuple[dict[str, Any], str, list[dict[str, Any]], dict[str, Any]]:
    """The answer, and what is to be kept for the next time, as `known` is of the last time. Raises OSError when the
    disk fails."""
    began = time.monotonic()
    ground = Ground(venv, package)
    facts: dict[str, Any] = {"site": shown(ground.site)}
    if ground.problem is not None:
        facts["fingerprint"] = _fingerprint(ground, None)
        words = "there is no environment"
        checks = [
            check_python(ground, None),
            *(check(name, "unknown", words) for name in ("origin", "modules")),
        ]
        return ({"checks": checks, "facts": facts}, *NOTHING)
    cells = ground.cells(modules)
    for item in ground.installed:
        for name in ("RECORD", "direct_url.json"):
            ground.look.odd_at(f"{item.path}/{name}")
    tree = tree_of(ground)
    facts["fingerprint"] = _fingerprint(ground, tree)
    checks = [check_python(ground, tree)]
    if tree is None:
        checks += [
            check_origin(ground, cells, None),
            check_modules(ground, cells, modules),
            check_copy(ground),
        ]
        return ({"checks": with_odd_files(checks, ground.look), "facts": facts}, *NOTHING)
    key = _key(ground, tree, modules, facts["fingerprint"])
    contents, rest = known[1:] if key == known[0] else ([], {})
    if rest or not contents:
        contents, rest = check_contents(ground, tree, cells, modules, limit * COMPILE_SHARE, brief, rest)
    checks += [
        check_origin(ground, cells, _should_be_empty(ground)),
        check_modules(ground, cells, modules),
        check_shadow(ground),
        check_nested(ground, cells),
        check_version(ground, cells),
        *contents,
        check_copy(ground),
    ]
    facts.update(
        version=_text(cells["version"]),
        dist_version=_text(cells["dist_version"]),
        origin=_text(cells["origin"]),
        newest=newest_change(ground, tree),
        files=len(tree.names),
        bytes=tree.size,
        seconds=round(time.monotonic() - began, 4),
    )
    is_young = time.time() - facts["newest"] < YOUNG
    checks = with_odd_files(checks, ground.look)
    return {"checks": checks, "facts": facts}, "" if is_young else key, contents, rest


def newest_change(ground: Ground, tree: Tree) -> float:
    """When the package last changed, by the host's clock, in seconds since 1970; see `Tree.newest`.

    Of a tree of hard links the RECORD tells, which every installer writes anew.
    """
    times = [tree.newest()]
    if ground.vouching is not None:
        for name in ("RECORD", "INSTALLER"):
            try:
                seen = os.stat(f"{ground.vouching.path}/{name}")
            except OSError:
                continue
            times.append(seen.st_ctime if seen.st_nlink == 1 else seen.st_mtime)
    return max(times)


def tree_of(ground: Ground) -> Tree | None:
    """The package's files; None without a package."""
    if ground.found is None:
        return None
    return walk(ground.where if ground.found.folders else str(ground.found.origin))


def _fingerprint(ground: Ground, tree: Tree | None) -> str:
    stamp = repr(ground.stamp()).encode("utf-8", "backslashreplace")
    return digest([stamp, *(tree.stamp() if tree is not None else ())])


def _key(ground: Ground, tree: Tree, modules: list[list[str]], fingerprint: str) -> str:
    """Another one whenever the checks of the contents may come out otherwise."""
    rest = repr((_vouching_mark(ground), modules, fingerprint)).encode("utf-8", "backslashreplace")
    return digest([*tree.exact_stamp(), rest])


def _vouching_mark(ground: Ground) -> object:
    """What tells one RECORD from another."""
    if ground.vouching is None:
        return [item.path for item in ground.installed]
    try:
        seen = os.stat(f"{ground.vouching.path}/RECORD")
    except OSError as error:
        return error.errno
    return (
        ground.vouching.path,
        ground.vouching.version,
        seen.st_ino,
        seen.st_size,
        seen.st_mtime_ns,
        seen.st_ctime_ns,
    )


def _should_be_empty(ground: Ground) -> bool | None:
    """What RECORD says of an __init__.py of zero bytes; None when it has more, or RECORD does not say."""
    origin = str(ground.found.origin) if ground.found is not None else ""
    if ground.look.size(origin) != 0 or ground.vouching is None:
        return None
    record = read_record(ground.vouching.path)
    row = None if isinstance(record, str) else record.rows.get(os.path.relpath(origin, ground.home))
    return None if row is None else row[2] == 0


def _text(cell: object) -> object:
    return shown(cell) if isinstance(cell, str) else None


def _unanswered(venv: str, outcome: Outcome) -> dict[str, Any]:
    """The checks that matter most, when the look at the files did not come to its end."""
    if not outcome.timed_out and not outcome.error.startswith(("OSError", "PermissionError")):
        raise RuntimeError(outcome.error)
    why = outcome.error
    if outcome.timed_out:
        why += ": the filesystem may be dead"
    words = f"{folder_of(venv)}: {why}"
    return {
        "checks": [check(name, "unknown", words) for name in ("python", "origin", "modules")],
        "facts": {},
    }
