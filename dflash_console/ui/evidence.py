"""The screen of one check: its whole evidence, live while the check is made anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.containers import VerticalScroll

from dflash_console.ui.actions import Place as ActionPlace
from dflash_console.ui.actions import bindings
from dflash_console.ui.drawing.evidence import draw_evidence, draw_evidence_title
from dflash_console.ui.drawing.line import Line, Row
from dflash_console.ui.drawing.matrix import Place
from dflash_console.ui.drawing.verdict_lines import verdict_on
from dflash_console.ui.panel import Panel
from dflash_console.ui.screen import ConsoleScreen
from dflash_console.ui.verifying import Target
from dflash_console.verdict import Check

if TYPE_CHECKING:
    from textual.binding import BindingType
    from textual.widget import Widget

__all__ = ["EvidenceScreen"]


class EvidenceScreen(ConsoleScreen):
    """All that a host said of one check in one environment."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("evidence")
    is_in_front = True

    def __init__(self, host: str, place: Place) -> None:
        super().__init__()
        self._host = host
        self._place = place
        self._check: Check | None = None
        self._drawn: tuple[int, Check] | None = None
        self._title = Panel(id="evidence-title")
        self._page = Panel(id="page")
        self._scroll = VerticalScroll(self._page, id="page-scroll", can_focus=False)

    @property
    def places(self) -> tuple[ActionPlace, ...]:
        """Its own keys."""
        return ("evidence",)

    @property
    def targets(self) -> Sequence[Target]:
        """The environment that the check is about."""
        return [Target(self._host, self._place.venv)]

    def compose(self) -> Iterator[Widget]:
        """Header, what it is about, the evidence, footer."""
        yield self.header
        yield self._title
        yield self._scroll
        yield self.footer

    def paint(self) -> None:
        """Draws the newest answer; while there is none, the last one and that it is."""
        self.paint_frame()
        scene = self.owner.scene
        host = scene.host(self._host)
        verdict = verdict_on(host.verdicts, self._place.venv) if host is not None else None
        checks = verdict.checks if verdict is not None else ()
        found = next((check for check in checks if check.name == self._place.check), None)
        check = self._check = found or self._check
        width = self._scroll.scrollable_content_region.width - 2
        if check is None or width < 8:
            return
        about = verdict if found is not None else None
        wall, position = scene.moment.wall, self._position()
        self._title.show(
            draw_evidence_title(self._host, self._place.venv, check, about, self.size.width, wall, position)
        )
        if self._drawn is None or self._drawn[0] != width or self._drawn[1] is not check:
            self._drawn = (width, check)
            self._page.show(self._lines(check, width))

    def _lines(self, check: Check, width: int) -> list[Line]:
        try:
            return draw_evidence(check, width)
        except Exception as error:  # noqa: BLE001  evidence must not end the console; the error is shown instead
            text = f"this evidence could not be drawn: {type(error).__name__}: {error}"
            return [Row(width).add(text, "bad").line()]

    def show_selected(self) -> None:
        """Another host was selected: its own screen shows it."""
        self.owner.open_host(self.owner.selected)

    def _position(self) -> str:
        most = self._scroll.max_scroll_y
        return f"{round(self._scroll.scroll_y * 100 / most)} %" if most else ""

    # ---- actions

    def action_back(self) -> None:
        """Back to the host."""
        self.owner.close_front()

    def action_scroll_by(self, lines: int) -> None:
        """Scrolls by lines."""
        self._to(round(self._scroll.scroll_y) + lines)

    def action_page(self, direction: int) -> None:
        """Scrolls a screenful."""
        self._to(round(self._scroll.scroll_y) + direction * max(1, self._scroll.size.height - 2))

    def action_scroll_to_end(self, direction: int) -> None:
        """To the top (-1) or to the bottom (1)."""
        self._to(0 if direction < 0 else self._scroll.max_scroll_y)

    def _to(self, line: int) -> None:
        self._scroll.scroll_to(y=line, animate=False)
        self.call_after_refresh(self.owner.paint)
