"""Copies and rollbacks that run or have ended: a line in a host's panel, a word in the header, a block each on their
own screen."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_console.copies import RunState, TargetRun
from dflash_console.ui.drawing.gauges import bar
from dflash_console.ui.drawing.line import Ink, Line, Piece, Row, columns, cut, cut_middle, flow, safe, wrap
from dflash_console.ui.drawing.page import heading, long_pair
from dflash_console.ui.drawing.verdict_lines import ago, verdict_line
from dflash_console.ui.drawing.verdicts import CHECK_MARKS
from dflash_console.ui.drawing.words import plural, size, span
from dflash_console.ui.going import Going
from dflash_console.ui.opened import Opens, Shown

__all__ = [
    "RUN_WORDS",
    "copying_block",
    "copying_line",
    "copying_words",
    "counts",
    "draw_runs",
    "number",
    "rate",
    "silence",
]

RUN_WORDS: dict[RunState, tuple[str, Ink, str]] = {
    "waiting": ("◌", "dim", "waiting"),
    "claiming": ("◌", "note", "taking the lock"),
    "sending": ("→", "note", "sending"),
    "checking": ("→", "note", "checking every file"),
    "swapping": ("→", "note", "swapping"),
    "verifying": ("→", "note", "verifying in its place"),
    "undoing": ("↺", "warn", "undoing"),
    "done": ("✓", "ok", "done"),
    "undone": ("↺", "warn", "undone"),
    "refused": ("⊘", "warn", "refused"),
    "failed": ("✗", "alarm", "failed"),
    "cancelled": ("○", "warn", "cancelled"),
    "unreachable": ("✗", "bad", "unreachable"),
}
"""Each state's mark, ink and word."""

_AS_IT_WAS: frozenset[RunState] = frozenset({"undone", "refused", "cancelled"})
_SWAPS = {
    "exchange": "swapped in one step",
    "two-step": "swapped by two renames",
    "copied": "swapped by copying",
    "placed": "laid where nothing was",
}
_BAR = 24
_CHECK_LINES = 40
_MOST_IN_PANEL = 3
_USUAL = 5.0
"""Seconds without a word from a target, who says five times a second how far it is."""


def number(count: int) -> str:
    """A count that can be read: `6,396`."""
    return f"{count:,}"


def rate(bytes_a_second: float) -> str:
    """`41.2 MB/s`; `512 B/s`."""
    text = size(int(min(max(0.0, bytes_a_second), 1e18)))
    value, unit = text[:-1], text[-1]
    return f"{value} B/s" if unit == "B" else f"{value} {unit}B/s"


def percent(run: TargetRun) -> int | None:
    """How much has been received; None where that can't be told."""
    done, whole = (run.bytes, run.all_bytes) if run.all_bytes else (run.files, run.all_files)
    return min(100, 100 * done // whole) if whole else None


def counts(added: int, changed: int, removed: int) -> list[Piece]:
    """`+12  ~3  −5`, each in its own ink; nothing for none."""
    marked: tuple[tuple[str, int, Ink], ...] = (
        ("+", added, "ok"),
        ("~", changed, "warn"),
        ("−", removed, "bad"),
    )
    return [(f"{mark}{number(count)}", ink) for mark, count, ink in marked if count]


def copying_line(going: Going, width: int, wall: float) -> Line:
    """A run at a glance, for a host's panel: `→ copying from ct129  62 %  41 MB/s  2 s left`."""
    run = going.run
    mark, ink, word = RUN_WORDS[run.state]
    row = Row(width).add(f"{mark} ", ink).add(going.words, "strong")
    if run.is_over:
        row.add(f"  {word}", ink)
        row.item(ago(wall - run.began - run.seconds), "dim")
        if run.state != "done" and run.detail and row.room > 12:
            row.add("  ").add(cut(" ".join(safe(run.detail).split()), row.room), "text")
        return row.line()
    if run.state == "sending":
        for text, fact_ink in _pace(run, wall):
            row.item(text, fact_ink)
    else:
        row.add(f"  {word}", ink)
    return row.line()


def copying_block(goings: Sequence[Going], width: int, wall: float) -> list[Line]:
    """What a host's panel tells of copies to it; a line each, of many only the first."""
    lines = [copying_line(going, width, wall) for going in goings[:_MOST_IN_PANEL]]
    if len(goings) > _MOST_IN_PANEL:
        more = f"  +{len(goings) - _MOST_IN_PANEL} more"
        lines.append(Row(width).add(more, "dim").line())
    return lines


def silence(run: TargetRun, wall: float) -> float:
    """Seconds for which nothing has come to a target that receives; 0 as long as that is usual. What it last said of
    its rate is not so any more then."""
    quiet = wall - run.began - run.seconds
    return quiet if run.state == "sending" and run.began and quiet >= _USUAL else 0.0


def _pace(run: TargetRun, wall: float) -> list[Piece]:
    part = percent(run)
    pieces: list[Piece] = []
    if part is not None:
        pieces.append((f"{part} %", "strong"))
    if quiet := silence(run, wall):
        return [*pieces, (f"nothing came for {span(quiet)}", "warn")]
    if run.rate:
        pieces.append((rate(run.rate), "text"))
    if run.left is not None:
        pieces.append((f"{span(run.left + 0.99)} left", "dim"))
    return pieces


def copying_words(goings: Sequence[Going]) -> Piece | None:
    """All runs in a few words, for the header; None when there are none to tell of."""
    under_way = [going.run for going in goings if not going.run.is_over]
    if under_way:
        known = [run for run in under_way if run.all_bytes]
        whole = sum(run.all_bytes for run in known)
        word = goings[0].what.partition(" ")[0] if len(under_way) == 1 else f"{len(under_way)} copies"
        part = f" {100 * sum(min(run.bytes, run.all_bytes) for run in known) // whole} %" if whole else ""
        return f"→ {word}{part}", "note"
    if not goings:
        return None
    told = next((going for going in goings if going.run.state != "done"), goings[0])
    mark, ink, word = RUN_WORDS[told.run.state]
    return f"{mark} {told.what.partition(' ')[0]} {word}", ink


# ---- their own screen


def draw_runs(goings: Sequence[Going], width: int, wall: float) -> list[Shown]:
    """A block for each run: how far it is, or how it ended and where the old package is now."""
    lines: list[Shown] = []
    for going in goings:
        lines += [*_run(going, width, wall), Shown(())]
    return lines[:-1]


def _run(going: Going, width: int, wall: float) -> list[Shown]:
    run = going.run
    side = cut_middle(safe(str(run.side)), max(10, width - columns(going.words) - 6))
    lines = [Shown(heading(side, width, going.words))]
    mark, ink, word = RUN_WORDS[run.state]
    head = Row(width).add(f"   {mark} {word}", ink)
    if run.is_over:
        lines += _ended(going, head, width, wall)
    else:
        lines += [Shown(row.line()) for row in _under_way(run, head, width, wall)]
    for note in run.notes:
        lines += [Shown(line) for line in long_pair("·", note, width, "text", 5, 2, "note", 3)]
    return [*lines, *_checks(run, width)]


def _under_way(run: TargetRun, head: Row, width: int, wall: float) -> list[Row]:
    part = percent(run)
    rows = [head]
    if run.began:
        head.item(span(wall - run.began), "dim")
    if run.detail:
        head.item(cut(" ".join(safe(run.detail).split()), max(0, head.room - 2)), "dim")
    if run.state == "waiting" or part is None:
        return rows
    cells = max(8, min(_BAR, width - 20))
    gauge = Row(width).add("     ").extend(bar(part, cells)).add(f" {part:>3} %", "strong")
    facts: list[Piece] = [
        (f"{number(run.files)} of {number(run.all_files)} files", "text"),
        (f"{size(run.bytes)} of {size(run.all_bytes)}", "text"),
    ]
    if run.state == "sending":
        facts += _pace(run, wall)[1:]
    return [*rows, *flow(gauge, facts, 5)]


def _ended(going: Going, head: Row, width: int, wall: float) -> list[Shown]:
    run = going.run
    facts: list[Piece] = [*counts(run.added, run.changed, run.removed)]
    if run.state == "done":
        if run.bytes_sent:
            facts.append((f"{size(run.bytes_sent)} sent", "text"))
        facts.append((_SWAPS.get(run.swap, ""), "dim"))
    if run.began:
        facts.append((f"took {run.seconds:.1f} s, {ago(wall - run.began - run.seconds)}", "dim"))
    rows = flow(head, facts, 5)
    ink: Ink = "text" if run.state == "done" else "bad" if run.state in ("failed", "unreachable") else "warn"
    if run.detail:
        rows += [Row(width).add("     ").add(part, ink) for part in wrap(run.detail, max(10, width - 5))]
    rows += [Row(width).add("     ").add(part, "text") for part in wrap(_where(run), max(10, width - 5))]
    if run.verdict is not None:
        rows.append(Row(width).add("     ").extend(verdict_line(run.verdict, width - 5, wall)))
    return [Shown(row.line()) for row in rows]


def _where(run: TargetRun) -> str:
    """Where the package that was there before is now."""
    kept = f"{run.side.venv}/.dflash-console/backups/{run.backup}" if run.backup else ""
    if run.state == "done":
        return f"the package that was there is kept: {kept}  (b puts it back)" if kept else ""
    if run.state in _AS_IT_WAS:
        return "the package is as it was before"
    return f"the package that was there: {kept}" if kept else ""


def _checks(run: TargetRun, width: int) -> list[Shown]:
    """What is wrong first; what passed only as a number, while all is well."""
    wrong = [check for check in run.checks if check.state != "pass"]
    lines: list[Shown] = []
    for check in wrong[:_CHECK_LINES]:
        mark, ink = CHECK_MARKS[check.state]
        row = Row(width).add(f"     {mark} ", ink).add(check.name, "strong").add("  ")
        row.add(cut(" ".join(safe(check.detail).split()), max(1, row.room)), "text")
        lines.append(Shown(row.line(), Opens("check", str(run.side), check.name, check)))
    if len(wrong) > _CHECK_LINES:
        words = f"     … {plural(len(wrong) - _CHECK_LINES, 'more check')}"
        lines.append(Shown(Row(width).add(words, "warn").line()))
    passed = len(run.checks) - len(wrong)
    if passed:
        lines.append(
            Shown(Row(width).add(f"     ✓ {plural(passed, 'check')} passed on the host", "dim").line())
        )
    return lines
