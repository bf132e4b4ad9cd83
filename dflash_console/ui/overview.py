"""The first tab of the host screen: all that is known of a host, in sections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.containers import VerticalScroll

from dflash_console.ui.drawing.host_page import draw_host_page
from dflash_console.ui.drawing.line import Row
from dflash_console.ui.panel import Panel
from dflash_console.ui.tab import Tab

if TYPE_CHECKING:
    from textual.widget import Widget

    from dflash_console.ui.scene import HostScene, Moment

__all__ = ["Overview"]


class Overview(Tab):
    """The host in sections, scrolled line by line."""

    place = "overview"
    title = "overview"

    def __init__(self) -> None:
        super().__init__()
        self._page = Panel(id="page")
        self._scroll = VerticalScroll(self._page, id="page-scroll", can_focus=False)

    def compose(self) -> Iterator[Widget]:
        """The page in its window."""
        yield self._scroll

    @property
    def hint(self) -> str:
        """How far it is scrolled, in percent."""
        most = self._scroll.max_scroll_y
        return f"{round(self._scroll.scroll_y * 100 / most)} %" if most else ""

    def paint(self, host: HostScene, moment: Moment) -> None:
        """Draws the host; a page that can't be drawn says why."""
        width = self._scroll.scrollable_content_region.width - 2
        if width < 8:
            return
        try:
            lines = draw_host_page(host, width, moment)
        except Exception as error:  # noqa: BLE001  one host's page must not end the console; the error is shown instead
            text = f"  this page could not be drawn: {type(error).__name__}: {error}"
            lines = [Row(width).add(text, "bad").line()]
        self._page.show(lines)

    def start(self) -> None:
        """From the top."""
        self._to(0)

    def move(self, step: str) -> bool:
        """Scrolls by a line, or to an end; to the left and to the right are other hosts."""
        if step in ("left", "right"):
            return False
        at = round(self._scroll.scroll_y)
        self._to({"up": at - 1, "down": at + 1, "first": 0}.get(step, self._scroll.max_scroll_y))
        return True

    def page(self, direction: int) -> None:
        """Scrolls a screenful."""
        self._to(round(self._scroll.scroll_y) + direction * max(1, self._scroll.size.height - 2))

    def _to(self, line: int) -> None:
        self._scroll.scroll_to(y=line, animate=False)
        self.call_after_refresh(self.owner.paint)
