"""The first and the last line of the screen: where the fleet stands, and which keys help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from dflash_console.model import LinkState
from dflash_console.ui.drawing.line import Ink, Line, Row, columns
from dflash_console.ui.drawing.words import LINK_MARKS, clock, plural, span
from dflash_console.ui.scene import Scene

__all__ = ["HeaderState", "draw_footer", "draw_header"]

_GROUPS: tuple[tuple[LinkState, str], ...] = (
    ("up", "up"),
    ("stale", "stale"),
    ("connecting", "connecting"),
    ("unreachable", "down"),
)


class HeaderState(NamedTuple):
    """What the header tells beside the hosts themselves."""

    wall: float
    """The console's clock; runs on while the screen is paused."""
    paused_for: float | None = None
    """Seconds; None while live."""
    filter_text: str = ""
    shown: int = 0
    """Hosts that the filter lets through."""
    is_read_only: bool = False
    fault: str = ""
    """Why the last tick could not be painted."""


def draw_header(scene: Scene, state: HeaderState, width: int) -> Line:
    """The header in `width` cells: with words where they fit, else with numbers and marks only."""
    for is_short, is_shorter in ((False, False), (True, False), (True, True)):
        left, right = _left(scene, state, is_short), _right(scene, state, is_shorter)
        if _cells(left) + _cells(right) + 2 <= width:
            break
    row = Row(width).extend(left)
    row.right(*right, gap=1)
    return row.line()


def _left(scene: Scene, state: HeaderState, is_short: bool) -> Line:
    gap = " " if is_short else "  "
    row = Row(1000).add(" DFLASH ", "badge").add(gap)
    row.add(f"{len(scene.hosts)}" if is_short else plural(len(scene.hosts), "host"), "strong").add(gap)
    counted = Counter(_group(host.view.link.state) for host in scene.hosts)
    for link_state, word in _GROUPS:
        if counted[link_state]:
            mark, ink = LINK_MARKS[link_state]
            row.add(f"{mark} {counted[link_state]}" + ("" if is_short else f" {word}"), ink).add(gap)
    levels = Counter(finding.level for host in scene.hosts for finding in host.findings)
    row.add("" if is_short else " ")
    if levels["critical"]:
        row.add(f"✗ {levels['critical']}" + ("" if is_short else " critical"), "alarm").add(gap)
    if levels["warning"]:
        row.add(f"▲ {levels['warning']}" if is_short else f"▲ {plural(levels['warning'], 'warning')}", "warn")
        row.add(gap)
    if not levels["critical"] and not levels["warning"] and not is_short:
        row.add("no findings", "dim").add(gap)
    if state.filter_text:
        row.add(f"/{state.filter_text}", "accent").add(f" {state.shown} of {len(scene.hosts)}", "dim").add(
            gap
        )
    if state.fault:
        row.add(f"✗ {state.fault}", "bad")
    return row.line()


def _right(scene: Scene, state: HeaderState, is_short: bool) -> Line:
    row = Row(200)
    if state.is_read_only:
        row.add("read-only" if not is_short else "ro", "note").add("  ")
    if state.paused_for is not None:
        row.add(f" PAUSED {span(state.paused_for)} ", "flag")
    elif not is_short:
        row.add("live ", "dim").add(f"{scene.moment.interval:.1f} s", "text")
    row.add(" " if is_short else "   ").add(clock(state.wall), "text")
    row.add("" if is_short else " UTC", "dim").add(" ")
    return row.line()


def _group(state: LinkState) -> LinkState:
    return state if state in ("up", "stale", "connecting") else "unreachable"


def draw_footer(keys: Sequence[tuple[str, str]], width: int, hint: str = "") -> Line:
    """The keys that help here, as many as fit, and at the right what else there is to say."""
    row = Row(width).add(" ")
    for key, word in keys:
        if row.room < columns(key) + columns(word) + 4:
            break
        row.add(key, "label").add(f" {word}   ", "dim")
    ink: Ink = "dim"
    if hint:
        row.right((hint, ink), (" ", ink), gap=1)
    return row.line()


def _cells(line: Line) -> int:
    return sum(columns(text) for text, _ in line)
