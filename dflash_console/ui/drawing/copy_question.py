"""What stands in the dialogs before a change: what exactly is done, on what, and how old the picture is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dflash_console.copies import Backup, CopyPlan, TargetPlan
from dflash_console.ui.drawing.copying import counts, number, percent
from dflash_console.ui.drawing.line import Ink, Line, Row, flow, wrap
from dflash_console.ui.drawing.page import long_pair
from dflash_console.ui.drawing.verdict_lines import ago, verdict_line
from dflash_console.ui.drawing.words import size
from dflash_console.ui.going import Going

__all__ = ["draw_copy_question", "draw_leaving", "draw_rollback_question"]

_WORD = 8


def draw_copy_question(
    plan: CopyPlan,
    going: Sequence[TargetPlan],
    width: int,
    wall: float,
    package: str,
    refused: Callable[[TargetPlan], str],
) -> list[Line]:
    """The effect of a copy on each of the targets that it goes to, and which are left out."""
    version = plan.look.version if plan.look is not None else ""
    lines = long_pair("from", f"{plan.source}   {package} {version}", width, "strong", 1, _WORD)
    if plan.verdict is not None:
        line = verdict_line(plan.verdict, width - _WORD - 1, wall)
        lines.append(Row(width).add(" " * (_WORD + 1)).extend(line).line())
    for target in going:
        lines += [(), *_effect(target, width, package)]
    for target in plan.targets:
        if target not in going:
            words = f"{target.side.host}: {refused(target)}"
            lines += [(), *long_pair("not to", words, width, "bad", 1, _WORD, "bad", 3)]
    return [*lines, (), *_age(plan.at, wall, width)]


def _effect(target: TargetPlan, width: int, package: str) -> list[Line]:
    lines = long_pair("to", str(target.side), width, "strong", 1, _WORD)
    look = target.look
    row = Row(width).add(" " * (_WORD + 1))
    if look is None or look.state == "absent":
        rows = flow(row.add(f"{package} is laid where none is now", "text"), [], _WORD + 1)
    else:
        words = f"{package} {look.version} is replaced and kept as a backup"
        lines += [_text(part, width) for part in wrap(words, max(10, width - _WORD - 1))]
        rows = []
    if (difference := target.difference) is not None:
        marks = counts(difference.added, difference.changed, difference.removed)
        pieces = [*(marks or [("no file differs", "dim")]), (f"{size(target.bytes)} to send", "text")]
        start = Row(width).add(" " * (_WORD + 1)).add(*pieces[0])
        rows += flow(start, pieces[1:], _WORD + 1)
    return [*lines, *(row.line() for row in rows)]


def draw_rollback_question(
    plan: TargetPlan, backup: Backup, width: int, wall: float, at: float, package: str
) -> list[Line]:
    """The effect of putting a backup back."""
    lines = long_pair("on", str(plan.side), width, "strong", 1, _WORD)
    now = plan.look.version if plan.look is not None and plan.look.state != "absent" else ""
    if backup.version:
        words = f"{package} {backup.version} of {ago(wall - backup.at)}, {number(backup.files)} files, is put back"
    else:
        words = f"there was no {package} then: it is taken away"
    for text in (words, f"{package} {now} is replaced and kept as a backup" if now else ""):
        lines += [_text(part, width) for part in wrap(text, max(10, width - _WORD - 1)) if text]
    words = "every file is checked before it is put there and after; if it does not fit it is undone"
    lines += [_text(part, width, "dim") for part in wrap(words, max(10, width - _WORD - 1))]
    return [*lines, (), *_age(at, wall, width)]


def draw_leaving(goings: Sequence[Going], width: int, *, is_quitting: bool = False) -> list[Line]:
    """What runs, when it is asked whether it is to go on."""
    lines: list[Line] = []
    for going in goings:
        if going.run.is_over:
            continue
        part = percent(going.run)
        done = f"  {part} %" if part is not None else ""
        row = Row(width).add(f" {going.run.side.host}", "strong").add(f"  {going.doing}{done}", "text")
        lines.append(row.line())
    if not lines:
        words = "It has come to its end meanwhile: nothing is left to be cancelled."
        return [Row(width).add(f" {part}", "text").line() for part in wrap(words, max(10, width - 2))]
    cancelled = "what is not swapped yet stays as it was, and what is swapped is brought to its end."
    words = "Left running, it goes on in the background: the header tells of it, and c shows it again. Cancelled, "
    if is_quitting:
        words = "It can't go on without this console. When it is cancelled, "
    words += cancelled
    return [
        *lines,
        (),
        *(Row(width).add(f" {part}", "dim").line() for part in wrap(words, max(10, width - 2))),
    ]


def _text(words: str, width: int, ink: Ink = "text") -> Line:
    return Row(width).add(" " * (_WORD + 1)).add(words, ink).line()


def _age(at: float, wall: float, width: int) -> list[Line]:
    words = f"This rests on a look {ago(wall - at)}; the host refuses it if something has changed since."
    return [Row(width).add(f" {part}", "dim").line() for part in wrap(words, max(10, width - 2))]
