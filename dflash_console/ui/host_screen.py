"""The second screen: all that is known of one host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from textual.containers import VerticalScroll

from dflash_console.ui.actions import bindings
from dflash_console.ui.drawing.host_page import draw_host_page
from dflash_console.ui.drawing.line import Line, Row
from dflash_console.ui.drawing.panel import state_words
from dflash_console.ui.panel import Panel
from dflash_console.ui.scene import HostScene
from dflash_console.ui.screen import ConsoleScreen

if TYPE_CHECKING:
    from textual.binding import BindingType
    from textual.widget import Widget

__all__ = ["HostScreen"]


class HostScreen(ConsoleScreen):
    """The selected host in sections, live."""

    place = "host"
    BINDINGS: ClassVar[list[BindingType]] = bindings("host")

    def __init__(self) -> None:
        super().__init__()
        self._title = Panel(id="title")
        self._page = Panel(id="page")
        self._scroll = VerticalScroll(self._page, id="page-scroll", can_focus=False)

    def compose(self) -> Iterator[Widget]:
        """Header, the host's title, its page, footer."""
        yield self.header
        yield self._title
        yield self._scroll
        yield self.footer

    def paint(self) -> None:
        """Draws the selected host; a page that can't be drawn says why."""
        self.paint_frame(hint=self._position())
        scene = self.owner.scene
        host = scene.host(self.owner.selected)
        width = self._scroll.scrollable_content_region.width - 2
        if host is None or width < 8:
            return
        self._title.show([_title(host, self.size.width)])
        try:
            lines = draw_host_page(host, width, scene.moment)
        except Exception as error:  # noqa: BLE001  one host's page must not end the console; the error is shown instead
            text = f"  this page could not be drawn: {type(error).__name__}: {error}"
            lines = [Row(width).add(text, "bad").line()]
        self._page.show(lines)

    def show_selected(self) -> None:
        """Shows the selected host from its top."""
        self._to(0)
        self.owner.paint()

    def _position(self) -> str:
        most = self._scroll.max_scroll_y
        return f"{round(self._scroll.scroll_y * 100 / most)} %" if most else ""

    # ---- actions

    def action_back(self) -> None:
        """Back to the fleet."""
        self.owner.close_host()

    def action_scroll_by(self, lines: int) -> None:
        """Scrolls by lines."""
        self._to(round(self._scroll.scroll_y) + lines)

    def action_page(self, direction: int) -> None:
        """Scrolls a screenful."""
        self._to(round(self._scroll.scroll_y) + direction * max(1, self._scroll.size.height - 2))

    def action_scroll_to_end(self, direction: int) -> None:
        """To the top (-1) or to the bottom (1)."""
        self._to(0 if direction < 0 else self._scroll.max_scroll_y)

    def action_step(self, step: int) -> None:
        """Another host, in the config's order."""
        names = [host.name for host in self.owner.scene.hosts]
        at = names.index(self.owner.selected) + step
        if 0 <= at < len(names):
            self.owner.selected = names[at]
            self.show_selected()

    def _to(self, line: int) -> None:
        self._scroll.scroll_to(y=line, animate=False)
        self.call_after_refresh(self.owner.paint)


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
