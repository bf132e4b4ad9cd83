"""What one tick paints: every host as it was at one moment, with its findings."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from dflash_console.findings import fault_finding, findings_of
from dflash_console.fleet import HostView
from dflash_console.model import Finding, Level, Unit
from dflash_console.ui.drawing.unread import is_reading
from dflash_console.ui.drawing.verdict_lines import filter_words
from dflash_console.ui.drawing.words import LINK_WORDS, unit_state
from dflash_console.ui.going import Going
from dflash_console.verdict import Verdict

__all__ = ["HostScene", "Moment", "Scene", "SceneMaker", "Standing", "matching", "next_trouble", "now"]

Standing: TypeAlias = Literal["ok", "note", "warning", "critical", "waiting", "reading", "stale", "down"]
"""A host in one word. `waiting`: not heard of yet; `reading`: answers, nothing is wrong in what came so far;
`down`: can't be watched until something is done."""

_WORDS = re.compile(r"\bnot \S+|\S+")


class Moment(NamedTuple):
    """The time at which a scene is drawn."""

    wall: float
    """Seconds since 1970, the console's clock."""
    mono: float
    """`time.monotonic()`."""
    interval: float
    """Seconds between two samples."""


def now(interval: float) -> Moment:
    """This moment."""
    return Moment(time.time(), time.monotonic(), interval)


class HostScene(NamedTuple):
    """One host, what is wrong with it, worst first, and what was proved of it."""

    view: HostView
    findings: Sequence[Finding]
    verdicts: tuple[Verdict, ...] = ()
    """On its environments; without those that were never verified."""
    is_marked: bool = False
    goings: tuple[Going, ...] = ()
    """Copies and rollbacks that are under way there, or have just ended."""

    @property
    def name(self) -> str:
        """As in the config."""
        return self.view.config.name

    @property
    def standing(self) -> Standing:
        """The worst of link and findings."""
        state = self.view.link.state
        if state in ("connecting", "stale"):
            return "stale" if self.view.snapshot is not None else "waiting"
        if state != "up":
            return "down"
        if is_reading(self.view) and self.level in (None, "note"):
            return "reading"
        return self.level or "ok"

    @property
    def trouble(self) -> int | None:
        """How soon to look at the host: 0 for a link that fails or a critical finding, 1 for a warning."""
        if self.level == "critical" or self.view.link.state not in ("up", "connecting"):
            return 0
        return 1 if self.level == "warning" else None

    @property
    def beside_link(self) -> Sequence[Finding]:
        """The findings without the one that repeats the link's state, which is told in full elsewhere."""
        return [finding for finding in self.findings if finding.code != self.view.link.state]

    @property
    def level(self) -> Level | None:
        """Of the worst finding; None without any."""
        return self.findings[0].level if self.findings else None


class Scene(NamedTuple):
    """All hosts at one moment, in the config's order."""

    hosts: tuple[HostScene, ...]
    moment: Moment

    def host(self, name: str) -> HostScene | None:
        """The host of that name."""
        return next((host for host in self.hosts if host.name == name), None)


class SceneMaker:
    """Makes scenes, and finds anew only for hosts whose view changed."""

    def __init__(self) -> None:
        self._known: dict[str, HostScene] = {}

    def take(
        self,
        views: Sequence[HostView],
        moment: Moment,
        verdicts: Callable[[str], tuple[Verdict, ...]] = lambda _: (),
        goings: Callable[[str], tuple[Going, ...]] = lambda _: (),
    ) -> Scene:
        """The scene of these views; `verdicts` and `goings` give those on a host."""
        return Scene(tuple(self._scene(view, verdicts, goings) for view in views), moment)

    def _scene(
        self,
        view: HostView,
        verdicts_on: Callable[[str], tuple[Verdict, ...]],
        goings_on: Callable[[str], tuple[Going, ...]],
    ) -> HostScene:
        verdicts, goings = verdicts_on(view.config.name), goings_on(view.config.name)
        known = self._known.get(view.config.name)
        if known is None or known.view is not view:
            known = self._known[view.config.name] = HostScene(view, _findings(view), verdicts, goings=goings)
        elif known.verdicts != verdicts or known.goings != goings:
            known = self._known[view.config.name] = known._replace(verdicts=verdicts, goings=goings)
        return known


def _findings(view: HostView) -> Sequence[Finding]:
    try:
        return findings_of(view)
    except Exception as error:  # noqa: BLE001  one host's fault must not hide the others; it becomes a finding
        return [fault_finding("the host could not be judged", error)]


def next_trouble(hosts: Sequence[HostScene], selected: str, step: int) -> str | None:
    """The host with trouble after (1) or before (-1) the selected one, worst first; None when there is none.

    From a host without trouble it goes to the nearest one that is worst off. All ends are joined.
    """
    ranked = [(host.trouble, at, host.name) for at, host in enumerate(hosts) if host.trouble is not None]
    ranked.sort(key=lambda place: place[:2])
    names = [name for _, _, name in ranked]
    if not names:
        return None
    if selected in names:
        return names[(names.index(selected) + step) % len(names)]
    at = next((number for number, host in enumerate(hosts) if host.name == selected), -1)
    worst = [(place, name) for rank, place, name in ranked if rank == ranked[0][0]]
    if step > 0:
        return next((name for place, name in worst if place > at), worst[0][1])
    return next((name for place, name in reversed(worst) if place < at), worst[-1][1])


def matching(hosts: Sequence[HostScene], filter_text: str) -> tuple[HostScene, ...]:
    """The hosts that have every word of the filter in their name, address, role or a word of their state.

    `not` belongs to the word behind it: `not ready` is not a host that is ready and has a unit that is not installed.
    """
    words = _WORDS.findall(" ".join(filter_text.casefold().split()))
    if not words:
        return tuple(hosts)
    return tuple(host for host in hosts if _has_words(_described(host), words))


def _has_words(text: str, words: Sequence[str]) -> bool:
    return all(word in text for word in words)


def _described(host: HostScene) -> str:
    view = host.view
    config = view.config
    parts = [config.name, config.address, config.role, "production" if config.production else ""]
    parts += [LINK_WORDS[view.link.state], host.standing, *(finding.level for finding in host.findings)]
    if view.snapshot is not None:
        parts.append(view.snapshot.host.hostname)
        parts += [_unit_words(unit) for unit in view.snapshot.units]
        parts += [gpu.health for gpu in view.snapshot.gpu.gpus if gpu.health != "ok"]
    parts += [filter_words(verdict) for verdict in host.verdicts]
    parts += [f"{going.words} {going.run.state}" for going in host.goings]
    if host.is_marked:
        parts.append("marked")
    if view.shared:
        parts.append("shared")
    return "\n".join(parts).casefold()


def _unit_words(unit: Unit) -> str:
    return unit_state(unit)[2]
