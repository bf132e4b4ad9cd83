"""The environments tab of the host screen: which checks each environment passed, and the one under the cursor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from dflash_console.ui.drawing.environments import (
    DETAIL,
    HEAD,
    cursor_row,
    draw_detail,
    draw_matrix,
    draw_no_environments,
)
from dflash_console.ui.drawing.line import Line
from dflash_console.ui.drawing.matrix import (
    Matrix,
    Place,
    Plan,
    Step,
    matrix_of,
    moved,
    place_in,
    plan_matrix,
)
from dflash_console.ui.panel import Panel
from dflash_console.ui.tab import Tab

if TYPE_CHECKING:
    from textual import events
    from textual.widget import Widget

    from dflash_console.ui.scene import HostScene, Moment

__all__ = ["Environments"]


class _Cells(Panel):
    """Matrix and detail; a click selects a cell, a second one opens it."""

    def on_click(self, event: events.Click) -> None:
        """Tells the tab."""
        event.stop()
        tab = self.query_ancestor(Environments)
        if tab is not None:
            tab.click(event.x, event.y, is_opened=event.chain > 1)


class Environments(Tab):
    """The matrix of a host's environments, with a cursor that keeps to its cell while rows come and go."""

    place = "environments"
    title = "environments"

    def __init__(self) -> None:
        super().__init__()
        self._cells = _Cells(id="cells")
        self._host = ""
        self._matrix: Matrix | None = None
        self._plan: Plan | None = None
        self._place: Place | None = None

    def compose(self) -> Iterator[Widget]:
        """One panel for all of it."""
        yield self._cells

    @property
    def venv(self) -> str | None:
        """The environment under the cursor."""
        return self._place.venv if self._place is not None else None

    def paint(self, host: HostScene, moment: Moment) -> None:
        """Draws the host's matrix; one that can't be drawn says why."""
        if host.name != self._host:
            self.start()
            self._host = host.name
        width, height = self._cells.size
        if width < 8 or height < 2:
            return
        cursor: int | None = None
        try:
            lines, cursor = self._drawn(host, width, height, moment.wall)
        except Exception as error:  # noqa: BLE001  one host's matrix must not end the console; the error is shown instead
            lines = draw_no_environments(
                width, f"this matrix could not be drawn: {type(error).__name__}: {error}"
            )
        self._cells.show([*lines, *[()] * (height - len(lines))][:height], cursor)

    def _drawn(self, host: HostScene, width: int, height: int, wall: float) -> tuple[list[Line], int | None]:
        before, self._matrix = self._matrix, matrix_of(host, self._matrix.checks if self._matrix else ())
        matrix = self._matrix
        place = self._place = place_in(matrix, self._place, before)
        if place is None:
            return draw_no_environments(width, _why_none(host)), None
        rows = max(1, height - HEAD - DETAIL)
        plan = self._plan = plan_matrix(matrix, width, rows, place, self._plan)
        lines = draw_matrix(matrix, plan, place, width)
        lines += draw_detail(matrix, place, width, height - len(lines), wall)
        return lines, cursor_row(matrix, plan, place)

    def start(self) -> None:
        """Forgets the cursor: it goes to what is wrong first."""
        self._matrix = self._plan = self._place = None

    def move(self, step: str) -> bool:
        """Moves the cursor by a cell, or to the first or last check."""
        self._go(cast(Step, step))
        return True

    def page(self, direction: int) -> None:
        """Moves the cursor by a screenful of checks."""
        self._go(direction * max(1, (self._plan.rows if self._plan else 2) - 1))

    def _go(self, step: Step | int) -> None:
        if self._matrix is not None and self._place is not None:
            self._place = moved(self._matrix, self._place, step)
            self.owner.paint()

    def open(self) -> None:
        """The whole evidence of the cell under the cursor."""
        if self._matrix is None or self._place is None:
            return
        if self._matrix.check(self._place) is not None:
            self.owner.open_evidence(self._host, self._place)
        else:
            is_told = self._place.venv in self._matrix.verdicts
            words = "there is no evidence for this" if is_told else "nothing was said of this yet; v verifies"
            self.owner.notify(words, timeout=2, markup=False)

    def click(self, x: int, y: int, *, is_opened: bool) -> None:
        """Puts the cursor into the cell at a place of the panel."""
        if self._matrix is None or self._plan is None:
            return
        found = self._plan.at(x, y - HEAD)
        if found is not None:
            column, row = found
            self._place = Place(self._matrix.venvs[column], self._matrix.checks[row])
            self.owner.paint()
            if is_opened:
                self.open()


def _why_none(host: HostScene) -> str:
    if host.view.snapshot is None:
        return "nothing is known of this host yet"
    if "venvs" in host.view.unread:
        return "reading…"
    return 'no environment was found; name it in the config: venvs = ["/path"]'
