"""The help screen, from the registry of actions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen

from dflash_console.ui.actions import Place, actions_in
from dflash_console.ui.drawing.help import draw_help
from dflash_console.ui.panel import Panel

if TYPE_CHECKING:
    from textual.geometry import Size
    from textual.widget import Widget

__all__ = ["HelpScreen"]


class HelpScreen(ModalScreen[None]):
    """The keys of places and the marks; any of the keys that lead out closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "close", show=False),
        Binding("down,j", "scroll(1)", "down", show=False),
        Binding("up,k", "scroll(-1)", "up", show=False),
        Binding("pagedown", "scroll(10)", "a page down", show=False),
        Binding("pageup", "scroll(-10)", "a page up", show=False),
    ]

    def __init__(self, *places: Place) -> None:
        super().__init__()
        self._keys = [
            (
                f"on this screen ({action.place})" if action.place in places else action.place,
                action.shown,
                action.help,
            )
            for action in actions_in(*places)
        ]
        self._panel = Panel(id="help", ground="raised")

    def compose(self) -> Iterator[Widget]:
        """A box over the screen below."""
        box = VerticalScroll(self._panel, id="help-box", can_focus=False)
        box.border_title = "help"
        box.border_subtitle = "esc closes"
        yield box

    def _screen_resized(self, size: Size) -> None:
        """As for the console's other screens."""
        super()._screen_resized(self.app.size)

    def on_mount(self) -> None:
        """Draws once the size is known."""
        self.call_after_refresh(self.paint)

    def on_resize(self) -> None:
        """Draws for the new width."""
        self.call_after_refresh(self.paint)

    def paint(self) -> None:
        """Draws the help for the present width."""
        width = self.query_one("#help-box").content_size.width - 1
        if width > 8:
            self._panel.show(draw_help(self._keys, width))

    def action_scroll(self, lines: int) -> None:
        """Scrolls by lines."""
        box = self.query_one("#help-box")
        box.scroll_to(y=round(box.scroll_y) + lines, animate=False)
