"""The backups of an environment, newest first, a line each."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dflash_console.copies import Backup, TargetPlan
from dflash_console.ui.drawing.copy_plan import check_lines, look_words
from dflash_console.ui.drawing.copying import number
from dflash_console.ui.drawing.line import Row, columns, cut, flow, safe
from dflash_console.ui.drawing.page import heading, long_pair
from dflash_console.ui.drawing.words import size, span
from dflash_console.ui.opened import Opens, Shown
from dflash_console.verdict import Check

__all__ = ["draw_backups"]

_WIDE = 96
"""Cells from which on there is room for all columns."""
_AGO, _FILES = 10, 8


def draw_backups(plan: TargetPlan, width: int, wall: float, package: str, refused: str) -> list[Shown]:
    """What is in place now, what stands against a rollback, and every backup."""
    lines: list[Shown] = []
    if plan.problem:
        return [Shown(line) for line in long_pair("✗", plan.problem, width, "bad", 1, 2, "bad")]
    look = plan.look
    if look is not None:
        facts = look_words(look, package)
        if (came := look.provenance) is not None:
            facts.append((f"from {came.from_host} by {came.by}, {span(wall - came.at)} ago", "note"))
        row = Row(width).add("in place  ", "dim").add(*facts[0])
        lines += [Shown(row.line()) for row in flow(row, facts[1:], 10)]
    if refused:
        lines += [Shown(line) for line in long_pair("✗", refused, width, "bad", 0, 2, "bad")]
    backups = look.backups if look is not None else ()
    lines += [
        Shown(()),
        Shown(heading("BACKUPS", width, f"{len(backups)} kept" if backups else "none is kept")),
    ]
    if backups:
        lines += _table(backups, width, wall)
    for need in plan.needs:
        lines += [
            Shown(line) for line in long_pair("needs", f"a yes of its own: {need.text}", width, "warn", 1, 7)
        ]
    wrong: Sequence[Check] = [check for check in plan.checks if check.state != "pass"]
    if plan.checks:
        passed = len(plan.checks) - len(wrong)
        lines += [Shown(()), Shown(heading("PREFLIGHT", width, f"{passed} of {len(plan.checks)} passed"))]
        lines += check_lines(plan.checks, str(plan.side), width, 1)
    return lines


def _table(backups: Sequence[Backup], width: int, wall: float) -> list[Shown]:
    """When each was replaced, what it is, how large, and where it had come from; how long ago and how many files only
    where there is room."""
    version = min(18, max([7, *(columns(safe(item.version[:40])) for item in backups)])) + 2
    is_wide = width >= _WIDE
    head = Row(width).add("   ").field("REPLACED UTC", 18, "label")
    if is_wide:
        head.field("AGO", _AGO, "label")
    head.field("VERSION", version, "label")
    if is_wide:
        head.field("FILES", _FILES, "label", "right")
    head.field("SIZE", 7, "label", "right").add("  BY A      CAME FROM", "label")
    lines = [Shown(head.line())]
    for item in backups:
        row = Row(width).add("   ").field(_when(item.at), 18, "text")
        if is_wide:
            row.field(span(wall - item.at), _AGO, "dim")
        row.field(item.version or "none", version, "strong" if item.version else "dim")
        if is_wide:
            row.field(number(item.files), _FILES, "text", "right")
        row.field(size(item.size), 7, "text", "right").add(f"  {item.reason:<10}", "dim")
        came = item.provenance
        words = f"{came.from_host}, {_when(came.at)}" if came is not None else "not by a copy"
        row.add(cut(safe(words), max(1, row.room)), "note" if came is not None else "dim")
        lines.append(Shown(row.line(), Opens("backup", "", item.id, item)))
        if item.in_use:
            lines.append(Shown(Row(width).add("     in use by ", "warn").add(item.in_use, "warn").line()))
    return lines


def _when(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))
    except (ValueError, OverflowError, OSError):
        return "not known"
