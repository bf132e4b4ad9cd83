"""The fleet as a table with the selected host's panel beside it, for more hosts than panels are good for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from textual.containers import Container, VerticalScroll
from textual.message import Message

from dflash_console.ui.drawing.line import Line, Row
from dflash_console.ui.drawing.masonry import Direction
from dflash_console.ui.drawing.table import TablePlan, draw_row, draw_titles, plan_table
from dflash_console.ui.panel import HostChosen, HostPanel, Panel
from dflash_console.ui.scene import HostScene, Moment

if TYPE_CHECKING:
    from textual import events
    from textual.widget import Widget

__all__ = ["MOST_PANELS", "Arranged", "Table"]

MOST_PANELS = 64
"""Fleets with more hosts than this are shown as a table."""

_BESIDE = 150
_BELOW = 36


class Arranged(Message):
    """The table's parts have other places now."""


class _Rows(Panel):
    """The rows in view; which ones these are is the table's business."""

    def on_click(self, event: events.Click) -> None:
        """Selects the host of the row, and opens it at the second click."""
        event.stop()
        table = self.query_ancestor(Table)
        if table is not None and (name := table.name_at(event.y)) is not None:
            self.post_message(HostChosen(name, is_opened=event.chain > 1))


class Table(Container):
    """One line a host; only the lines on the screen are drawn."""

    def __init__(self) -> None:
        super().__init__(id="table")
        self._titles = Panel(id="titles")
        self._rows = _Rows(id="rows")
        self._panel = HostPanel("")
        self._top = 0
        self._names: list[str] = []

    def compose(self) -> Iterator[Widget]:
        """Titles and rows, and the selected host's panel."""
        yield Container(self._titles, self._rows, id="list")
        with VerticalScroll(id="beside", can_focus=False):
            yield self._panel

    def paint(self, hosts: Sequence[HostScene], moment: Moment, selected: str) -> None:
        """Draws the rows in view and the selected host's panel."""
        self._names = [host.name for host in hosts]
        if self._arrange():
            self.post_message(Arranged())
        width, height = self._rows.size
        if width < 8:
            return
        plan = plan_table(hosts, width)
        at = self._names.index(selected) if selected in self._names else -1
        self._titles.show([draw_titles(plan, width)])
        self._top = max(0, min(self._top, len(hosts) - height))
        shown = hosts[self._top : self._top + height]
        self._rows.show(
            [_safe_row(host, plan, width, moment, host.name == selected) for host in shown],
            cursor=at - self._top if at >= 0 else None,
        )
        if at >= 0 and self._panel.display and self._panel.container_size.width > 8:
            self._panel.host_name = selected
            place = self.query_one("#beside").scrollable_content_region
            self._panel.paint(hosts[at], place.width, moment, True, place.height)

    @property
    def is_scrolled(self) -> bool:
        """Whether there is more than fits on the screen."""
        return len(self._names) > self._rows.size.height

    def _arrange(self) -> bool:
        """Puts the panel to the right where the screen is wide, below where it is only high, else away.

        Says whether it is elsewhere than before.
        """
        width, height = self.size
        place = "-beside" if width >= _BESIDE else "-below" if height >= _BELOW else "-alone"
        if self.has_class(place):
            return False
        self.remove_class("-beside", "-below", "-alone")
        self.add_class(place)
        return True

    def move(self, selected: str, direction: Direction) -> str:
        """The host to select next."""
        if selected not in self._names:
            return self._names[0] if self._names else selected
        at = self._names.index(selected)
        last = len(self._names) - 1
        step = {"up": -1, "down": 1, "first": -at, "last": last - at}.get(direction, 0)
        return self._names[max(0, min(last, at + step))]

    def reveal(self, name: str) -> None:
        """Moves the rows as little as needed to have the host among them."""
        if name not in self._names:
            return
        at, height = self._names.index(name), self._rows.size.height
        self._top = max(0, min(max(self._top, at - height + 1), at))

    def shows(self, name: str) -> bool:
        """Whether the host's row is on the screen."""
        at = self._names.index(name) if name in self._names else -1
        return self._top <= at < self._top + self._rows.size.height

    def page(self, selected: str, direction: int) -> str:
        """The host a screenful on."""
        if selected not in self._names:
            return self._names[0] if self._names else selected
        at = self._names.index(selected) + direction * max(1, self._rows.size.height - 1)
        name = self._names[max(0, min(len(self._names) - 1, at))]
        self.reveal(name)
        return name

    def name_at(self, row: int) -> str | None:
        """The host in a row of the screen."""
        at = self._top + row
        return self._names[at] if 0 <= at < len(self._names) else None


def _safe_row(host: HostScene, plan: TablePlan, width: int, moment: Moment, is_selected: bool) -> Line:
    try:
        return draw_row(host, plan, width, moment, is_selected)
    except Exception as error:  # noqa: BLE001  one host's row must not end the console; the error stands in its place
        row = Row(width).add("  ✗ ", "bad").add(host.name, "title")
        return row.add(f"  could not be drawn: {type(error).__name__}: {error}", "bad").line()
