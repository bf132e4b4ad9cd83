"""The first and the last line of the screen: where the fleet stands, and which keys help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from dflash_console.model import LinkState
from dflash_console.ui.drawing.line import Ink, Line, Piece, Row, cells_of, columns
from dflash_console.ui.drawing.words import LINK_MARKS, clock, plural, span
from dflash_console.ui.scene import Scene

__all__ = ["HeaderState", "draw_footer", "draw_header"]

_GROUPS: tuple[tuple[LinkState, str, str], ...] = (
    ("up", "up", "up"),
    ("stale", "stale", "stale"),
    ("connecting", "connecting", "new"),
    ("unreachable", "down", "down"),
)
"""Each link state with its word and a shorter one."""

_Words = Literal["apart", "close", "short", "none"]
"""How much the left half says: words with wide gaps, with narrow ones, shorter words, marks only."""
_Clock = Literal["live", "zone", "seconds", "minutes", "none"]
"""How much the right half says: all, no interval, no zone, no seconds, no clock."""
_STEPS: tuple[tuple[_Words, tuple[_Clock, ...]], ...] = (
    ("apart", ("live", "zone", "seconds")),
    ("close", ("zone", "seconds", "minutes")),
    ("short", ("zone", "seconds", "minutes")),
    ("none", ("zone", "seconds", "minutes", "none")),
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
    marked: int = 0
    """Hosts that are marked, shown or not."""
    copying: Piece | None = None
    """Copies that run, in a few words."""
    fault: str = ""
    """Why the last tick could not be painted."""


def draw_header(scene: Scene, state: HeaderState, width: int) -> Line:
    """The header in `width` cells: what the clock can spare goes before words, words go before numbers."""
    for words, right_steps in _STEPS:
        left = _left(scene, state, words)
        for step in right_steps:
            right = _right(scene, state, step)
            if cells_of(left) + cells_of(right) <= width:
                return Row(width).extend(left).to(width - cells_of(right)).extend(right).line()
    return Row(width - cells_of(right)).extend(left).line() + right


def _left(scene: Scene, state: HeaderState, words: _Words) -> Line:
    gap = "  " if words == "apart" else " "
    row = Row(1000).add(" DFLASH ", "badge").add(gap)
    row.add(f"{len(scene.hosts)}" if words == "none" else plural(len(scene.hosts), "host"), "strong").add(gap)
    counted = Counter(_group(host.view.link.state) for host in scene.hosts)
    for link_state, word, short in _GROUPS:
        if counted[link_state]:
            mark, ink = LINK_MARKS[link_state]
            shown = {"short": f" {short}", "none": ""}.get(words, f" {word}")
            row.add(f"{mark} {counted[link_state]}{shown}", ink).add(gap)
    row.add(" ").extend(_finding_counts(scene, words, gap))
    if state.filter_text:
        row.add(f"/{state.filter_text}", "accent").add(f" {state.shown} of {len(scene.hosts)}", "dim").add(
            gap
        )
    if state.marked:
        row.add(f"◆ {state.marked}" + ("" if words == "none" else " marked"), "accent").add(gap)
    if state.copying is not None:
        row.extend([state.copying]).add(gap)
    if state.fault:
        row.add(f"✗ {state.fault}", "bad")
    return row.line()


def _finding_counts(scene: Scene, words: _Words, gap: str) -> Line:
    """How many findings there are; marks alone are told from those of the links by a word before them."""
    levels = Counter(finding.level for host in scene.hosts for finding in host.findings)
    critical, warnings = levels["critical"], levels["warning"]
    row = Row(200)
    if not critical and not warnings:
        if any(host.standing in ("reading", "waiting") for host in scene.hosts):
            return row.add("reading", "dim").add(gap).line()
        return row.add("no findings", "dim").add(gap).line()
    row.add("findings " if words == "none" else "", "dim")
    if critical:
        row.add(f"✗ {critical}" + {"short": " crit", "none": ""}.get(words, " critical"), "alarm").add(gap)
    if warnings:
        shown = {"short": f"{warnings} warn", "none": f"{warnings}"}.get(words, plural(warnings, "warning"))
        row.add(f"▲ {shown}", "warn").add(gap)
    return row.line()


def _right(scene: Scene, state: HeaderState, step: _Clock) -> Line:
    is_short = step not in ("live", "zone")
    row = Row(200)
    if state.is_read_only:
        row.add("ro" if is_short else "read-only", "note").add(" " if is_short else "  ")
    if state.paused_for is not None:
        row.add(f" PAUSED {span(state.paused_for)} ", "flag").add(" " if is_short else "   ")
    elif step == "live":
        row.add("live ", "dim").add(f"{scene.moment.interval:.1f} s", "text").add("   ")
    if step != "none":
        row.add(clock(state.wall)[: 5 if step == "minutes" else 8], "text")
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
