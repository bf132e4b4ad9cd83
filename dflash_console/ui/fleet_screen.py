"""The first screen: every host, as panels or as a table, with a filter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.widgets import Input

from dflash_console.ui.actions import Place, bindings
from dflash_console.ui.drawing.line import Line, Row
from dflash_console.ui.drawing.masonry import Direction
from dflash_console.ui.panel import HostChosen, Panel
from dflash_console.ui.scene import HostScene, matching
from dflash_console.ui.screen import ConsoleScreen
from dflash_console.ui.table import MOST_PANELS, Arranged, Table
from dflash_console.ui.verifying import Target
from dflash_console.ui.wall import Scrolled, Wall

if TYPE_CHECKING:
    from textual.binding import BindingType
    from textual.widget import Widget

__all__ = ["FleetScreen"]


_FILTER_KEYS = (("enter", "keep the filter"), ("esc", "show all hosts"))


class FleetScreen(ConsoleScreen):
    """All hosts, or those that the filter lets through."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("fleet")

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._hosts: Wall | Table = Wall(names) if len(names) <= MOST_PANELS else Table()
        self._nothing = Panel(id="nothing")
        self._filter = Input(id="filter", placeholder="words of name, hostname, role or state", compact=True)
        self.filter_text = ""

    @property
    def places(self) -> tuple[Place, ...]:
        """The fleet's keys."""
        return ("fleet",)

    @property
    def targets(self) -> Sequence[Target]:
        """The marked hosts, shown or not; without any, the selected one."""
        marked = [Target(host.name) for host in self.owner.scene.hosts if host.name in self.owner.marked]
        return marked or super().targets

    @property
    def target(self) -> Target | None:
        """The selected host."""
        return next(iter(super().targets), None)

    def compose(self) -> Iterator[Widget]:
        """Header, hosts, filter, footer."""
        yield self.header
        yield self._hosts
        yield self._nothing
        yield self._filter
        yield self.footer

    def on_mount(self) -> None:
        """The filter shows when it is asked for."""
        self._filter.display = False
        self._nothing.display = False

    def paint(self) -> None:
        """Draws the hosts that the filter lets through; the selection stays among them."""
        scene = self.owner.scene
        shown = self.candidates()
        names = [host.name for host in shown]
        if names and self.owner.selected not in names:
            self.owner.selected = names[0]
        self._hosts.display = bool(shown)
        self._nothing.display = not shown
        if shown:
            self._hosts.paint(shown, scene.moment, self.owner.selected)
        else:
            self._nothing.show(_no_match(self.filter_text, self.size.width))
        self.paint_frame(
            filter_text=self.filter_text,
            shown=len(shown),
            hint=self._below(names),
            keys=_FILTER_KEYS if self._filter.display else None,
        )

    def candidates(self) -> Sequence[HostScene]:
        """The hosts that the filter lets through."""
        marked = self.owner.marked
        hosts = self.owner.scene.hosts
        if marked:
            hosts = tuple(host._replace(is_marked=True) if host.name in marked else host for host in hosts)
        return matching(hosts, self.filter_text)

    def show_selected(self) -> None:
        """Has the selected host on the screen."""
        self._select(self.owner.selected)

    def on_resize(self) -> None:
        """Draws for the new size, the selected host in view."""
        self.call_after_refresh(self._paint_and_reveal)

    def _paint_and_reveal(self) -> None:
        self.owner.paint()
        self.call_after_refresh(self.show_selected)

    def _below(self, names: Sequence[str]) -> str:
        """Which of the hosts is selected, where not all of them fit on the screen."""
        if self.owner.selected not in names or not self._hosts.is_scrolled:
            return ""
        return f"{names.index(self.owner.selected) + 1}/{len(names)}"

    # ---- actions

    def action_move(self, direction: str) -> None:
        """Selects the next host in a direction."""
        self._select(self._hosts.move(self.owner.selected, cast(Direction, direction)))

    def action_page(self, direction: int) -> None:
        """Scrolls a screenful; the selection comes along."""
        self.owner.selected = self._hosts.page(self.owner.selected, direction)
        self.owner.paint()

    def action_open(self) -> None:
        """Opens the selected host; one that was scrolled out of sight is shown first."""
        if self._hosts.shows(self.owner.selected):
            self.owner.open_host(self.owner.selected)
        else:
            self._select(self.owner.selected)

    def action_filter(self) -> None:
        """Asks for words."""
        self._filter.display = True
        self._filter.focus()
        self.owner.paint()

    def action_mark(self) -> None:
        """Marks the selected host or unmarks it; one that was scrolled out of sight is shown first."""
        name = self.owner.selected
        if name and self._hosts.display and self._hosts.shows(name):
            self.owner.marked ^= {name}
            self.owner.paint()
        else:
            self._select(name)

    def action_clear_filter(self) -> None:
        """Shows all hosts again; when they are shown, unmarks them."""
        if not self._filter.display and not self.filter_text:
            self.owner.marked = frozenset()
        self._filter.value = ""
        self._close_filter()

    @on(Input.Changed)
    def _filter_changed(self, event: Input.Changed) -> None:
        self.filter_text = event.value
        self.owner.paint()
        self.call_after_refresh(self._reveal)

    @on(Input.Submitted)
    def _close_filter(self) -> None:
        self._filter.display = False
        self.set_focus(None)
        self.owner.paint()

    @on(Scrolled)
    def _scrolled(self) -> None:
        self.owner.paint()

    @on(Arranged)
    def _arranged(self) -> None:
        self.call_after_refresh(self.owner.paint)

    @on(HostChosen)
    def _host_chosen(self, event: HostChosen) -> None:
        self._select(event.host_name)
        if event.is_opened:
            self.action_open()

    def _reveal(self) -> None:
        self._hosts.reveal(self.owner.selected)

    def _select(self, name: str) -> None:
        self.owner.selected = name
        self._hosts.reveal(name)
        self.owner.paint()


def _no_match(filter_text: str, width: int) -> list[Line]:
    row = Row(max(0, width - 2)).add("  no host matches ", "dim").add(filter_text, "strong")
    return [(), row.line(), Row(max(0, width - 2)).add("  esc shows all hosts again", "dim").line()]
