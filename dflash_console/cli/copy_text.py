"""The text of `copy` and `rollback` for people: the plan, what is in its way, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from dflash_console.cli.consent import flag_of
from dflash_console.cli.copy_json import Result
from dflash_console.cli.difference_text import counts, folder_lines, look_words
from dflash_console.cli.progress import STATE_WORDS
from dflash_console.cli.status_text import Terminal, painted
from dflash_console.cli.verify_text import check_lines
from dflash_console.copies import Backup, CopyPlan, Look, TargetPlan, TargetRun
from dflash_console.operations.ground import few
from dflash_console.ui.drawing.line import Ink, Line, Row, wrap
from dflash_console.ui.drawing.verdicts import verdict_words
from dflash_console.ui.drawing.words import plural, size, span
from dflash_console.verdict import Verdict

__all__ = ["backups_text", "plan_text", "results_text", "rollback_text", "summary"]

LABEL = 8
"""Columns of the words at the left."""
MARKS: dict[str, tuple[str, Ink]] = {
    "planned": ("○", "dim"),
    "done": ("✓", "ok"),
    "undone": ("✗", "bad"),
    "refused": ("✗", "warn"),
    "failed": ("✗", "bad"),
    "cancelled": ("✗", "warn"),
    "unreachable": ("✗", "bad"),
}


def _text(lines: Iterable[Line], to: Terminal) -> str:
    return "".join(painted(line, to) + "\n" for line in lines)


def _labelled(label: str, text: str, width: int, ink: Ink = "text") -> Iterable[Line]:
    first, *rest = wrap(text, max(20, width - LABEL)) or [""]
    yield Row(width).field(label, LABEL, "label").add(first, ink).line()
    for more in rest:
        yield Row(width).add(" " * LABEL).add(more, ink).line()


# ---- what would be done


def plan_text(plan: CopyPlan, package: str, to: Terminal) -> str:
    """The source, then each target with its difference, its preflight and what it needs."""
    return _text(_plan(plan, package, to.width), to)


def _plan(plan: CopyPlan, package: str, width: int) -> Iterable[Line]:
    yield from _labelled("from", f"{plan.source}  {look_words(plan.look, package)}", width, "strong")
    if plan.problem:
        yield from _labelled("", plan.problem, width, "bad")
    if plan.look is not None and plan.look.restless:
        yield from _labelled("", f"changed while it was read: {few(plan.look.restless)}", width, "warn")
    if plan.verdict is not None:
        words, ink = verdict_words(plan.verdict)
        yield Row(width).add(" " * LABEL).add(words, ink).line()
        for check in plan.verdict.reasons:
            yield from check_lines(check, width, LABEL)
    for target in plan.targets:
        yield from _target(target, package, width)


def _target(plan: TargetPlan, package: str, width: int) -> Iterable[Line]:
    yield from _labelled("to", f"{plan.side}  {look_words(plan.look, package)}", width, "strong")
    if plan.problem:
        yield from _labelled("", plan.problem, width, "bad")
    difference = plan.difference
    if difference is not None:
        words = counts(difference.added, difference.changed, difference.removed)
        yield from _labelled("", f"{words}, {difference.same} the same; {size(plan.bytes)} to send", width)
        yield from folder_lines(difference.folders, width, LABEL + 2, difference.more_folders)
    yield from _standing(plan, width)


def _standing(plan: TargetPlan, width: int) -> Iterable[Line]:
    """What is the same for a copy and a rollback."""
    for number, text in enumerate(plan.beside):
        yield from _labelled("" if number else "also", text, width)
    if plan.look is not None and plan.look.unsettled is not None:
        found = plan.look.unsettled
        yield from _labelled(
            "found", f"{found.what}, broken off at `{found.step}`: {found.outlook}", width, "warn"
        )
    if passed := [check.name for check in plan.checks if check.state == "pass"]:
        yield from _labelled("passed", ", ".join(passed), width, "dim")
    for check in plan.checks:
        if check.state != "pass":
            yield from check_lines(check, width, LABEL)
    for need in plan.needs:
        yield from _labelled("needs", f"{flag_of(need, plan.side.host)}: {need.text}", width, "warn")


def rollback_text(plan: TargetPlan, backup: Backup | None, package: str, to: Terminal) -> str:
    """What is there and what would come in its place."""

    def lines() -> Iterable[Line]:
        yield from _labelled("now", f"{plan.side}  {look_words(plan.look, package)}", to.width, "strong")
        if plan.problem:
            yield from _labelled("", plan.problem, to.width, "bad")
        if backup is not None:
            yield from _labelled("then", backup_words(backup, package), to.width, "strong")
        yield from _standing(plan, to.width)

    return _text(lines(), to)


def backups_text(look: Look, package: str, to: Terminal) -> str:
    """A line a backup, newest first."""
    lines = (
        line for backup in look.backups for line in _labelled("", backup_words(backup, package), to.width)
    )
    return _text(lines, to)


def backup_words(backup: Backup, package: str) -> str:
    """`20260131T031244-1a2b  sglang 0.5.9, 3000 files, 60.1M, replaced 3 h ago by a copy`."""
    what = f"{package} {backup.version}".rstrip() if backup.version or backup.files else f"no {package}"
    ago = span(time.time() - backup.at)
    words = f"{backup.id}  {what}, {plural(backup.files, 'file')}, {size(backup.size)}"
    words += f", replaced {ago} ago by a {backup.reason}"
    if backup.provenance is not None:
        words += f", had come from {backup.provenance.from_host}:{backup.provenance.from_venv}"
    return words + (f", in use by {backup.in_use}" if backup.in_use else "")


# ---- what was done


def results_text(results: Sequence[Result], to: Terminal) -> str:
    """A block a target."""
    return _text((line for result in results for line in _result(result, to.width)), to)


def _result(result: Result, width: int) -> Iterable[Line]:
    mark, ink = MARKS[result.state]
    run = result.run
    row = Row(width).add(f"{mark} ", ink).add(str(result.side), "strong").add("  ")
    yield row.add(STATE_WORDS[run.state] if run is not None else "planned", ink).line()
    if run is None:
        return
    detail = run.detail or result.plan.problem
    for text in (detail, _account(run), *run.notes):
        if text:
            for line in wrap(text, max(20, width - 2)):
                yield Row(width).add("  ").add(line).line()
    for check in run.checks:
        if check.state != "pass":
            yield from check_lines(check, width, 2)
    if run.verdict is not None:
        yield from _verdict(run.verdict, width)


def _account(run: TargetRun) -> str:
    """`12 added, 3 changed; 12.3M sent; in 3.2 s; swap: exchange; backup ID`."""
    if run.state not in ("done", "undone"):
        return ""
    words = []
    if run.added or run.changed or run.removed:
        words.append(counts(run.added, run.changed, run.removed))
    words += [f"{size(run.bytes_sent)} sent"] if run.bytes_sent else []
    words.append(f"in {run.seconds:.1f} s")
    words += [f"swap: {run.swap}"] if run.swap else []
    words += [f"backup {run.backup}"] if run.backup else []
    return "; ".join(words)


def _verdict(verdict: Verdict, width: int) -> Iterable[Line]:
    words, ink = verdict_words(verdict)
    yield Row(width).add("  ").add(words, ink).line()
    for check in verdict.checks:
        if check.state == "fail" or check in verdict.reasons:
            yield from check_lines(check, width, 2)


def summary(plan: TargetPlan) -> str:
    """The plan for one target in one line."""
    difference = plan.difference
    if plan.problem or difference is None:
        return f"{plan.side}: {plan.problem or 'not looked at'}"
    words = counts(difference.added, difference.changed, difference.removed)
    return f"{plan.side}: {words}; {size(plan.bytes)} to send"
