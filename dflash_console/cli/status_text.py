"""The text of `status` for people: the blocks of the panel without its frame, every finding in full."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

from dflash_console.cli.terminals import is_terminal
from dflash_console.fleet import HostView
from dflash_console.model import Finding, Level, Missing
from dflash_console.ui.drawing.gpus import gpu_block
from dflash_console.ui.drawing.line import Ink, Line, Row, plain, wrap
from dflash_console.ui.drawing.panel import FINDING_MARKS
from dflash_console.ui.drawing.places import host_line, path_block
from dflash_console.ui.drawing.services import unit_block
from dflash_console.ui.drawing.venvs import venv_block
from dflash_console.ui.drawing.words import LINK_MARKS, LINK_WORDS, REASON_WORDS, latency, plural

__all__ = ["Terminal", "status_text", "terminal", "words_terminal"]

CODES: dict[Ink, str] = {
    "strong": "1",
    "title": "1",
    "label": "36",
    "dim": "2",
    "faint": "2",
    "ok": "32",
    "warn": "33",
    "bad": "31",
    "alarm": "1;31",
    "note": "34",
    "bar": "32",
    "history": "36",
    "track": "2",
}
"""SGR codes of the 8 colours that every terminal has; an ink that is not here is plain text."""

NARROWEST, WIDEST = 40, 160
"""Columns that are used of a terminal."""
UNBOUND = 1 << 16
"""Columns of a file or a pipe: no path is that long."""
LEVELS: dict[Level, Callable[[int], str]] = {
    "critical": lambda count: f"{count} critical",
    "warning": lambda count: plural(count, "warning"),
}
"""What is counted at the end, in words."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """Where the text goes."""

    width: int = 80
    has_colours: bool = False


def terminal() -> Terminal:
    """What stdout is. Off a terminal nothing is cut or wrapped, unless $COLUMNS says how much room there is."""
    return _terminal(sys.stdout)


def words_terminal() -> Terminal:
    """What stderr is, likewise."""
    return _terminal(sys.stderr)


def _terminal(stream: TextIO) -> Terminal:
    if not is_terminal(stream):
        columns = os.environ.get("COLUMNS", "")
        return Terminal(max(NARROWEST, int(columns)) if columns.isdecimal() else UNBOUND)
    room = shutil.get_terminal_size((80, 24)).columns
    has_colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Terminal(max(NARROWEST, min(room, WIDEST)), has_colours)


def status_text(
    looked_at: Sequence[tuple[HostView, Sequence[Finding]]], to: Terminal, interval: float = 1.0
) -> str:
    """A block of lines a host and, of several hosts, a summary; with an empty line between two."""
    blocks = [host_block(view, findings, to.width, interval) for view, findings in looked_at]
    if len(looked_at) > 1:
        blocks.append([Row(to.width).add(text).line() for text in wrap(summary(looked_at), to.width)])
    return "\n".join("".join(painted(line, to) + "\n" for line in block) for block in blocks)


def summary(looked_at: Sequence[tuple[HostView, Sequence[Finding]]]) -> str:
    """All hosts in a sentence: `3 hosts: 2 up, 1 unreachable; 2 critical (ct129, ct200), 1 warning (kpro6)`."""
    states = Counter(LINK_WORDS[view.link.state] for view, _ in looked_at)
    counts: list[str] = []
    for level, word in LEVELS.items():
        found = {
            view.config.name: sum(finding.level == level for finding in findings)
            for view, findings in looked_at
        }
        if any(found.values()):
            names = ", ".join(name for name, count in found.items() if count)
            counts.append(f"{word(sum(found.values()))} ({names})")
    return (
        f"{plural(len(looked_at), 'host')}: "
        + ", ".join(f"{states[word]} {word}" for word in LINK_WORDS.values() if states[word])
        + f"; {', '.join(counts) or 'nothing critical, no warning'}"
    )


def host_block(view: HostView, findings: Sequence[Finding], width: int, interval: float) -> list[Line]:
    """The lines about one host."""
    lines = [headline(view, width)]
    for finding in findings:
        lines += finding_lines(finding, width)
    if view.snapshot is None:
        return lines
    at = view.snapshot.at
    lines += gpu_block(view, width, interval, fold=False)
    lines += venv_block(view, width)
    lines += unit_block(view, width, at)
    lines += path_block(view, width)
    lines += host_line(view, width, at)
    return lines


def headline(view: HostView, width: int) -> Line:
    """Name, hostname, role, link state and latency."""
    row = Row(width).add(view.config.name, "title")
    if view.snapshot is not None and view.snapshot.host.hostname != view.config.name:
        row.add(f" - {view.snapshot.host.hostname}", "strong")
    row.item(view.config.role + (", production" if view.config.production else ""), "dim")
    mark, ink = LINK_MARKS[view.link.state]
    row.item(f"{mark} {LINK_WORDS[view.link.state]}", ink)
    trip = view.link.latency_ms
    if view.link.state == "up":
        row.item(REASON_WORDS[trip.missing] if isinstance(trip, Missing) else latency(trip), "dim")
    return row.line()


def finding_lines(finding: Finding, width: int) -> list[Line]:
    """A finding in full: level, subject and text, then the next step."""
    mark, ink = FINDING_MARKS[finding.level]
    first, *more = wrap(f"{finding.subject}: {finding.text}", width - 11)
    lines = [Row(width).add(f"{mark} {finding.level:<8} ", ink).add(first).line()]
    lines += [Row(width).add(" " * 11).add(text).line() for text in more]
    if finding.next_step:
        lines += [
            Row(width).add(" " * 11).add(text, "dim").line()
            for text in wrap(f"-> {finding.next_step}", width - 11)
        ]
    return lines


def painted(line: Line, to: Terminal) -> str:
    """A line as it is written: with colours where there are some, without spaces at its end."""
    if not to.has_colours:
        return plain(line).rstrip()
    return "".join(
        f"\x1b[{CODES[ink]}m{text}\x1b[0m" if ink in CODES else text for text, ink in line
    ).rstrip()
