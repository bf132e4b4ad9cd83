"""What may be said of a package by itself: of a verdict on where it comes from, and of what is there already. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dflash_console.copies import Entry, Look, TargetPlan
from dflash_console.verdict import Verdict

__all__ = ["importable", "is_there_already", "of_package"]

SUFFIXES = (".py", ".so")


def of_package(verdict: Verdict) -> Verdict:
    """A verdict without what it says of services: what a unit starts, or runs since before a copy, is no matter of the
    package that lies there, and no copy could ever mend it."""
    checks = tuple(check for check in verdict.checks if check.kind != "service")
    return msgspec.structs.replace(verdict, checks=checks)


def is_there_already(source: Look | None, target: TargetPlan) -> bool:
    """Whether a copy would lay nothing but what lies there: the same files, known to pip by the same folders."""
    look, difference = target.look, target.difference
    if source is None or look is None or difference is None or look.state != "whole":
        return False
    is_same = not (difference.added or difference.changed or difference.removed)
    # What a listing does not hold is a difference all the same: a copy takes it away.
    return is_same and not look.strange and sorted(look.dist_infos) == sorted(source.dist_infos)


def importable(
    groups: Sequence[list[str]], entries: Iterable[Entry], source: Verdict | None
) -> tuple[list[list[str]], str]:
    """Which modules (each a list of alternatives) a package can be expected to import with that is not ready at its
    source, and what has to be said of the others; empty when it is all of them."""
    there = _modules(entries)
    found = [group for group in groups if any(module in there for module in group)]
    lacking = [" or ".join(group) for group in groups if group not in found]
    if lacking:
        what = ", ".join(lacking)
        return found, f"the import check was done without {what}: the source does not have it"
    states = {check.name: check.state for check in source.checks} if source is not None else {}
    if groups and states.get("find_spec") == "fail":
        return [], "the import check was of the package alone: its modules are not found at the source either"
    return found, ""


def _modules(entries: Iterable[Entry]) -> frozenset[str]:
    """The names of all modules among the files of a package."""
    names = set()
    for entry in entries:
        folder, _, name = entry.path.rpartition("/")
        if name.endswith(SUFFIXES) and ".dist-info" not in folder:
            stem = name.partition(".")[0]
            parts = [*folder.split("/"), *([] if stem == "__init__" else [stem])]
            names.add(".".join(part for part in parts if part))
    return frozenset(names)
