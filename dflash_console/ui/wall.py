"""The fleet as panels: one widget a host, laid out in columns, painted together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.containers import VerticalScroll
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement

from dflash_console.ui.drawing.masonry import Box, Direction, assign, boxes, column_count, neighbour
from dflash_console.ui.panel import HostPanel, Panel
from dflash_console.ui.scene import HostScene, Moment

if TYPE_CHECKING:
    from textual.widget import Widget

__all__ = ["Wall"]


class _Masonry(Layout):
    """Puts every shown panel where the wall's boxes say."""

    name = "masonry"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        assert isinstance(parent, Wall)
        parent.pre_layout(self)
        placed = parent.place(size.width)
        return [WidgetPlacement(Region(*box), NULL_OFFSET, NULL_SPACING, panel) for panel, box in placed]


class Wall(VerticalScroll, can_focus=False):
    """Panels of hosts. Holds no state but what is painted: scene and selection come from the screen."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(id="wall")
        self._masonry = _Masonry()
        self._panels = {name: HostPanel(name) for name in names}
        self._shown: list[str] = list(names)
        self._assigned: tuple[int, ...] = ()

    @property
    def layout(self) -> Layout:
        """Columns of panels."""
        return self._masonry

    def compose(self) -> list[Panel]:
        """All the panels; those that a filter hides stay mounted."""
        return list(self._panels.values())

    def paint(self, hosts: Sequence[HostScene], moment: Moment, selected: str) -> None:
        """Draws every host's panel; one that can't be drawn says so in its place."""
        width = self._panel_width(len(hosts))
        if width < 8:
            return
        names = [host.name for host in hosts]
        is_moved = names != self._shown
        if is_moved:
            self._show_only(names)
        for host in hosts:
            is_moved |= self._panels[host.name].paint(
                host, width, moment, host.name == selected, self.size.height
            )
        if is_moved:
            self.refresh(layout=True)

    def _show_only(self, names: list[str]) -> None:
        self._shown = names
        self._assigned = ()
        for name, panel in self._panels.items():
            panel.display = name in names

    def _panel_width(self, panels: int) -> int:
        width = self.scrollable_content_region.width
        return width // column_count(width, panels)

    @property
    def is_scrolled(self) -> bool:
        """Whether there is more than fits on the screen."""
        return self.max_scroll_y > 0

    # ---- places

    def place(self, width: int) -> list[tuple[Panel, Box]]:
        """Where each shown panel goes in a wall `width` cells wide."""
        return [(self._panels[name], box) for name, box in zip(self._shown, self._boxes(width), strict=True)]

    def _boxes(self, width: int) -> list[Box]:
        heights = [len(self._panels[name].lines) for name in self._shown]
        count = column_count(width, len(heights))
        self._assigned = assign(heights, count, self._assigned, self.size.height)
        return boxes(heights, self._assigned, count, width)

    def move(self, selected: str, direction: Direction) -> str:
        """The host to select next; going down in a panel longer than the screen scrolls through it first."""
        if selected not in self._shown:
            return self._shown[0] if self._shown else selected
        at = self._shown.index(selected)
        placed = self._boxes(self.scrollable_content_region.width)
        if direction in ("up", "down") and self._scroll_within(placed[at], direction):
            return selected
        return self._shown[neighbour(placed, at, direction)]

    def _scroll_within(self, box: Box, direction: Direction) -> bool:
        """Shows the rest of a panel that is longer than the screen; says whether there was one."""
        height = self.size.height
        top = round(self.scroll_y)
        step = max(1, height // 2)
        if box.height <= height:
            return False
        if direction == "down" and top + height < box.y + box.height:
            target = min(top + step, box.y + box.height - height)
        elif direction == "up" and top > box.y:
            target = max(top - step, box.y)
        else:
            return False
        self.scroll_to(y=target, animate=False)
        return True

    def reveal(self, name: str) -> None:
        """Scrolls as little as needed to have a host's panel on the screen, its top first."""
        if name not in self._shown:
            return
        box = self._boxes(self.scrollable_content_region.width)[self._shown.index(name)]
        top, height = round(self.scroll_y), self.size.height
        if box.y < top or box.height >= height:
            if not box.y <= top < box.y + box.height or box.y > top:
                self.scroll_to(y=box.y, animate=False)
        elif box.y + box.height > top + height:
            self.scroll_to(y=box.y + box.height - height, animate=False)

    def page(self, direction: int) -> None:
        """Scrolls a screenful."""
        self.scroll_to(y=round(self.scroll_y) + direction * max(1, self.size.height - 2), animate=False)
