"""Checks of what the package's files hold: against RECORD, against their bytecode, and how they are linked.

The dear part of a verification: the agent keeps what it says until a file changes.
"""

from __future__ import annotations

import os

from .bytecode import find_suspects
from .checks import check, counted, first_few
from .compiling import Chain, Compiled, compile_all
from .leftovers import check_leftovers
from .record import Record, compare, read_record
from .record_check import is_test, unvouched, vouched
from .standing import Standing

__all__ = ["check_contents", "check_version"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .bytecode import Pair
    from .ground import Ground
    from .record import Comparison
    from .tree import Tree

ENTRIES = (
    "launch_server.py",
    "srt/server_args.py",
    "srt/entrypoints/http_server.py",
    "srt/entrypoints/engine.py",
    "srt/managers/scheduler.py",
    "srt/managers/tokenizer_manager.py",
    "srt/managers/detokenizer_manager.py",
    "srt/model_executor/model_runner.py",
)
"""What a server of sglang's imports once it runs, mostly within functions."""


def check_version(ground: Ground, cells: dict[str, Any]) -> dict[str, Any]:
    """The tree's version against that of its dist-info."""
    version, installed = cells["version"], cells["dist_version"]
    places = [ground.where, *(item.path for item in ground.installed)]
    if isinstance(version, dict):
        return check("version", "unknown", f"the tree's is not told: {version['detail']}", places)
    if isinstance(installed, dict):
        if installed["missing"] == "not_found":
            return check("version", "warn", f"tree {version}, {installed['detail']}: pip does not know of it")
        return check("version", "warn", f"tree {version}, dist-info {installed['detail']}", places)
    if version == installed:
        return check("version", "pass", version)
    how = "the checkout was moved since" if cells["kind"] == "editable" else "the tree was copied over"
    return check("version", "warn", f"tree {version}, dist-info {installed}: {how}", places)


def check_contents(
    ground: Ground,
    tree: Tree,
    cells: dict[str, Any],
    modules: list[list[str]],
    limit: float,
    brief: float | None,
    earlier: dict[str, Any],
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The checks `record`, `leftovers`, `bytecode` and `links`, and how far the interpreter came that compiles, to go
    on from the next time (`earlier`); empty when it has done all.

    `limit`: seconds for that interpreter; `brief`: fewer, when there are to be answers at once. Raises OSError when
    the disk fails.
    """
    version, installed = cells["version"], cells["dist_version"]
    is_split = isinstance(version, str) and isinstance(installed, str) and version != installed
    record, found = _compared(ground, tree, cells)
    prefix = os.path.relpath(tree.root, ground.home) + "/" if tree.root != ground.home else ""
    known = (
        {name[len(prefix) :] for name in found.same if name.startswith(prefix)}
        if found is not None
        else set()
    )
    suspects = find_suspects(ground.interpreter, tree, known)
    has_voucher = found is not None and not is_split and not found.unhashed
    standing = Standing(ground.interpreter, tree)
    sources = [name for name in tree.code if name.endswith(".py") and name not in known]
    sources += [name for name in standing.bytecode_alone() if name not in known]
    sources.sort(key=_rank)
    paths = [f"{tree.root}/{name}" for name in sources]
    listed = _listed(ground, modules)
    starts = _starts(ground, listed) if ground.where else []
    if has_voucher and found is not None:
        # What it vouches for has all that it imports; a patch may be for another version.
        starts = [f"{ground.home}/{name}" for name in found.changed if _is_patch(name, prefix, tree)]
    chain = Chain(tree.root, ground.package, starts, is_whole=not has_voucher) if starts else None
    compiled = Compiled.again(earlier)
    compiled.is_brief = brief is not None and brief < limit
    seconds = limit if brief is None else min(brief, limit)
    compile_all(ground.python(), paths, suspects, chain, seconds, compiled)
    compiled.broken.update(standing.unloadable(known))
    if found is None or is_split:
        why = (
            str(record)
            if found is None
            else f"RECORD is of {installed} and can't vouch for a tree of {version}"
        )
        checks = [unvouched(why, tree, standing, known, found, compiled, len(paths))]
    else:
        vital = {*listed, *(f"{ground.home}/{name}" for name in found.changed)}
        checks = [vouched(record, found, tree, standing, prefix, compiled, len(paths), vital)]
    checks.append(check_leftovers(ground, tree, found if is_split else None, version, installed))
    checks.append(_bytecode(tree, suspects, compiled))
    checks.append(_links(tree, prefix, found))
    is_whole = (
        len(compiled.compiled) == len(paths)
        and len(compiled.compared) == len(suspects)
        and not compiled.waiting
    )
    return checks, {} if is_whole else compiled.kept()


def _compared(ground: Ground, tree: Tree, cells: dict[str, Any]) -> tuple[Record | str, Comparison | None]:
    """The RECORD, or why there is none, and how the files are against it."""
    vouching = ground.vouching
    record: Record | str = "no dist-info beside the package"
    if vouching is not None:
        record = read_record(vouching.path)
    elif cells["kind"] == "editable":
        record = "an editable install: its RECORD lists none of its files"
    elif ground.installed:
        record = f"{len(ground.installed)} dist-infos, or none beside the package"
    found = compare(record, tree) if isinstance(record, Record) else None
    if found is not None and not (found.same or found.changed or found.unhashed):
        return "RECORD lists none of the files that are there", None
    return record, found


def _is_patch(name: str, prefix: str, tree: Tree) -> bool:
    """Whether a changed file is a source of the package that a server may import."""
    inside = name[len(prefix) :]
    return bool(prefix) and name.startswith(prefix) and inside in tree.files and _is_source(inside)


def _is_source(name: str) -> bool:
    return name.endswith(".py") and not is_test(name)


def _rank(name: str) -> tuple[bool, int, str]:
    """What is imported early comes first: the deeper a module lies, the later, and tests never."""
    return is_test(name), name.count("/"), name


def _listed(ground: Ground, modules: list[list[str]]) -> list[str]:
    """The files of the package that the import of the listed modules runs for sure, those above them first."""
    names = [ground.package]
    for alternatives in modules:
        for name in alternatives:
            parts = name.split(".")
            names += [".".join(parts[:at]) for at in range(1, len(parts) + 1)]
    found = (ground.finder.find(name) for name in dict.fromkeys(names))
    origins = (str(item.origin) for item in found if item is not None and item.origin)
    return [origin for origin in origins if origin.startswith(f"{ground.where}/")]


def _starts(ground: Ground, listed: list[str]) -> list[str]:
    """The files at which an import of the package begins, as far as they are there."""
    entries = (f"{ground.where}/{name}" for name in ENTRIES)
    sources = (path for path in listed if path.endswith(".py"))
    return list(dict.fromkeys([*sources, *(path for path in entries if os.path.isfile(path))]))


# ---- bytecode and links


def _bytecode(tree: Tree, suspects: list[Pair], compiled: Compiled) -> dict[str, Any]:
    if compiled.stale:
        names = [_source_of(os.path.relpath(path, tree.root)) for path in compiled.stale]
        detail = f"Python would run old code: the bytecode of {first_few(names)} is not of its source"
        return check("bytecode", "fail", detail + "; delete __pycache__", compiled.stale)
    left = len(suspects) - len(compiled.compared)
    if left > 0:
        words = f"{left:,} of {counted(len(suspects), 'file')} of bytecode that may be of another source not compared"
        return check("bytecode", "unknown", f"{words}: {compiled.why_not}")
    if not suspects:
        return check("bytecode", "pass", "none stale")
    return check("bytecode", "pass", f"{counted(len(suspects), 'file')} compared with the source, all alike")


def _source_of(cached: str) -> str:
    """`srt/x.py`, and `srt/x.py (-O)` for the bytecode of an optimising Python."""
    stem, _, rest = os.path.basename(cached).partition(".cpython-")
    level = rest.partition(".opt-")[2][:1]
    source = os.path.join(os.path.dirname(os.path.dirname(cached)), f"{stem}.py")
    return f"{source} (-{'O' * int(level)})" if level.isdigit() else source


def _links(tree: Tree, prefix: str, found: Comparison | None) -> dict[str, Any]:
    linked = [name for name, seen in tree.files.items() if seen.links > 1]
    changed = set(found.changed if found is not None else ())
    shared = [name for name in linked if prefix + name in changed]
    if shared:
        detail = (
            f"{counted(len(shared), 'changed file')} hard-linked: another environment or uv's cache has the "
        )
        return check("links", "warn", f"{detail}change too: {first_few(shared)}", shared)
    told = []
    if linked:
        told.append(f"{counted(len(linked), 'file')} hard-linked, as uv does")
    if tree.links:
        told.append(f"{counted(len(tree.links), 'symbolic link')}")
    return check("links", "pass", ", ".join(told) or "no links", sorted(tree.links))
