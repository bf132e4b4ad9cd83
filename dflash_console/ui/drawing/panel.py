"""A host's panel: its border with titles, and inside what DESIGN section 7 asks for, in that order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from dflash_console.fleet import HostView, Section
from dflash_console.model import Finding, Level, LinkStatus, Missing
from dflash_console.ui.drawing.copying import copying_block
from dflash_console.ui.drawing.gpus import gpu_block
from dflash_console.ui.drawing.line import (
    Ink,
    Line,
    Piece,
    Row,
    cells_of,
    cut,
    cut_middle,
    fade,
    fits,
    safe,
    wrap,
)
from dflash_console.ui.drawing.listing import PANEL_LINES
from dflash_console.ui.drawing.places import host_line, path_block
from dflash_console.ui.drawing.services import unit_block
from dflash_console.ui.drawing.unread import is_reading
from dflash_console.ui.drawing.venvs import venv_block
from dflash_console.ui.drawing.words import LINK_MARKS, LINK_WORDS, age, latency, plural, span
from dflash_console.ui.scene import HostScene, Moment, Standing

__all__ = ["FINDING_MARKS", "MARKED", "draw_fault", "draw_panel", "link_lines", "next_try", "state_words"]

FINDING_MARKS: dict[Level, tuple[str, Ink]] = {
    "critical": ("✗", "alarm"),
    "warning": ("▲", "warn"),
    "note": ("·", "note"),
}

MARKED = "◆"
"""The mark of a host that is marked."""

_MOST_FINDINGS = 3
_MOST_DETAIL_LINES = 3
_FINDING_LINES = 2
_NOTE_LINES = 2
_FINGERPRINT = re.compile(r"(?:SHA256|MD5):\S+")
_TOLD_BELOW = frozenset({"gpu_shared", "section_unread"})
"""Findings that a block says itself."""
_EDGES: dict[Standing, Ink] = {
    "ok": "edge",
    "note": "edge",
    "warning": "edge_warn",
    "critical": "edge_bad",
    "waiting": "edge_faint",
    "reading": "edge_faint",
    "stale": "edge_faint",
    "down": "edge_bad",
}


class _Shape(NamedTuple):
    """The characters of a border."""

    top_left: str
    flat: str
    top_right: str
    side: str
    low_left: str
    low_right: str


_LIGHT = _Shape(*"╭─╮│╰╯")
_HEAVY = _Shape(*"┏━┓┃┗┛")


def draw_panel(host: HostScene, width: int, moment: Moment, *, is_selected: bool, room: int) -> list[Line]:
    """The panel of a host, `width` cells wide with its border.

    When it would be higher than `room` lines, neighbouring idle GPUs share a line (a sick GPU never does), and
    if that is not enough, findings get one line each instead of two.
    """
    return _framed(_inside(host, width - 4, moment, room - 2), host, width, moment, is_selected)


def draw_fault(name: str, error: Exception, width: int) -> list[Line]:
    """What stands in place of a panel that could not be drawn."""
    inner = width - 4
    text = f"this panel could not be drawn: {type(error).__name__}: {error}"
    lines = [Row(inner).add("✗ ", "bad").add(part, "bad").line() for part in wrap(text, inner - 2)[:3]]
    lines.append(Row(inner).add("  the host is watched on; please report this", "dim").line())
    title = Row(inner).add(name, "title").line()
    return _frame(lines, width, title, (), (), "edge_bad", _LIGHT)


def _inside(host: HostScene, width: int, moment: Moment, room: int) -> list[Line]:
    """All lines; every age in them is as of the last sample, so that a dead host's picture stands still."""
    view = host.view
    at = view.snapshot.at if view.snapshot is not None else 0.0
    venvs = venv_block(view, width, PANEL_LINES, verdicts=host.verdicts, wall=moment.wall)
    rest = _noted(venvs, view, "venvs", width)
    rest += _noted(unit_block(view, width, at, PANEL_LINES), view, "units", width)
    rest += _noted(path_block(view, width, PANEL_LINES), view, "paths", width)
    rest += _noted(host_line(view, width, at), view, "host", width)
    above = copying_block(host.goings, width, moment.wall)
    above += link_lines(view, width, moment, _MOST_DETAIL_LINES)
    found = _finding_lines(host, width, _FINDING_LINES)
    gpus = gpu_block(view, width, moment.interval, fold=False)
    if len(above) + len(found) + len(gpus) + len(rest) > room:
        gpus = gpu_block(view, width, moment.interval, fold=True)
    if len(above) + len(found) + len(gpus) + len(rest) > room:
        found = _finding_lines(host, width, 1)
    body = _noted(gpus, view, "gpu", width) + rest
    return [*above, *found, *(body if view.link.state == "up" else map(fade, body))]


def _noted(block: list[Line], view: HostView, section: Section, width: int) -> list[Line]:
    """A block, and below it what the agent says that it lacks."""
    text = view.notes.get(section)
    if text is None:
        return block
    parts = wrap(text if block else f"{section}: {text}", width - 7, most=_NOTE_LINES)
    marks = ["     ▲ ", *("       " for _ in parts[1:])]
    return block + [
        Row(width).add(mark, "warn").add(part, "warn").line() for mark, part in zip(marks, parts, strict=True)
    ]


def link_lines(view: HostView, width: int, moment: Moment, most: int) -> list[Line]:
    """What is to be said while a host is not up: state, age of the picture, next try, the link's words."""
    link = view.link
    if link.state == "up":
        return []
    mark, ink = LINK_MARKS[link.state]
    row = Row(width).add(f"{mark} ", ink)
    heard = span(moment.mono - view.heard) if view.heard is not None else ""
    facts: list[Piece] = []
    if link.state == "stale" and heard:
        row.add(f"no answer for {heard}", ink)
    else:
        row.add(LINK_WORDS[link.state], ink)
        facts.append((f"last heard {heard} ago" if heard else "", "dim"))
    if view.snapshot is not None:
        facts.append(("last good picture below", "dim"))
    facts.append((next_try(link, moment), "dim"))
    rows = [row]
    for text, fact_ink in facts:
        if not text or rows[-1].item(f"· {text}", fact_ink, gap=1):
            continue
        rows.append(Row(width).add("  ").add(text, fact_ink))
    detail = _detail(link.detail, width - 2, most) if link.state != "stale" or not heard else []
    rows += [Row(width).add("  ").add(text, "dim") for text in detail]
    return [row.line() for row in rows]


def _detail(text: str, width: int, most: int) -> list[str]:
    """The link's words in at most `most` lines, and as many more as it takes to show fingerprints whole."""
    lines = wrap(text, width) if text else []
    if len(lines) <= most:
        return lines
    ends = [found.end() for found in _FINGERPRINT.finditer(text)]
    needed = len(wrap(text[: ends[-1]], width)) if ends else 0
    shown = lines[: max(most, needed)]
    if len(shown) == len(lines):
        return shown
    if len(shown) == needed:
        return [*shown, "… enter: all"]
    return [*shown[:-1], cut(shown[-1], width - 14).rstrip("…") + "… enter: all"]


def next_try(link: LinkStatus, moment: Moment) -> str:
    """When a host is tried again, in words; empty while the link stands or is made for the first time."""
    if link.next_try is not None and link.next_try > moment.wall:
        return f"next try in {span(link.next_try - moment.wall + 0.5)}"
    is_kept = link.state in ("up", "stale", "connecting") and link.next_try is None
    return "" if is_kept else "trying now"


def _finding_lines(host: HostScene, width: int, most: int) -> list[Line]:
    """The worst findings, without what the blocks below say anyway, and how many more there are."""
    findings = [finding for finding in host.beside_link if finding.code not in _TOLD_BELOW]
    lines = []
    for finding in findings[:_MOST_FINDINGS]:
        lines += _finding(finding, width, most)
    more = len(findings) - _MOST_FINDINGS
    if more > 0:
        lines.append(Row(width).add(f"  +{more} more", "dim").line())
    return lines


def _finding(finding: Finding, width: int, most: int) -> list[Line]:
    """A finding in at most `most` lines, and what helps where there is room for it."""
    mark, ink = FINDING_MARKS[finding.level]
    subject = safe(finding.subject)
    row = Row(width).add(f"{mark} ", ink)
    row.add(subject if fits(subject, row.room // 2) else cut_middle(subject, row.room // 2), "strong")
    row.add("  ")
    text_ink: Ink = "bad" if ink == "alarm" else ink
    first, *others = wrap(" ".join(finding.text.split()), width - 2, first=max(1, row.room))
    if len(others) >= most:
        kept = [first, *others[: most - 1]]
        kept[-1] = f"{kept[-1]} {' '.join(others[most - 1 :])}"
        first, *others = kept
    rows = [row.add(first, text_ink)]
    rows += [Row(width).add("  ").add(text, text_ink) for text in others]
    if finding.next_step:
        rows[-1].right(("→ ", "faint"), (finding.next_step, "dim"))
    return [row.line() for row in rows]


# ---- the border


def _framed(lines: list[Line], host: HostScene, width: int, moment: Moment, is_selected: bool) -> list[Line]:
    view = host.view
    title = Row(width // 2).add("▸ " if is_selected else "", "title_on")
    title.add(f"{MARKED} " if host.is_marked else "", "accent")
    title.add(view.config.name, "title_on" if is_selected else "title")
    hostname = view.snapshot.host.hostname if view.snapshot is not None else ""
    if hostname and hostname != view.config.name:
        title.add(f" · {hostname}", "dim")
    edge = _EDGES[host.standing]
    if is_selected and edge == "edge":
        edge = "edge_on"
    foot = Row(width - 6).add(_foot(view, moment), "dim").line()
    return _frame(
        lines, width, title.line(), state_words(host), foot, edge, _HEAVY if is_selected else _LIGHT
    )


def state_words(host: HostScene) -> Line:
    """A host's standing as a mark and a word."""
    state = host.view.link.state
    if state != "up":
        mark, ink = LINK_MARKS[state]
        return ((f"{mark} {LINK_WORDS[state]}", ink),)
    level = host.level
    if level is None or level == "note":
        return (("◌ reading", "dim"),) if is_reading(host.view) else (("● ok", "ok"),)
    count = sum(finding.level == level for finding in host.findings)
    mark, ink = FINDING_MARKS[level]
    words = f"{count} critical" if level == "critical" else plural(count, level)
    return ((f"{mark} {words}", ink),)


def _foot(view: HostView, moment: Moment) -> str:
    parts: list[str] = [view.config.role]
    if view.config.production:
        parts.append("production")
    milliseconds = view.link.latency_ms
    if view.link.state == "up" and not isinstance(milliseconds, Missing):
        parts.append(latency(milliseconds))
    if view.heard is not None:
        parts.append(age(moment.mono - view.heard, moment.interval))
    return " · ".join(parts)


def _frame(
    lines: Sequence[Line], width: int, title: Line, corner: Line, foot: Line, edge: Ink, shape: _Shape
) -> list[Line]:
    """`lines` in a border with a title at the upper left, words at the upper right and the lower right."""
    return [
        _edge_line(shape.top_left, title, shape.flat, corner, shape.top_right, width, edge),
        *(_side_line(line, width, shape.side, edge) for line in lines),
        _edge_line(shape.low_left, (), shape.flat, foot, shape.low_right, width, edge),
    ]


def _edge_line(left: str, start: Line, flat: str, end: Line, right: str, width: int, edge: Ink) -> Line:
    start_cells = cells_of(start) + 2 if start else 0
    end_cells = cells_of(end) + 2 if end else 0
    if start_cells + end_cells > width - 5:
        end, end_cells = (), 0
    middle = flat * (width - 4 - start_cells - end_cells)
    pieces: list[tuple[str, Ink]] = [(left + flat, edge)]
    if start:
        pieces += [(" ", edge), *start, (" ", edge)]
    pieces.append((middle, edge))
    if end:
        pieces += [(" ", edge), *end, (" ", edge)]
    pieces.append((flat + right, edge))
    return tuple(pieces)


def _side_line(line: Line, width: int, side: str, edge: Ink) -> Line:
    return ((f"{side} ", edge), *line, (" " * (width - 4 - cells_of(line)), "text"), (f" {side}", edge))
