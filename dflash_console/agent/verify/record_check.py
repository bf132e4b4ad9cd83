"""The check `record`: the package's files against the RECORD that vouches for them, or what is told without one."""

from __future__ import annotations

import os
import stat

from .checks import check, counted, first_few
from .record import Record, is_code

__all__ = ["is_test", "unvouched", "vouched"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .compiling import Compiled
    from .record import Comparison
    from .standing import Standing
    from .tree import Tree

TESTS = frozenset(["test", "tests", "testing", "benchmark", "benchmarks", "examples"])


def is_test(name: str) -> bool:
    """Whether a file of the package is of its tests, which no server imports."""
    return not TESTS.isdisjoint(name.split("/")[:-1]) or os.path.basename(name).startswith("test_")


def vouched(
    record: Record | str,
    found: Comparison,
    tree: Tree,
    standing: Standing,
    prefix: str,
    compiled: Compiled,
    sources: int,
    vital: set[str],
) -> dict[str, Any]:
    """The check where the RECORD is of the tree's version. `prefix`: of the package's files in the RECORD;
    `sources`: how many were to be compiled; `vital`: paths of files that matter though they are `extra`, or that the
    RECORD has otherwise. Any other file that does not compile is somebody's draft."""
    extra = [name for name in found.extra if is_code(name)]
    home = tree.root[: len(tree.root) - len(prefix)] if prefix else tree.root
    listed = [*tree.names, *(name[len(prefix) :] for name in found.missing if name.startswith(prefix))]
    inside = (name[len(prefix) :] for name in extra)
    before = [name for name in inside if standing.stands_before(name, listed)]
    vital = vital | {f"{tree.root}/{name}" for name in before}
    drafts = [path for path in compiled.broken if path not in vital]
    # Others may share a folder beside the package: sglang's wheels bring a `tools` of their own.
    lost = [
        name
        for name in found.missing
        if is_code(name) and name.startswith(prefix) and not standing.taken(name[len(prefix) :])
    ]
    emptied = _emptied(found, tree, prefix)
    blank = [prefix + name for name in before if _is_blank(tree, name)]
    parts = [
        ("missing", found.missing),
        ("emptied", emptied),
        ("empty in the place of another", blank),
        ("changed", [name for name in found.changed if name not in set(emptied)]),
        ("unreadable", found.unreadable),
        ("extra", [name for name in extra if name not in set(blank)]),
        (
            "extra that does not compile" if len(drafts) == 1 else "extra that do not compile",
            [os.path.relpath(path, home) for path in drafts],
        ),
    ]
    evidence = [f"{word}: {name}" for word, names in parts for name in names]
    evidence += _damage_lines(compiled)
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
    damage = _damage(compiled, vital)
    if damage:
        return check("record", "fail", "; ".join([damage, ", ".join(told)]), evidence)
    if lost or emptied or blank:
        return check("record", "fail", ", ".join(told), evidence)
    if found.unhashed:
        words = (
            f"RECORD has no hash for {counted(len(found.unhashed), 'file')} ({first_few(found.unhashed, 2)})"
        )
        return check("record", "unknown", ", ".join([words, *told]), evidence + _left(compiled, sources))
    if told:
        is_patch = bool(found.changed or extra)
        words = ", ".join([*told, *_left(compiled, sources)]) + (": patched or damaged" if is_patch else "")
        return check("record", "warn", words, evidence)
    if tree.is_cut:
        return check("record", "unknown", f"more than {len(tree.files):,} files")
    return check("record", "pass", f"{counted(len(found.same), 'file')} as installed", evidence)


def unvouched(
    why: str,
    tree: Tree,
    standing: Standing,
    known: set[str],
    found: Comparison | None,
    compiled: Compiled,
    sources: int,
) -> dict[str, Any]:
    """The check where no RECORD vouches, and `why`. `known`: files that are as another version's RECORD has them;
    `sources`: how many others were to be compiled."""
    blank = [name for name in tree.code if _is_blank(tree, name) and name not in known]
    no_library = [
        name
        for name in blank
        if standing.is_hiding(name) or (not name.endswith(".py") and not _has_other(tree, name))
    ]
    no_module = [
        name
        for name in blank
        if name.endswith(".py")
        and os.path.basename(name) != "__init__.py"
        and not is_test(name)
        and name not in no_library
    ]
    evidence = [f"empty: {tree.root}/{name}" for name in no_library + no_module] + _damage_lines(compiled)
    if found is not None:
        evidence.append(
            f"{len(found.same):,} as in it, {len(found.changed):,} changed, {len(found.missing):,} missing, "
            f"{len(found.extra):,} extra"
        )
    left = _left(compiled, sources)
    if sources and not left:
        evidence.append(f"{counted(len(compiled.compiled), 'file')} that it does not vouch for compiled")
    told = [
        part for part in (_damage(compiled), f"empty: {first_few(no_library)}" if no_library else "") if part
    ]
    if told:
        return check("record", "fail", f"{'; '.join(told)}; {why}", evidence + left)
    if no_module:
        return check("record", "warn", f"empty: {first_few(no_module)}; {why}", evidence + left)
    return check("record", "unknown", "; ".join([why, *left]), evidence)


def _emptied(found: Comparison, tree: Tree, prefix: str) -> list[str]:
    """Code of the package that has bytes by its RECORD and none on the disk."""
    inside = (name for name in found.changed if name.startswith(prefix) and is_code(name))
    return [name for name in inside if _is_blank(tree, name[len(prefix) :])]


def _is_blank(tree: Tree, name: str) -> bool:
    seen = tree.files.get(name)
    return seen is not None and seen.size == 0 and stat.S_ISREG(seen.mode)


def _has_other(tree: Tree, name: str) -> bool:
    """Whether a compiled module lies there once more, for another Python or for all."""
    stem = f"{name.partition('.')[0]}."
    return any(
        other != name and other.startswith(stem) and not _is_blank(tree, other)
        for other in tree.code
        if not other.endswith(".py")
    )


def _damage(compiled: Compiled, vital: set[str] | None = None) -> str:
    """The first damage, in words; of what does not compile only what is in `vital`, if that is given."""
    broken = {path: words for path, words in compiled.broken.items() if vital is None or path in vital}
    if broken:
        path, words = next(iter(broken.items()))
        more = f" and {len(broken) - 1:,} more" if len(broken) > 1 else ""
        return f"damaged: {_fault(path, words)}{more}"
    if compiled.absent:
        module, (path, line) = next(iter(compiled.absent.items()))
        more = f" and {len(compiled.absent) - 1:,} more" if len(compiled.absent) > 1 else ""
        return f"cut off: there is no {module}, which {path}:{line} imports{more}"
    return ""


def _fault(path: str, words: str) -> str:
    how = "does not compile" if path.endswith(".py") else "can't be loaded"
    return f"{path} {how}: {words}"


def _damage_lines(compiled: Compiled) -> list[str]:
    lines = [_fault(path, words) for path, words in compiled.broken.items()]
    return lines + [
        f"{path}:{line} imports {name}, which is not there" for name, (path, line) in compiled.absent.items()
    ]


def _left(compiled: Compiled, sources: int) -> list[str]:
    """What was not compiled of those that were to be."""
    left = sources - len(compiled.compiled)
    if left > 0 and compiled.is_brief and not compiled.problem:
        return [f"{counted(left, 'file')} not looked at yet: {compiled.why_not}"]
    if left > 0:
        return [f"{left:,} of {counted(sources, 'file')} not compiled: {compiled.why_not}"]
    if compiled.waiting:
        return [f"the imports of {counted(len(compiled.waiting), 'file')} not followed: {compiled.why_not}"]
    return []
