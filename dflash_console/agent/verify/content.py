"""Checks of what the package's files hold: against RECORD, against their bytecode, and how they are linked.

The dear part of a verification: the agent keeps what it says until a file changes.
"""

from __future__ import annotations

import os
import re

from .bytecode import Compiled, compile_all, stale_candidates
from .checks import check, counted, first_few
from .record import Comparison, Record, compare, is_code, read_record

__all__ = ["check_contents", "check_version"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .ground import Ground
    from .tree import Tree

COMPILE_LIMIT = 400
"""Changed files up to which each is compiled to tell a patch from damage."""
BURST = 60_000_000_000
"""Nanoseconds within which one installation unpacks its files."""
STRAY = r"[-_. ~]*(bak|back|backup|old|orig|original|saved?|copy|tmp|temp|prev|before|broken|new|\d)"
"""How a folder that somebody put aside goes on after the package's name."""


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


def check_contents(ground: Ground, tree: Tree, cells: dict[str, Any], limit: float) -> list[dict[str, Any]]:
    """The checks `record`, `leftovers`, `bytecode` and `links`. `limit`: seconds for the interpreter that
    compiles. Raises OSError when the disk fails."""
    version, installed = cells["version"], cells["dist_version"]
    is_split = isinstance(version, str) and isinstance(installed, str) and version != installed
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
        record, found = "RECORD lists none of the files that are there", None
    same = set(found.same) if found is not None else set()
    prefix = os.path.relpath(tree.root, ground.home) + "/" if tree.root != ground.home else ""
    candidates = stale_candidates(
        ground.interpreter, tree, {name for name in tree.files if prefix + name in same}
    )
    touched: list[str] = []
    if found is not None and not is_split:
        sources = (name for name in found.changed + found.extra if name.endswith(".py"))
        touched = [f"{ground.home}/{name}" for name in sources if name.startswith(prefix)]
    compiled = compile_all(ground.python(), candidates, touched[:COMPILE_LIMIT], limit)
    checks = []
    if found is None:
        checks.append(check("record", "unknown", str(record)))
    elif is_split:
        checks.append(_split_record(found, version, installed))
    else:
        checks.append(_record(record, found, tree, prefix, compiled))
    checks.append(_leftovers(ground, tree, found if is_split else None, version, installed))
    checks.append(_bytecode(tree, candidates, compiled))
    checks.append(_links(tree, prefix, found))
    return checks


# ---- record


def _record(
    record: Record | str, found: Comparison, tree: Tree, prefix: str, compiled: Compiled
) -> dict[str, Any]:
    extra = [name for name in found.extra if is_code(name)]
    # Others may share a folder beside the package: sglang's wheels bring a `tools` of their own.
    lost = [name for name in found.missing if is_code(name) and name.startswith(prefix)]
    parts = [
        ("missing", found.missing),
        ("changed", found.changed),
        ("unreadable", found.unreadable),
        ("extra", extra),
    ]
    evidence = [f"{word}: {name}" for word, names in parts for name in names]
    evidence += [f"{path} does not compile: {words}" for path, words in compiled.broken.items()]
    others = len(found.extra) - len(extra)
    if others:
        evidence.append(
            f"and {counted(others, 'file')} beside them that {'is' if others == 1 else 'are'} no code"
        )
    strange = record.strange if isinstance(record, Record) else []
    evidence += [f"RECORD leads out of the environment: {path}" for path in strange]
    evidence += [f"may not be read: {tree.root}/{name}" for name in tree.unreadable]
    told = [f"{len(names):,} {word} ({first_few(names, 2)})" for word, names in parts if names]
    if tree.unreadable:
        told.append(
            f"{counted(len(tree.unreadable), 'folder')} may not be read ({first_few(tree.unreadable, 2)})"
        )
    if strange:
        told.append(f"RECORD names {counted(len(strange), 'path')} outside the environment")
    if compiled.broken:
        path, words = next(iter(compiled.broken.items()))
        detail = f"damaged: {path} does not compile: {words}; {', '.join(told)}"
        return check("record", "fail", detail, evidence)
    if lost:
        return check("record", "fail", ", ".join(told), evidence)
    if found.unhashed:
        words = (
            f"RECORD has no hash for {counted(len(found.unhashed), 'file')} ({first_few(found.unhashed, 2)})"
        )
        return check("record", "unknown", ", ".join([words, *told]), evidence)
    if told:
        is_patch = bool(found.changed or extra)
        return check(
            "record", "warn", ", ".join(told) + (": patched or damaged" if is_patch else ""), evidence
        )
    if tree.is_cut:
        return check("record", "unknown", f"more than {len(tree.files):,} files")
    return check("record", "pass", f"{counted(len(found.same), 'file')} as installed", evidence)


def _split_record(found: Comparison, version: str, installed: str) -> dict[str, Any]:
    counts = f"{len(found.same):,} as in {installed}, {len(found.changed):,} changed, "
    counts += f"{len(found.missing):,} missing, {len(found.extra):,} extra"
    detail = f"RECORD is of {installed} and can't vouch for a tree of {version}"
    return check("record", "unknown", detail, [counts])


# ---- leftovers


def _leftovers(
    ground: Ground, tree: Tree, split: Comparison | None, version: object, installed: object
) -> dict[str, Any]:
    stray = _stray(ground)
    left: list[str] | None = []
    if split is not None:
        left = _left_below(ground, tree, split)
    told = []
    if left:
        told.append(
            f"{counted(len(left), 'file')} of {installed} below the tree of {version}: {first_few(left)}"
        )
    if stray:
        told.append(f"beside the package: {first_few(stray)}")
    evidence = [f"{ground.home}/{name}" for name in (left or []) + stray]
    if told:
        return check("leftovers", "warn", "; ".join(told), evidence)
    if left is None:
        return check(
            "leftovers", "unknown", f"files of {installed} can't be told from copied ones by their times"
        )
    return check("leftovers", "pass", "none")


def _left_below(ground: Ground, tree: Tree, found: Comparison) -> list[str] | None:
    """Code that the old RECORD lists, unchanged, and that was there before the copy; None when times don't
    tell.

    The copy began when the first file that differs came; the installation ended when RECORD was written.
    """
    vouching = ground.vouching
    prefix = os.path.relpath(tree.root, ground.home) + "/"
    if vouching is None:
        return None
    try:
        written, metadata = os.stat(f"{vouching.path}/RECORD"), os.stat(f"{vouching.path}/METADATA")
    except OSError:
        return None
    ended = written.st_ctime_ns if written.st_nlink == 1 else written.st_mtime_ns
    copied = [
        tree.files[name[len(prefix) :]] for name in found.changed + found.extra if name.startswith(prefix)
    ]
    began = min((seen.ctime for seen in copied if seen.ctime > ended), default=None)
    if began is None:
        return None
    left = []
    for name in found.same:
        seen = tree.files.get(name[len(prefix) :]) if name.startswith(prefix) and is_code(name) else None
        if seen is None:
            continue
        # A hard link elsewhere changes the ctime, so of those the time at which they were unpacked counts.
        is_old = seen.ctime < (ended + began) / 2
        if seen.links > 1:
            is_old = abs(seen.mtime - metadata.st_mtime_ns) < BURST
        if is_old:
            left.append(name)
    return left


def _stray(ground: Ground) -> list[str]:
    """What pip leaves of the package when it fails, and copies that somebody put beside it."""
    name = re.escape(ground.package)
    put_aside = re.compile(f"{name}{STRAY}.*", re.IGNORECASE | re.DOTALL)
    failed = re.compile(f"~+-?{re.escape(ground.package[1:])}([-.].*)?", re.IGNORECASE | re.DOTALL)
    known = re.compile(r".*\.(dist-info|egg-info|libs|data|pth|egg-link)", re.DOTALL)
    return [
        item
        for item in ground.look.names(ground.home)
        if failed.fullmatch(item) or (put_aside.fullmatch(item) and not known.fullmatch(item))
    ]


# ---- bytecode and links


def _bytecode(tree: Tree, candidates: list[tuple[str, str]], compiled: Compiled) -> dict[str, Any]:
    if compiled.stale:
        names = [os.path.relpath(path, tree.root) for path in compiled.stale]
        detail = f"Python would run old code: the bytecode of {first_few(names)} is not of its source"
        return check("bytecode", "fail", detail + "; delete __pycache__", compiled.stale)
    left = len(candidates) - compiled.compared
    if candidates and left > 0:
        why = compiled.problem or "there was no time for more"
        words = (
            f"{left:,} of {counted(len(candidates), 'source')} newer than the bytecode not compared: {why}"
        )
        return check("bytecode", "unknown", words)
    words = (
        f"{counted(len(candidates), 'source')} newer than the bytecode, all alike"
        if candidates
        else "none stale"
    )
    return check("bytecode", "pass", words)


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
