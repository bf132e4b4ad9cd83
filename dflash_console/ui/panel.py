"""The widget that everything on the screen is made of: lines of pieces, painted by Textual's Line API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from rich.segment import Segment
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from dflash_console.ui.drawing.line import Ink, Line, cells_of
from dflash_console.ui.drawing.panel import draw_fault, draw_panel
from dflash_console.ui.scene import HostScene, Moment

if TYPE_CHECKING:
    from rich.style import Style
    from textual import events
    from textual.filter import LineFilter

    from dflash_console.ui.app import ConsoleApp

__all__ = ["HostChosen", "HostPanel", "Panel"]


Ground: TypeAlias = Literal["screen", "raised", "cursor"]

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
        self._filters: Sequence[LineFilter] = ()
        self._worn: dict[Ground, Mapping[Ink, Style | None]] = {}

    def show(self, lines: Sequence[Line], cursor: int | None = None, *, is_seen: bool = True) -> bool:
        """Takes new lines, marks the rows that differ, and says whether their number changed.

        The row `cursor` is painted on the cursor's ground. Of a panel that is not seen nothing is marked: its
        rows are painted when it comes into view.
        """
        before, self.lines = self.lines, lines
        moved = {self._cursor, cursor} if cursor != self._cursor else set()
        self._cursor = cursor
        if len(before) != len(lines):
            self._strips = [None] * len(lines)
            self.refresh(layout=True)
            return True
        changed = [row for row, line in enumerate(lines) if line != before[row] or row in moved]
        for row in changed:
            self._strips[row] = None
        if changed and is_seen:
            width = self.size.width
            self.refresh(*(Region(0, row, width, 1) for row in changed))
        return False

    def restyle(self) -> None:
        """Paints all rows anew, for another theme."""
        self._forget()
        self.refresh()

    def _forget(self) -> None:
        self._strips = [None] * len(self.lines)
        self._worn = {}

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as there are lines."""
        return len(self.lines)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows of `crop`.

        Textual's own way here dresses each row in borders, padding and opacity, of which a panel has none, and
        costs as much as all the rest of a paint.
        """
        filters, width = self.app.get_line_filters(), self.size.width
        if filters != self._filters:
            self._filters = filters
            self._forget()
        strips = [self._row(y, width) for y in crop.line_range]
        left, right = crop.column_span
        return strips if (left, right) == (0, width) else [strip.crop(left, right) for strip in strips]

    def render_line(self, y: int) -> Strip:
        """The row `y`."""
        return self.render_lines(Region(0, y, self.size.width, 1))[0]

    def _row(self, y: int, width: int) -> Strip:
        if not 0 <= y < len(self.lines):
            return self._strip((), y, width)
        strip = self._strips[y]
        if strip is None or strip.cell_length != width:
            strip = self._strips[y] = self._strip(self.lines[y], y, width)
        return strip

    def _strip(self, line: Line, y: int, width: int) -> Strip:
        """The pieces as segments; spaces join the piece before them, so that the terminal is sent less."""
        styles = self._styles("cursor" if y == self._cursor else self._ground)
        cells = cells_of(line)
        merged: list[tuple[str, Ink]] = []
        for text, ink in (*line, (" " * (width - cells), "text")):
            if merged and (ink == merged[-1][1] or (text.isspace() and merged[-1][1] not in _GROUNDED)):
                merged[-1] = (merged[-1][0] + text, merged[-1][1])
            elif text:
                merged.append((text, ink))
        segments = [Segment(text, styles[ink]) for text, ink in merged]
        return Strip(segments, max(cells, width)).adjust_cell_length(width)

    def _styles(self, ground: Ground) -> Mapping[Ink, Style | None]:
        """Every ink on a ground, as Textual's filters (for NO_COLOR and terminals of few colours) leave it."""
        known = self._worn.get(ground)
        if known is None:
            look = cast("ConsoleApp", self.app).look
            inks = {"screen": look.on_screen, "raised": look.on_raised, "cursor": look.on_cursor}[ground]
            segments = [Segment("", style) for style in inks.values()]
            for line_filter in self._filters:
                segments = line_filter.apply(segments, look.colours["background"])
            styles = [segment.style for segment in segments]
            known = self._worn[ground] = dict(zip(inks, styles, strict=True))
        return known


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

    def paint(
        self,
        host: HostScene,
        width: int,
        moment: Moment,
        is_selected: bool,
        room: int,
        *,
        is_seen: bool = True,
    ) -> bool:
        """Draws the host; says whether the panel's height changed."""
        try:
            lines = draw_panel(host, width, moment, is_selected=is_selected, room=room)
        except Exception as error:  # noqa: BLE001  one host's picture must not end the console; it is shown instead
            lines = draw_fault(self.host_name, error, width)
        return self.show(lines, is_seen=is_seen)

    def on_click(self, event: events.Click) -> None:
        """Selects the host, and opens it at the second click."""
        event.stop()
        self.post_message(HostChosen(self.host_name, is_opened=event.chain > 1))
