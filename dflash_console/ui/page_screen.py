"""A screen that lies over another one: a title and a page of lines, some of which can be opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.containers import Container

from dflash_console.ui.actions import Place, bindings
from dflash_console.ui.drawing.evidence import draw_evidence
from dflash_console.ui.drawing.line import Line, Row
from dflash_console.ui.drawing.verdicts import CHECK_MARKS
from dflash_console.ui.opened import Opens, Shown
from dflash_console.ui.panel import Panel
from dflash_console.ui.rows import Rows, RowsMoved, RowsOpened
from dflash_console.ui.screen import ConsoleScreen
from dflash_console.verdict import Check

if TYPE_CHECKING:
    from textual.binding import BindingType
    from textual.widget import Widget

__all__ = ["CheckScreen", "PageScreen"]


class PageScreen(ConsoleScreen):
    """Says in its own words what stands on the page; the keys that move on it are the same for all."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("page")
    is_in_front = True

    def __init__(self) -> None:
        super().__init__()
        self._head = Panel(id="page-title")
        self.rows = Rows(id="page-rows")

    @property
    def places(self) -> tuple[Place, ...]:
        """The keys of every page."""
        return ("page",)

    def compose(self) -> Iterator[Widget]:
        """Header, title, page, footer."""
        yield self.header
        yield self._head
        yield Container(self.rows, id="page-frame")
        yield self.footer

    def page_title(self, width: int) -> Line:
        """What the page is about, in a line."""
        raise NotImplementedError

    def page_head(self, width: int) -> Sequence[Line]:
        """What stays above the page, as wide as the screen: its title."""
        return [self.page_title(width)]

    def page_lines(self, width: int) -> Sequence[Shown]:
        """All of the page."""
        raise NotImplementedError

    def page_keys(self) -> Sequence[tuple[str, str]] | None:
        """What stands in the footer instead of the places' keys."""
        return None

    def paint(self) -> None:
        """Draws the page; a fault in it is shown in its place."""
        width = self.rows.size.width
        if width >= 12:
            self._head.show(self.page_head(self.size.width))
            self.rows.fill(self._drawn(width))
        self.paint_frame(hint=self.hint, keys=self.page_keys())

    @property
    def hint(self) -> str:
        """How far it is scrolled."""
        return self.rows.position

    def _drawn(self, width: int) -> Sequence[Shown]:
        try:
            return self.page_lines(width)
        except Exception as error:  # noqa: BLE001  a fault in one page must not end the console; it is shown instead
            words = f"  this page could not be drawn: {type(error).__name__}: {error}"
            return [Shown(Row(width).add(words, "bad").line())]

    def show_selected(self) -> None:
        """Another host was selected: its own screen shows it."""
        self.owner.open_host(self.owner.selected)

    def open(self, opens: Opens) -> None:
        """Opens what is under the cursor."""
        if isinstance(opens.what, Check):
            self.app.push_screen(CheckScreen(opens.of, opens.what))

    # ---- actions

    def action_back(self) -> None:
        """Back to the screen below."""
        self.owner.close_front()

    def action_move(self, step: str) -> None:
        """Moves the cursor, or scrolls where nothing can be opened."""
        self.rows.move(step)
        self.owner.paint()

    def action_page(self, direction: int) -> None:
        """A screenful on."""
        self.rows.page(direction)
        self.owner.paint()

    def action_open(self) -> None:
        """Opens what is under the cursor."""
        if (opens := self.rows.chosen) is not None:
            self.open(opens)

    def on_rows_opened(self, event: RowsOpened) -> None:
        """By the mouse."""
        event.stop()
        self.action_open()

    def on_rows_moved(self, event: RowsMoved) -> None:
        """By the mouse."""
        event.stop()
        self.owner.paint()


class CheckScreen(PageScreen):
    """The whole evidence of one check, as it was when it was opened."""

    def __init__(self, of: str, check: Check) -> None:
        super().__init__()
        self._of = of
        self._check = check
        self._kept: tuple[int, Sequence[Shown]] | None = None

    def page_title(self, width: int) -> Line:
        """What it is about, the check, its state."""
        mark, ink = CHECK_MARKS[self._check.state]
        row = Row(width).add(" ").add(self._of, "title_on").add("  ").add(self._check.name, "label")
        return row.add(f"  {mark} {self._check.state}", ink).line()

    def page_lines(self, width: int) -> Sequence[Shown]:
        """Detail and evidence, drawn once for a width."""
        if self._kept is None or self._kept[0] != width:
            lines = draw_evidence(self._check, width - 2)
            self._kept = (width, [Shown(((" ", "text"), *line)) for line in lines])
        return self._kept[1]
