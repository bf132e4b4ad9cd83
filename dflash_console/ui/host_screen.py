"""The second screen: one host, in tabs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from dflash_console.ui.actions import Place, bindings
from dflash_console.ui.drawing.line import Line, Row
from dflash_console.ui.drawing.panel import state_words
from dflash_console.ui.environments import Environments
from dflash_console.ui.overview import Overview
from dflash_console.ui.panel import Panel
from dflash_console.ui.scene import HostScene
from dflash_console.ui.screen import ConsoleScreen
from dflash_console.ui.tab import Tab
from dflash_console.ui.verifying import Target

if TYPE_CHECKING:
    from textual.binding import BindingType
    from textual.widget import Widget

__all__ = ["TABS", "HostScreen"]

TABS: tuple[type[Tab], ...] = (Overview, Environments)
"""In the order of their numbers."""


class HostScreen(ConsoleScreen):
    """The selected host, live."""

    # Tabs share keys; what a key does is the same action for all of them, and the tab in front takes it.
    BINDINGS: ClassVar[list[BindingType]] = bindings("host", *(tab.place for tab in TABS))

    def __init__(self) -> None:
        super().__init__()
        self._title = Panel(id="title")
        self._bar = Panel(id="tabs")
        self._tabs = [tab() for tab in TABS]
        self._at = 0

    @property
    def tab(self) -> Tab:
        """The one in front."""
        return self._tabs[self._at]

    @property
    def places(self) -> tuple[Place, ...]:
        """The screen's keys and those of the tab in front."""
        return ("host", self.tab.place)

    @property
    def targets(self) -> Sequence[Target]:
        """What is under the cursor of the tab in front, else the host."""
        return [Target(self.owner.selected, self.tab.venv)]

    def compose(self) -> Iterator[Widget]:
        """Header, the host's title, the names of the tabs, the one in front, footer."""
        yield self.header
        yield self._title
        yield self._bar
        for number, tab in enumerate(self._tabs):
            tab.display = number == self._at
            yield tab
        yield self.footer

    def paint(self) -> None:
        """Draws the selected host."""
        self.paint_frame(hint=self.tab.hint)
        scene = self.owner.scene
        host = scene.host(self.owner.selected)
        if host is None:
            return
        self._title.show([_title(host, self.size.width)])
        self._bar.show([_bar(self._at, self.size.width)])
        self.tab.paint(host, scene.moment)

    def show_selected(self) -> None:
        """Shows the selected host from the start."""
        for tab in self._tabs:
            tab.start()
        self.owner.paint()

    def show_tab(self, place: Place) -> None:
        """Brings a tab to the front."""
        self._show([tab.place for tab in self._tabs].index(place))

    def _show(self, at: int) -> None:
        self._at = at
        for number, tab in enumerate(self._tabs):
            tab.display = number == at
        # Only once it is laid out does it know how much room it has.
        self.call_after_refresh(self.owner.paint)

    # ---- actions

    def action_back(self) -> None:
        """Back to the fleet."""
        self.owner.close_host()

    def action_tab(self, place: Place) -> None:
        """Brings a tab to the front."""
        self.show_tab(place)

    def action_next_tab(self, step: int) -> None:
        """The next tab (1) or the one before (-1); the ends are joined."""
        self._show((self._at + step) % len(self._tabs))

    def action_move(self, step: str) -> None:
        """Moves in the tab; to the left and right of one that does not take it are other hosts."""
        if not self.tab.move(step) and step in ("left", "right"):
            self.action_step(1 if step == "right" else -1)

    def action_page(self, direction: int) -> None:
        """A screenful on in the tab."""
        self.tab.page(direction)

    def action_open(self) -> None:
        """Opens what is under the tab's cursor."""
        self.tab.open()

    def action_step(self, step: int) -> None:
        """Another host, in the config's order."""
        names = [host.name for host in self.owner.scene.hosts]
        at = names.index(self.owner.selected) + step
        if 0 <= at < len(names):
            self.owner.selected = names[at]
            self.show_selected()


def _bar(at: int, width: int) -> Line:
    row = Row(width)
    for number, tab in enumerate(TABS):
        row.add(" ▸" if number == at else "  ", "title_on")
        row.add(f"{number + 1} {tab.title}", "title_on" if number == at else "dim").add(" ")
    return row.line()


def _title(host: HostScene, width: int) -> Line:
    view = host.view
    row = Row(width).add(" ").add(view.config.name, "title_on")
    if view.snapshot is not None and view.snapshot.host.hostname != view.config.name:
        row.add(f" · {view.snapshot.host.hostname}", "strong")
    row.add(f" · {view.config.role}", "dim")
    if view.config.production:
        row.add(" · ", "dim").add("production", "warn")
    row.right(*state_words(host), (" ", "text"))
    return row.line()
