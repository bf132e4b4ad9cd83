"""What a copy would do, on one page: the source, then every target with its files, its preflight and its needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from dflash_console.copies import CopyPlan, Difference, Look, Need, Side, TargetPlan
from dflash_console.operations.ground import few
from dflash_console.ui.drawing.copying import counts, number
from dflash_console.ui.drawing.line import Line, Piece, Row, columns, cut, cut_middle, flow, safe, wrap
from dflash_console.ui.drawing.page import heading, long_pair
from dflash_console.ui.drawing.verdict_lines import ago, verdict_line
from dflash_console.ui.drawing.verdicts import CHECK_MARKS
from dflash_console.ui.drawing.words import plural, size, span
from dflash_console.ui.opened import Opens, Shown
from dflash_console.verdict import Check, CheckState, Verdict

__all__ = ["Away", "check_lines", "draw_making", "draw_plan", "look_words", "section"]

_FOLDERS = 5
"""Of a target, before the rest is only counted."""
_LEFT_OUT = 20

Away: TypeAlias = Mapping[str, str]
"""Hosts that do not answer now, with what is wrong."""


def section(side: Side, width: int, note: str) -> Line:
    """The heading of one end of a copy, whole where there is room."""
    return heading(cut_middle(safe(str(side)), max(10, width - columns(note) - 6)), width, note)


def draw_making(source: Side, targets: Sequence[Side], steps: str, width: int, away: Away) -> list[Shown]:
    """A plan while it is made: nothing is known yet but what it is about."""
    lines = [Shown(section(source, width, "source")), *_away(source, away, width), Shown(())]
    for target in targets:
        lines += [Shown(section(target, width, "target")), *_away(target, away, width)]
    lines.append(Shown(()))
    words = steps or "looking at both sides"
    for number_, part in enumerate(wrap(words, max(10, width - 5))):
        lines.append(Shown(Row(width).add("   ◌ " if number_ == 0 else "     ", "note").add(part).line()))
    lines.append(Shown(Row(width).add("     nothing on any host is changed by this", "dim").line()))
    return lines


def draw_plan(
    plan: CopyPlan,
    width: int,
    wall: float,
    *,
    away: Away,
    refused: Callable[[TargetPlan], str],
    package: str,
    left_out: Sequence[str] = (),
) -> list[Shown]:
    """All of the plan. `refused` gives why a target can't be copied to whatever one says yes to."""
    lines = _source(plan, width, wall, away, package)
    if len(plan.targets) > 1:
        lines += [Shown(()), *_summary(plan.targets, width, refused)]
    for words in left_out[:_LEFT_OUT]:
        lines += [Shown(line) for line in long_pair("left out", words, width, "warn")]
    if not plan.problem:
        for target in plan.targets:
            lines.append(Shown(()))
            is_short = len(plan.targets) > 1
            lines += _target(target, width, wall, away, refused(target), package, is_short=is_short)
    return lines


def look_words(look: Look, package: str) -> list[Piece]:
    """What is in an environment: `sglang 0.5.9`, files, size."""
    if look.state == "absent":
        return [(f"no {package} there", "dim")]
    if look.state == "broken" and not look.files:
        # Nothing could be counted.
        return [("broken", "warn")]
    pieces: list[Piece] = [(f"{package} {look.version or 'of no version'}", "strong")]
    if look.dist_version and look.dist_version != look.version:
        pieces.append((f"pip says {look.dist_version}", "warn"))
    if look.state != "whole":
        pieces.append((look.state, "warn"))
    return [*pieces, (f"{number(look.files)} files", "text"), (size(look.size), "text")]


def check_lines(
    checks: Sequence[Check], of: str, width: int, indent: int = 3, *, is_short: bool = False
) -> list[Shown]:
    """A line a check, what is wrong first; the whole evidence is behind each. In short, all that passed is one line."""
    if is_short:
        passed = [check for check in checks if check.state == "pass"]
        wrong = [check for check in checks if check.state != "pass"]
        checks = [*wrong, _all_passed(passed)] if len(passed) > 1 else checks
    rank = {"fail": 0, "unknown": 1, "warn": 2, "pass": 3}
    cells = min(14, max([4, *(columns(safe(check.name[:20])) for check in checks)]))
    lines = []
    for check in sorted(checks, key=lambda check: rank[check.state]):
        mark, ink = CHECK_MARKS[check.state]
        row = Row(width).add(" " * indent).add(f"{mark} {check.state:<7} ", ink)
        row.field(check.name, cells, "dim" if check.state == "pass" else "strong").add("  ")
        detail = " ".join(safe(check.detail).split())
        row.add(cut(detail, max(1, row.room)), "dim" if check.state == "pass" else "text")
        lines.append(Shown(row.line(), Opens("check", of, check.name, check)))
    return lines


def _all_passed(passed: Sequence[Check]) -> Check:
    evidence = [line for check in passed for line in (f"{check.name}: {check.detail}", *check.evidence)]
    return Check(
        plural(len(passed), "check"), "pass", ", ".join(check.name for check in passed), tuple(evidence)
    )


def _away(side: Side, away: Away, width: int) -> list[Shown]:
    why = away.get(side.host, "")
    return [Shown(line) for line in long_pair("✗", why, width, "bad", 3, 2, "bad", 3)] if why else []


# ---- the source


def _source(plan: CopyPlan, width: int, wall: float, away: Away, package: str) -> list[Shown]:
    lines = [Shown(section(plan.source, width, "source")), *_away(plan.source, away, width)]
    if plan.look is not None:
        facts = [*look_words(plan.look, package), (f"looked at {ago(wall - plan.at)}", "dim")]
        first, *others = facts
        lines += [Shown(row.line()) for row in flow(Row(width).add("   ").add(*first), others, 5)]
        for problem in (*plan.look.strange[:3], *plan.look.followed[:3]):
            lines += [Shown(line) for line in long_pair("!", problem, width, "warn", 3, 2, "warn", 2)]
        if paths := plan.look.restless:
            words = f"changed while it was read: {few(paths)}"
            lines += [Shown(line) for line in long_pair("!", words, width, "warn", 3, 2, "warn", 2)]
    if plan.verdict is not None:
        lines += _verdict(plan.verdict, width, wall)
    elif not plan.problem:
        lines.append(Shown(Row(width).add("   ? it could not be verified", "warn").line()))
    if plan.problem:
        lines += [Shown(line) for line in long_pair("✗", plan.problem, width, "bad", 3, 2, "bad")]
    return lines


def _verdict(verdict: Verdict, width: int, wall: float) -> list[Shown]:
    line = Row(width).add("   ").extend(verdict_line(verdict, width - 3, wall)).line()
    first = next(iter((*verdict.reasons, *verdict.warnings)), None)
    opens = Opens("check", f"{verdict.host}:{verdict.venv}", "verdict", first) if first is not None else None
    return [Shown(line, opens)]


# ---- the targets


def _summary(targets: Sequence[TargetPlan], width: int, refused: Callable[[TargetPlan], str]) -> list[Shown]:
    """A line a target, for several of them."""
    cells = min(24, max(columns(safe(target.side.host)) for target in targets))
    may = sum(not refused(target) for target in targets)
    words = f"{may} of {len(targets)} can be copied to"
    lines = [Shown(heading("TARGETS", width, words))]
    for target in targets:
        why = refused(target)
        mark, ink = _standing(target, why)
        row = Row(width).add(f"   {mark} ", ink).field(target.side.host, cells, "strong")
        if why:
            row.add("  ").add(cut(" ".join(safe(why).split()), max(1, row.room - 2)), "bad")
        else:
            for text, fact_ink in _facts(target):
                row.item(text, fact_ink)
            if warned := sum(check.state != "pass" for check in target.checks):
                row.item(f"{warned} to look at", "warn")
            if target.needs:
                row.item(f"{len(target.needs)} to say yes to", "warn")
        lines.append(Shown(row.line()))
    return lines


def _standing(target: TargetPlan, refused: str) -> Piece:
    if refused:
        return "✗", "bad"
    return ("!", "warn") if target.needs else ("✓", "ok")


def _facts(target: TargetPlan) -> list[Piece]:
    difference = target.difference
    if difference is None:
        return []
    if not (difference.added or difference.changed or difference.removed):
        return [("the same already: no file differs", "ok")]
    marks = counts(difference.added, difference.changed, difference.removed)
    return [*marks, (f"{number(difference.same)} stay", "dim"), (f"{size(target.bytes)} to send", "text")]


def _target(
    target: TargetPlan,
    width: int,
    wall: float,
    away: Away,
    refused: str,
    package: str,
    *,
    is_short: bool,
) -> list[Shown]:
    lines = [Shown(section(target.side, width, "target")), *_away(target.side, away, width)]
    if refused:
        lines += [Shown(line) for line in long_pair("✗", refused, width, "bad", 3, 2, "bad")]
    look = target.look
    if look is not None:
        facts = [*look_words(look, package), *_came(look, wall)]
        row = Row(width).add("   ").add("now " if look.state != "absent" else "", "dim").add(*facts[0])
        lines += [Shown(row.line()) for row in flow(row, facts[1:], 5)]
    if (facts_ := _facts(target)) and target.difference is not None:
        row = Row(width).add("   ").add(*facts_[0])
        lines += [Shown(row.line()) for row in flow(row, facts_[1:], 5)]
        lines += _folder_lines(target, target.difference, width)
    lines += _beside(target, width)
    lines += [Shown(line) for line in _needs(target.needs, width)]
    if target.checks:
        lines += [Shown(heading("   preflight", width, _tally(target.checks)))]
        lines += check_lines(target.checks, str(target.side), width, 5, is_short=is_short)
    return lines


def _came(look: Look, wall: float) -> list[Piece]:
    pieces: list[Piece] = []
    if look.provenance is not None:
        pieces.append((f"from {look.provenance.from_host}, {span(wall - look.provenance.at)} ago", "note"))
    if look.state != "absent":
        pieces.append(("stays as a backup", "dim"))
    return [*pieces, (f"{plural(len(look.backups), 'backup')} there", "dim")]


def _folder_lines(target: TargetPlan, difference: Difference, width: int) -> list[Shown]:
    folders = difference.folders
    most = max([10, *(columns(safe(folder.path)) for folder in folders[:_FOLDERS])])
    cells = min(most, max(10, width - 30))
    lines = []
    for path, added, changed, removed in folders[:_FOLDERS]:
        row = Row(width).add("     ").field(cut_middle(safe(path), cells), cells, "dim")
        for text, ink in counts(added, changed, removed):
            row.item(text, ink)
        lines.append(Shown(row.line(), Opens("files", str(target.side), path, target.side)))
    if more := len(folders) - len(folders[:_FOLDERS]) + difference.more_folders:
        words = f"… {plural(more, 'more folder')}"
        row = Row(width).add("     ").add(words, "dim")
        lines.append(Shown(row.line(), Opens("files", str(target.side), "", target.side)))
    return lines


def _beside(target: TargetPlan, width: int) -> list[Shown]:
    lines: list[Line] = []
    for number_, words in enumerate(target.beside):
        lines += long_pair("also" if number_ == 0 else "", words, width, "text", 3, 7, most=3)
    return [Shown(line) for line in lines]


def _needs(needs: Sequence[Need], width: int) -> list[Line]:
    lines: list[Line] = []
    for need in needs:
        lines += long_pair("needs", f"a yes of its own: {need.text}", width, "warn", 3, 7, "warn", 4)
    return lines


def _tally(checks: Sequence[Check]) -> str:
    counted = Counter(check.state for check in checks)
    words: dict[CheckState, str] = {
        "fail": "failed",
        "warn": "to look at",
        "unknown": "not known",
        "pass": "passed",
    }
    return ", ".join(f"{counted[state]} {word}" for state, word in words.items() if counted[state])
