"""The widget that everything on the screen is made of: lines of pieces, painted by Textual's Line API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, cast

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from dflash_console.ui.drawing.line import Ink, Line, columns
from dflash_console.ui.drawing.panel import draw_fault, draw_panel
from dflash_console.ui.scene import HostScene, Moment

if TYPE_CHECKING:
    from textual import events

    from dflash_console.ui.app import ConsoleApp

__all__ = ["HostChosen", "HostPanel", "Panel"]


_GROUNDED: frozenset[Ink] = frozenset({"badge", "flag"})


class Panel(Widget):
    """Shows lines. A strip is built when its row is first painted and dropped only when that line changes."""

    ALLOW_SELECT = False
    can_focus = False

    def __init__(self, *, id: str | None = None, ground: Literal["screen", "raised"] = "screen") -> None:
        super().__init__(id=id)
        self.lines: Sequence[Line] = ()
        self._strips: list[Strip | None] = []
        self._cursor: int | None = None
        self._ground = ground

    def show(self, lines: Sequence[Line], cursor: int | None = None) -> bool:
        """Takes new lines, marks the rows that differ, and says whether their number changed.

        The row `cursor` is painted on the cursor's ground.
        """
        before, self.lines = self.lines, lines
        moved = {self._cursor, cursor} if cursor != self._cursor else set()
        self._cursor = cursor
        if len(before) != len(lines):
            self._strips = [None] * len(lines)
            self.refresh(layout=True)
            return True
        changed = [row for row, line in enumerate(lines) if row in moved or line != before[row]]
        for row in changed:
            self._strips[row] = None
        if changed:
            self.refresh(*(Region(0, row, self.size.width, 1) for row in changed))
        return False

    def restyle(self) -> None:
        """Paints all rows anew, for another theme."""
        self._strips = [None] * len(self.lines)
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as there are lines."""
        return len(self.lines)

    def render_line(self, y: int) -> Strip:
        """The row `y`."""
        width = self.size.width
        if not 0 <= y < len(self.lines):
            return Strip.blank(width, self._styles(y)["text"])
        strip = self._strips[y]
        if strip is None or strip.cell_length != width:
            strip = self._strips[y] = self._strip(self.lines[y], self._styles(y), width)
        return strip

    def _styles(self, y: int) -> Mapping[Ink, Style]:
        look = cast("ConsoleApp", self.app).look
        if self._cursor is not None and y == self._cursor:
            return look.on_cursor
        return look.on_raised if self._ground == "raised" else look.on_screen

    @staticmethod
    def _strip(line: Line, styles: Mapping[Ink, Style], width: int) -> Strip:
        """The pieces as segments; spaces join the piece before them, so that the terminal is sent less."""
        merged: list[tuple[str, Ink]] = []
        for text, ink in line:
            if merged and (ink == merged[-1][1] or (text.isspace() and merged[-1][1] not in _GROUNDED)):
                merged[-1] = (merged[-1][0] + text, merged[-1][1])
            elif text:
                merged.append((text, ink))
        segments = [Segment(text, styles[ink]) for text, ink in merged]
        cells = sum(columns(text) for text, _ in merged)
        return Strip(segments, cells).adjust_cell_length(width, styles["text"])


class HostChosen(Message):
    """A host was clicked."""

    def __init__(self, name: str, is_opened: bool) -> None:
        super().__init__()
        self.host_name = name
        self.is_opened = is_opened


class HostPanel(Panel):
    """The panel of one host."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.host_name = name

    def paint(self, host: HostScene, width: int, moment: Moment, is_selected: bool, room: int) -> bool:
        """Draws the host; says whether the panel's height changed."""
        try:
            lines = draw_panel(host, width, moment, is_selected=is_selected, room=room)
        except Exception as error:  # noqa: BLE001  one host's picture must not end the console; it is shown instead
            lines = draw_fault(self.host_name, error, width)
        return self.show(lines)

    def on_click(self, event: events.Click) -> None:
        """Selects the host, and opens it at the second click."""
        event.stop()
        self.post_message(HostChosen(self.host_name, is_opened=event.chain > 1))
