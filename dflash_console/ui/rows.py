"""A page of lines of any number, some of which can be opened: only those in sight are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.message import Message

from dflash_console.ui.opened import Opens, Shown
from dflash_console.ui.panel import Panel

if TYPE_CHECKING:
    from textual import events

__all__ = ["Rows", "RowsMoved", "RowsOpened"]

_WHEEL = 3


class RowsMoved(Message):
    """The page was scrolled, or the cursor moved, by the mouse."""


class RowsOpened(Message):
    """The line under the cursor is to be opened."""


class Rows(Panel):
    """A window on lines; the cursor stops at those that can be opened, and keeps to what it is on while they change."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._all: Sequence[Shown] = ()
        self._top = 0
        self._at: int | None = None

    @property
    def chosen(self) -> Opens | None:
        """What the line under the cursor opens; None when none can be opened."""
        return self._all[self._at].opens if self._at is not None and self._at < len(self._all) else None

    @property
    def position(self) -> str:
        """How far it is scrolled; empty while all is in sight."""
        most = self._most()
        return f"{round(self._top * 100 / most)} %" if most else ""

    def fill(self, lines: Sequence[Shown]) -> None:
        """Takes new lines; the cursor stays on the one that opens the same."""
        before = self.chosen
        old, self._all = self._at, lines
        if before is not None and not (
            old is not None
            and old < len(lines)
            and (there := lines[old].opens) is not None
            and there.key == before.key
        ):
            self._at = next(
                (at for at, line in enumerate(lines) if line.opens and line.opens.key == before.key), None
            )
        if self.chosen is None:
            self._at = self._next(min(old or 0, len(lines)) - 1, 1)
        self.draw()

    def start(self) -> None:
        """Forgets cursor and place."""
        self._top, self._at = 0, None

    def draw(self) -> None:
        """Shows the lines in sight."""
        height = self.size.height
        self._top = max(0, min(self._top, self._most()))
        shown = [line.line for line in self._all[self._top : self._top + height]]
        row = self._at - self._top if self._at is not None else -1
        self.show([*shown, *[()] * (height - len(shown))], row if 0 <= row < height else None)

    def move(self, step: str) -> None:
        """`down` and `up` go to the next line in sight that can be opened, else scroll; `first`, `last` to the ends."""
        if step in ("first", "last"):
            self._top = 0 if step == "first" else self._most()
            self._at = self._next(-1, 1) if step == "first" else self._next(len(self._all), -1)
        else:
            self._step(1 if step == "down" else -1)
        self.draw()

    def jump(self, step: int) -> bool:
        """To the next line that can be opened (1) or the one before (-1), wherever it is; says whether there is one."""
        at = self._next(self._at if self._at is not None else -1, step)
        if at is None:
            return False
        self._at = at
        if not self._top + 1 <= at < self._top + self.size.height * 2 // 3:
            self._top = max(0, at - self.size.height // 4)
        self.draw()
        return True

    def page(self, direction: int) -> None:
        """A screenful down (1) or up (-1); the cursor comes along."""
        self.scroll_lines(direction * max(1, self.size.height - 2))
        self._come_along(direction)
        self.draw()

    def scroll_lines(self, lines: int) -> None:
        """Scrolls and leaves the cursor where it is."""
        self._top = max(0, min(self._top + lines, self._most()))
        self.draw()

    def choose(self, row: int) -> bool:
        """Puts the cursor on a row of the window; says whether it can be opened."""
        at = self._top + row
        if not 0 <= at < len(self._all) or self._all[at].opens is None:
            return False
        self._at = at
        self.draw()
        return True

    def _step(self, direction: int) -> None:
        height = self.size.height
        start = self._at if self._at is not None else self._top - 1
        if not self._top <= start < self._top + height:
            start = self._top - 1 if direction > 0 else self._top + height
        at = self._next(start, direction)
        if at is not None and self._top <= at < self._top + height:
            self._at = at
            # A line beyond the cursor stays in sight, so that one sees what comes.
            if direction > 0 and at == self._top + height - 1:
                self._top += 1
            elif direction < 0 and at == self._top:
                self._top -= 1
        else:
            self._top += direction
            if at is not None and self._top <= at < self._top + height:
                self._at = at

    def _come_along(self, direction: int) -> None:
        height = self.size.height
        if self._at is None or self._top <= self._at < self._top + height:
            return
        at = self._next(self._top - 1, 1) if direction > 0 else self._next(self._top + height, -1)
        if at is not None and self._top <= at < self._top + height:
            self._at = at

    def _next(self, start: int, direction: int) -> int | None:
        at = start + direction
        while 0 <= at < len(self._all):
            if self._all[at].opens is not None:
                return at
            at += direction
        return None

    def _most(self) -> int:
        return max(0, len(self._all) - self.size.height)

    # ---- the mouse

    def on_click(self, event: events.Click) -> None:
        """Selects a line; a second click opens it."""
        event.stop()
        if self.choose(event.y) and event.chain > 1:
            self.post_message(RowsOpened())
        self.post_message(RowsMoved())

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scrolls."""
        event.stop()
        self.scroll_lines(_WHEEL)
        self.post_message(RowsMoved())

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scrolls."""
        event.stop()
        self.scroll_lines(-_WHEEL)
        self.post_message(RowsMoved())
