"""What speaks for and against a copy to one environment, from what was seen of both sides. Pure.

Each check's detail says what, where, why, and what to do next. A `fail` forbids the copy; what an
operator may decide is a `Need`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from dflash_console.config import HostConfig
from dflash_console.copies import Entry, Look, Need, Side
from dflash_console.operations.ground import BLOCK, counted, disk_checks, few, is_swap_unsure, use_checks
from dflash_console.verdict import Check, CheckState, Verdict

__all__ = ["Question", "beside", "needs_of", "preflight", "roll_back_checks"]

SHOWN = 3


class Question(msgspec.Struct, frozen=True):
    """All that is known before a copy to one environment."""

    source: Side
    source_look: Look
    entries: Sequence[Entry]
    """Of the source."""
    verdict: Verdict | None
    """On the source."""
    side: Side
    look: Look
    """Of the target."""
    host: HostConfig
    units: tuple[str, ...] = ()
    """Active units on the target that run from its environment."""
    pins: Check | None = None
    """What the target's agent says of the source's requirements; None when it could not be asked."""
    package: str = "sglang"
    is_proving: bool = False
    """Whether the verdict is still to come."""


def preflight(question: Question) -> tuple[Check, ...]:
    """All checks, in the order in which they are shown."""
    look = question.look
    return (
        _source(question),
        _names(question),
        _role(question.host),
        _place(question),
        _editable(question),
        _versions(question),
        _compiled(question),
        _pins(question),
        *_disk(question),
        *use_checks(question.side, look, question.units),
    )


def needs_of(
    side: Side,
    host: HostConfig,
    look: Look,
    checks: Iterable[Check],
    *,
    verdict: Verdict | None,
    source: Side | None,
) -> tuple[Need, ...]:
    """What needs a yes of its own. `source` and its `verdict` are None for a rollback."""
    states = {check.name: check for check in checks}
    needs = []
    if host.role == "source":
        what = "its package is replaced" if source is not None else "its package is put back to an older one"
        needs.append(Need("onto_source", f"{side.host} has the role source: {what}"))
    if states["importers"].state == "warn":
        needs.append(Need("running", states["importers"].detail))
    if source is not None and states["source"].state == "warn":
        needs.append(Need("unverified", states["source"].detail))
    if "versions" in states and states["versions"].state == "warn":
        needs.append(Need("python", states["versions"].detail))
    if is_swap_unsure(look):
        needs.append(Need("warned", states["filesystem"].detail))
    if look.layer != "own":
        needs.append(Need("layer", states["filesystem"].detail))
    if host.production:
        needs.append(Need("production", f"{side.host} is a production host: type its name"))
    return tuple(needs)


def roll_back_checks(
    side: Side, host: HostConfig, look: Look, units: tuple[str, ...], backup: str
) -> tuple[Check, ...]:
    """The checks that a rollback needs; `backup` empty for the newest that a copy replaced."""
    return (
        _role(host),
        _backup(side, look, backup),
        *disk_checks(side, look, 0, 0),
        *use_checks(side, look, units),
    )


def beside(question: Question) -> tuple[str, ...]:
    """What goes along with the package, and what goes away with the old one."""
    ours, theirs = question.source_look.dist_infos, question.look.dist_infos
    lines = [f"copied beside it: {name} (RECORD keeps only what is copied)" for name in ours]
    lines += [f"taken away with the old one: {name}" for name in theirs if name not in ours]
    return (*lines, "dependencies are not copied")


# ---- the source


def _source(question: Question) -> Check:
    where, verdict = question.source, question.verdict
    if question.source_look.lock is not None:
        holder = question.source_look.lock
        return Check(
            "source",
            "fail",
            f"{where} is just being changed: {holder.what or 'a copy'} by {holder.by}; wait for it",
        )
    if question.source_look.unsettled is not None:
        left = question.source_look.unsettled
        return Check(
            "source",
            "fail",
            f"{where}: {left.what} was not brought to its end ({left.step}; {left.outlook}): settle it first, with a "
            "copy onto it or a rollback there",
        )
    look = question.source_look
    doubts = []
    if verdict is None and not question.is_proving:
        doubts.append("could not be verified: verify it first (v)")
    elif verdict is not None and not verdict.is_ready:
        reasons = "; ".join(f"{check.name}: {check.detail}" for check in verdict.reasons[:SHOWN])
        doubts.append(f"is not ready itself: {reasons or 'checks are missing'}")
    if look.restless:
        doubts.append(f"changed while it was read ({few(look.restless)}): plan again when nobody works on it")
    if doubts:
        return Check("source", "warn", f"{where} {'; and it '.join(doubts)}"[:2000], look.restless[:256])
    what = f"{where}: {look.version or 'a package'}, {counted(look.files, 'file')}"
    if verdict is None:
        return Check("source", "unknown", f"{what}: it is still being verified, nothing is swapped before")
    what += ", verified"
    if verdict.warnings:
        names = ", ".join(check.name for check in verdict.warnings[:SHOWN])
        what += f" ({counted(len(verdict.warnings), 'warning')}: {names})"
    return Check("source", "pass", f"{what}; nothing changed while it was read")


def _names(question: Question) -> Check:
    look, where = question.source_look, question.source
    if look.strange:
        return Check(
            "names",
            "fail",
            f"{where} holds what can't be copied: {few(look.strange)}; remove or rename it there",
            look.strange[:256],
        )
    if len(look.dist_infos) > 1:
        return Check(
            "names",
            "fail",
            f"{where} has several dist-infos ({few(look.dist_infos)}), and pip takes any of them: remove the wrong one "
            "there",
            look.dist_infos[:256],
        )
    if look.followed:
        return Check(
            "names",
            "warn",
            f"links that lead out of the package are copied as what they lead to: {few(look.followed)}",
            look.followed[:256],
        )
    return Check("names", "pass", "every name and link can be copied as it is")


# ---- the target's place


def _role(host: HostConfig) -> Check:
    if host.role == "observe":
        what = (
            f'{host.name} is only observed: nothing is changed there; to allow it, write role = "target" in '
        )
        return Check("role", "fail", f"{what}[hosts.{host.name}] of the config")
    return Check("role", "pass", f"{host.name} has the role {host.role}")


def _place(question: Question) -> Check:
    look, side, name = question.look, question.side, question.package
    words: dict[str, tuple[CheckState, str]] = {
        "whole": (
            "pass",
            f"{look.site}/{name}: {look.version or 'a package'} is replaced and kept as a backup",
        ),
        "absent": ("pass", f"{look.site}/{name}: nothing is there yet"),
        "namespace": (
            "warn",
            f"{look.site}/{name} has no __init__.py (leftovers of another copy or uninstall); it is replaced and kept "
            "as a backup",
        ),
        "module": (
            "fail",
            f"{look.site} has a single file {name}.py where the package would be: remove it first",
        ),
        "outside": (
            "fail",
            f"{side}: the package comes from another place than {look.site}: remove what leads there first",
        ),
        "broken": (
            "fail",
            f"{side} can't be used: {look.problem or 'no environment'}; name another with HOST:VENV",
        ),
        "editable": ("pass", f"{look.site}/{name}"),
    }
    state, detail = words[look.state]
    if look.problem and look.state not in ("whole", "absent", "broken"):
        detail += f" ({look.problem})"
    return Check("place", state, detail)


def _editable(question: Question) -> Check:
    if question.look.state == "editable":
        why = f": {question.look.problem}" if question.look.problem else ""
        return Check(
            "editable",
            "fail",
            f"{question.side} has an editable install{why}; a package in site-packages would hide it or be hidden: "
            "uninstall it there, or change its checkout",
        )
    return Check("editable", "pass", "no editable install")


def _versions(question: Question) -> Check:
    ours, theirs = question.source_look.python, question.look.python
    if not ours or not theirs:
        side = question.side if not theirs else question.source
        words = f"the Python version of {side} could not be told: whether it is the same on both sides is not known"
        return Check("versions", "warn", words)
    if _minor(ours) == _minor(theirs):
        return Check("versions", "pass", f"Python {theirs} there, {ours} at the source")
    return Check(
        "versions",
        "warn",
        f"Python {theirs} on {question.side}, {ours} at the source: it was proved with another Python, and may have "
        "what this one does not know",
    )


def _compiled(question: Question) -> Check:
    ours, theirs = question.source_look.python, question.look.python
    bytecode = [entry.path for entry in question.entries if entry.path.endswith(".pyc")]
    if bytecode and ours and theirs and _minor(ours) != _minor(theirs):
        return Check(
            "compiled",
            "fail",
            f"{counted(len(bytecode), 'module')} without source, made for Python {ours}; Python {theirs} on "
            f"{question.side} can't load them: give the target the source's Python, or copy from another one",
            tuple(bytecode[:256]),
        )
    return _compiled_files(question)


def _compiled_files(question: Question) -> Check:
    files = [entry.path for entry in question.entries if entry.path.endswith(".so")]
    if not files:
        return Check("compiled", "pass", "no compiled files")
    ours, look, side = question.source_look, question.look, question.side
    for path in files:
        tag = re.search(r"\.((?:cpython|pypy)[^/.]*)\.so$", path)
        if tag and look.soabi and tag[1] != look.soabi:
            made_for = f"{path.rpartition('/')[2]} is made for {tag[1]}"
            if ours.soabi and tag[1] != ours.soabi:
                continue  # it serves nobody at the source either
            return Check(
                "compiled",
                "fail",
                f"{made_for}, {side} loads {look.soabi}: give the target the source's Python, or copy from another one",
                tuple(files[:256]),
            )
    if ours.soabi and look.soabi and _platform(ours.soabi) != _platform(look.soabi):
        return Check(
            "compiled",
            "fail",
            f"{counted(len(files), 'file')} compiled for {_platform(ours.soabi)}, {side} is {_platform(look.soabi)}",
            tuple(files[:256]),
        )
    if not look.soabi or (ours.glibc and not look.glibc):
        return Check(
            "compiled",
            "warn",
            f"{counted(len(files), 'compiled file')}; what {side} can load could not be told",
            tuple(files[:256]),
        )
    if ours.glibc and _numbers(look.glibc) < _numbers(ours.glibc):
        return Check(
            "compiled",
            "warn",
            f"{side} has glibc {look.glibc}, the source {ours.glibc}: a compiled file may need the newer one; "
            "the import check will tell",
            tuple(files[:256]),
        )
    return Check(
        "compiled",
        "pass",
        f"{counted(len(files), 'compiled file')} for {look.soabi}, glibc {look.glibc or 'unknown'}",
    )


def _pins(question: Question) -> Check:
    told = question.pins
    if told is None:
        return Check("pins", "warn", f"{question.side} could not be asked for what the package requires")
    if told.state == "pass":
        return Check("pins", "pass", told.detail, told.evidence)
    # Never a failure here: dependencies are another matter than the copy, and the deep verification weighs them.
    return Check("pins", "warn", told.detail, told.evidence)


def _disk(question: Question) -> tuple[Check, ...]:
    entries = question.entries
    folders = len({entry.path.rpartition("/")[0] for entry in entries})
    size = sum(entry.size for entry in entries) + BLOCK * (len(entries) + folders)
    return disk_checks(question.side, question.look, size, len(entries) + folders)


def _backup(side: Side, look: Look, backup: str) -> Check:
    found = [each for each in look.backups if (each.id == backup if backup else each.reason == "copy")]
    if look.state == "broken":
        return Check("backup", "fail", f"{side} can't be used: {look.problem or 'no environment'}")
    if not found and look.unsettled is not None and not backup:
        words = f"{side} has none that a copy has left; what was broken off there is settled first, and may leave one"
        return Check("backup", "warn", words)
    if not look.backups:
        return Check("backup", "fail", f"no backup is kept on {side}: there is nothing to put back")
    if not found:
        what = f"no backup {backup}" if backup else "no backup that a copy has left"
        have = ", ".join(each.id for each in look.backups[:SHOWN]) or "none"
        return Check("backup", "fail", f"{side} has {what}; there are: {have}")
    chosen = found[0]
    return Check(
        "backup", "pass", f"{chosen.id}: {chosen.version or 'no package'}, {counted(chosen.files, 'file')}"
    )


# ---- words


def _minor(version: str) -> tuple[int, ...]:
    return _numbers(version)[:2]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d{1,9}", version)[:3])


def _platform(soabi: str) -> str:
    """`x86_64-linux-gnu` of `cpython-311-x86_64-linux-gnu`."""
    return "-".join(soabi.split("-")[2:])
