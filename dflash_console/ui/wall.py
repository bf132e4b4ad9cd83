"""The fleet as panels: one widget a host, laid out in columns, painted together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.containers import VerticalScroll
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.message import Message

from dflash_console.ui.drawing.masonry import Box, Direction, assign, boxes, column_count, neighbour
from dflash_console.ui.panel import HostPanel, Panel
from dflash_console.ui.scene import HostScene, Moment

if TYPE_CHECKING:
    from textual.widget import Widget

__all__ = ["Scrolled", "Wall"]

_NARROWEST = 16
"""Cells; a panel narrower than this is not drawn."""
_TURNS = 30
"""Ticks after which a panel out of view is drawn anew at the latest."""


class Scrolled(Message):
    """Other panels came into view."""


class _Masonry(Layout):
    """Puts every shown panel where the wall's boxes say."""

    name = "masonry"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        assert isinstance(parent, Wall)
        parent.pre_layout(self)
        placed = parent.place()
        return [WidgetPlacement(Region(*box), NULL_OFFSET, NULL_SPACING, panel) for panel, box in placed]


def _outline(host: HostScene) -> tuple[object, ...]:
    """What the height of a panel mostly hangs on."""
    view = host.view
    snapshot = view.snapshot
    if snapshot is None:
        return view.link, len(host.findings), len(host.goings)
    counts = len(snapshot.gpu.gpus), len(snapshot.venvs), len(snapshot.units), len(snapshot.paths)
    return view.link.state, view.unread, len(host.findings), counts, len(host.verdicts), len(host.goings)


class Wall(VerticalScroll, can_focus=False):
    """Panels of hosts. Holds no state but what is painted: scene and selection come from the screen."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(id="wall")
        self._masonry = _Masonry()
        self._panels = {name: HostPanel(name) for name in names}
        self._shown: list[str] = list(names)
        self._assigned: tuple[int, ...] = ()
        self._columns = 0
        self._counted_width = 0
        self._drawn_width = 0
        self._turn = 0
        self._outlines: dict[str, tuple[object, ...]] = {}

    @property
    def layout(self) -> Layout:
        """Columns of panels."""
        return self._masonry

    def compose(self) -> list[Panel]:
        """All the panels; those that a filter hides stay mounted."""
        return list(self._panels.values())

    def paint(self, hosts: Sequence[HostScene], moment: Moment, selected: str) -> None:
        """Draws the panels in view, and of the others those whose height may be another now."""
        names = [host.name for host in hosts]
        was_seen = self.shows(selected)
        is_moved = names != self._shown
        if is_moved:
            self._show_only(names)
        self._turn = (self._turn + 1) % _TURNS
        is_all_due, columns = is_moved, 0
        # Heights follow from the width, and the number of columns from the heights; it only grows.
        while (count := self._count_columns()) != columns:
            columns, width = count, self._inner_width() // count
            if width < _NARROWEST:
                return
            is_all_due |= width != self._drawn_width
            self._drawn_width = width
            is_moved |= self._paint_due(hosts, moment, selected, width, is_all_due)
        if is_moved:
            self.refresh(layout=True)
            if was_seen:
                self.call_after_refresh(self.reveal, selected)

    def _paint_due(
        self, hosts: Sequence[HostScene], moment: Moment, selected: str, width: int, is_all_due: bool
    ) -> bool:
        """Draws the panels whose turn it is; says whether the height of one changed."""
        top, room = round(self.scroll_y), self.size.height
        is_moved = False
        for number, (host, box) in enumerate(zip(hosts, self._boxes(), strict=True)):
            is_seen = box.y < top + room and box.y + box.height > top
            outline = _outline(host)
            is_other = outline != self._outlines.get(host.name)
            if is_seen or is_all_due or is_other or number % _TURNS == self._turn:
                self._outlines[host.name] = outline
                is_chosen = host.name == selected
                panel = self._panels[host.name]
                is_moved |= panel.paint(host, width, moment, is_chosen, room, is_seen=is_seen)
        return is_moved

    def _show_only(self, names: list[str]) -> None:
        self._shown = names
        self._columns = 0
        for name, panel in self._panels.items():
            panel.display = name in names

    def _heights(self) -> list[int]:
        return [len(self._panels[name].lines) for name in self._shown]

    def _count_columns(self) -> int:
        """The number of columns from now on; it grows with the panels, and is chosen anew after a resize."""
        before = self._columns if self._inner_width() == self._counted_width else 0
        count = column_count(self._inner_width(), self._heights(), self.size.height, before)
        self._counted_width = self._inner_width()
        if count != self._columns:
            self._columns, self._assigned = count, ()
        return count

    def _inner_width(self) -> int:
        return self.scrollable_content_region.width

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Has what came into view drawn."""
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) != round(new_value):
            self.post_message(Scrolled())

    @property
    def is_scrolled(self) -> bool:
        """Whether there is more than fits on the screen."""
        return self.max_scroll_y > 0

    # ---- places

    def place(self) -> list[tuple[Panel, Box]]:
        """Where each shown panel goes."""
        return [(self._panels[name], box) for name, box in zip(self._shown, self._boxes(), strict=True)]

    def _boxes(self) -> list[Box]:
        count = max(1, self._columns)
        heights = self._heights()
        self._assigned = assign(heights, count, self._assigned, self.size.height)
        return boxes(heights, self._assigned, count, self._inner_width())

    def move(self, selected: str, direction: Direction) -> str:
        """The host to select next; going down in a panel longer than the screen scrolls through it first."""
        if selected not in self._shown:
            return self._shown[0] if self._shown else selected
        at = self._shown.index(selected)
        placed = self._boxes()
        if direction in ("up", "down") and self._scroll_within(placed[at], direction):
            return selected
        return self._shown[neighbour(placed, at, direction)]

    def _scroll_within(self, box: Box, direction: Direction) -> bool:
        """Shows more of a panel that is longer than the screen; says whether there was more."""
        height, top = self.size.height, round(self.scroll_y)
        last = box.y + box.height - height
        if last <= box.y or not box.y - height < top < box.y + box.height:
            return False
        step = max(1, height // 2)
        target = min(top + step, last) if direction == "down" else max(top - step, box.y)
        if target == top or (target > top) != (direction == "down"):
            return False
        self._scroll(target)
        return True

    def reveal(self, name: str) -> None:
        """Scrolls as little as needed to have a host's panel on the screen; of a long one, its top."""
        if name not in self._shown:
            return
        box = self._boxes()[self._shown.index(name)]
        height, top = self.size.height, round(self.scroll_y)
        last = box.y + box.height - height
        if box.height > height:
            if not box.y <= top <= last:
                self._scroll(box.y)
        elif top > box.y:
            self._scroll(box.y)
        elif top < last:
            self._scroll(last)

    def shows(self, name: str) -> bool:
        """Whether any line of a host's panel is on the screen, or will be once it is drawn."""
        if name not in self._shown:
            return False
        box = self._boxes()[self._shown.index(name)]
        if not box.height:
            return True
        return box.y < round(self.scroll_y) + self.size.height and box.y + box.height > round(self.scroll_y)

    def page(self, selected: str, direction: int) -> str:
        """Scrolls a screenful, and gives the host to select: one whose title is on the screen."""
        before = round(self.scroll_y)
        self._scroll(before + direction * max(1, self.size.height - 2))
        top = round(self.scroll_y)
        placed = dict(zip(self._shown, self._boxes(), strict=True))
        titled = [name for name, box in placed.items() if top <= box.y < top + self.size.height]
        if not titled:
            return next((name for name in self._shown if self.shows(name)), selected)
        column = placed[selected].x if selected in placed else 0
        names = [name for name in titled if placed[name].x == column] or titled
        if top == before:
            return names[-1 if direction > 0 else 0]
        return selected if selected in names else names[0 if direction > 0 else -1]

    def _scroll(self, line: int) -> None:
        self.scroll_to(y=line, animate=False, immediate=True)
