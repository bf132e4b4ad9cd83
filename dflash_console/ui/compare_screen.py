"""The screens of a comparison: which files differ, and how the text of one does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.widgets import Input

from dflash_console.copies import Comparison, Look, Side
from dflash_console.errors import ConsoleError
from dflash_console.ui.actions import Place, bindings
from dflash_console.ui.differences import Difference, differences
from dflash_console.ui.drawing.comparison import (
    FileChange,
    FileRows,
    changes_of,
    draw_sides,
    matching_changes,
    tally,
)
from dflash_console.ui.drawing.copying import counts
from dflash_console.ui.drawing.diff import DiffRows, draw_diff_sides
from dflash_console.ui.drawing.line import Line, Row, cut_left, safe, wrap
from dflash_console.ui.drawing.words import plural
from dflash_console.ui.opened import Opens, Shown
from dflash_console.ui.page_screen import PageScreen
from dflash_console.ui.verifying import Target

if TYPE_CHECKING:
    from textual.binding import BindingType
    from textual.widget import Widget

__all__ = ["CompareScreen", "DiffScreen"]

_PAN = 20
_FILTER_KEYS = (("enter", "keep the filter"), ("esc", "show all files"))


class CompareScreen(PageScreen):
    """The files of two packages that differ."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("compare")]

    def __init__(self, left: Side, right: Side, words: str = "") -> None:
        super().__init__()
        self._sides = (left, right)
        self._looks: tuple[Look | None, Look | None] = (None, None)
        self._comparison: Comparison | None = None
        self._changes: tuple[FileChange, ...] = ()
        self._problem = ""
        self._is_asking = True
        self._input = Input(id="compare-filter", placeholder="words of the path", compact=True)
        self._filter_text = words
        self._kept: tuple[object, Sequence[Shown]] = (None, ())

    @property
    def places(self) -> tuple[Place, ...]:
        """A page's keys and its own."""
        return ("page", "compare")

    @property
    def targets(self) -> Sequence[Target]:
        """What is compared with the other."""
        return [Target(self._sides[1].host, self._sides[1].venv)]

    def compose(self) -> Iterator[Widget]:
        """The filter is above the footer."""
        *above, footer = super().compose()
        yield from above
        yield self._input
        yield footer

    def on_mount(self) -> None:
        """Asks both hosts, and waits for neither."""
        self._input.display = False
        self.run_worker(self._ask(), exit_on_error=False)

    async def _ask(self) -> None:
        desk = self.owner.copying.desk
        assert desk is not None
        try:
            left, right, comparison, problem = await desk.compare(*self._sides)
        except Exception as error:  # noqa: BLE001  the top of the worker: shown on the page
            self._problem = f"a fault of the console itself: {type(error).__name__}: {error}"
        else:
            self._looks, self._comparison, self._problem = (left, right), comparison, problem
            self._changes = changes_of(comparison) if comparison is not None else ()
        self._is_asking = False
        self.owner.paint()

    @property
    def _names(self) -> tuple[str, str]:
        """What to call the sides: the hosts, where they are two."""
        left, right = self._sides
        return (left.host, right.host) if left.host != right.host else (left.venv, right.venv)

    # ---- the page

    def page_title(self, width: int) -> Line:
        """Which hosts, and how much differs."""
        left, right = self._sides
        row = Row(width).add(" compare ", "title_on").add(left.host, "strong").add(" with ", "dim")
        row.add(right.host, "strong")
        if (found := self._comparison) is not None:
            row.add("  ")
            for text, ink in counts(len(found.added), len(found.changed), len(found.removed)):
                row.item(text, ink, gap=1)
            row.item(tally(found), "dim")
        if self._filter_text:
            row.item(f"/{self._filter_text}", "accent")
        return row.line()

    def page_lines(self, width: int) -> Sequence[Shown]:
        """Both sides, then the files; kept until something changes."""
        package = self.owner.copying.desk.package if self.owner.copying.desk is not None else ""
        key = (width, self._comparison, self._problem, self._is_asking, self._filter_text)
        away = self.owner.copying.away()
        gone = [away[side.host] for side in self._sides if side.host in away]
        if self._kept[0] == (*key, *gone):
            return self._kept[1]
        above = draw_sides((self._sides[0], self._looks[0]), (self._sides[1], self._looks[1]), width, package)
        for words in gone:
            above.append(Shown(Row(width).add(f"✗ {words}", "bad").line()))
        above.append(Shown(()))
        above += self._said(width)
        shown = matching_changes(self._changes, self._filter_text)
        if self._changes and not shown:
            above.append(
                Shown(Row(width).add(f"  no file that differs matches /{self._filter_text}", "dim").line())
            )
        lines = FileRows(shown, self._names, width, above)
        self._kept = ((*key, *gone), lines)
        return lines

    def _said(self, width: int) -> list[Shown]:
        if self._is_asking:
            return [Shown(Row(width).add("  ◌ looking at both; nothing is changed by this", "note").line())]
        lines = [
            Shown(Row(width).add("  ✗ " if at == 0 else "    ", "bad").add(part, "bad").line())
            for at, part in enumerate(wrap(self._problem, width - 4) if self._problem else ())
        ]
        if self._comparison is not None and not self._changes and not self._problem:
            lines.append(Shown(Row(width).add("  ✓ the packages are the same: no file differs", "ok").line()))
        return lines

    def page_keys(self) -> Sequence[tuple[str, str]] | None:
        """While the filter is typed, what ends that."""
        if self._input.display:
            return _FILTER_KEYS
        return (
            ("esc", "back"),
            ("enter", "show"),
            ("↑↓", "move"),
            ("/", "filter"),
            ("?", "help"),
            ("q", "quit"),
        )

    def open(self, opens: Opens) -> None:
        """How the file's text differs."""
        if isinstance(opens.what, FileChange):
            shown = matching_changes(self._changes, self._filter_text)
            self.app.push_screen(DiffScreen(*self._sides, shown, shown.index(opens.what)))

    # ---- the filter

    def action_filter(self) -> None:
        """Asks for words."""
        self._input.display = True
        self._input.value = self._filter_text
        self._input.focus()
        self.owner.paint()

    def action_back(self) -> None:
        """Shows all files again; when they are shown, back to the screen below."""
        if self._input.display or self._filter_text:
            self._input.value = self._filter_text = ""
            self._close_filter()
        else:
            super().action_back()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if self._input.display:
            self._filter_text = event.value
            self.owner.paint()

    @on(Input.Submitted)
    def _close_filter(self) -> None:
        self._input.display = False
        self.set_focus(None)
        self.owner.paint()


class DiffScreen(PageScreen):
    """What a copy from the left would change in the text of a file on the right: what goes, what comes."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("diff")]

    def __init__(self, left: Side, right: Side, changes: Sequence[FileChange], at: int) -> None:
        super().__init__()
        self._sides = (left, right)
        self._changes = changes
        self._at = at
        self._found: Difference | None = None
        self._problem = ""
        self._is_whole = False
        self._pan = 0
        self._kept: tuple[object, DiffRows | None] = (None, None)

    @property
    def places(self) -> tuple[Place, ...]:
        """A page's keys and its own."""
        return ("page", "diff")

    @property
    def targets(self) -> Sequence[Target]:
        """The right side."""
        return [Target(self._sides[1].host, self._sides[1].venv)]

    def on_mount(self) -> None:
        """Reads both, and waits for neither."""
        self._read()

    def _read(self) -> None:
        self._found, self._problem, self._pan = None, "", 0
        self.rows.start()
        self.run_worker(self._ask(self._changes[self._at]), exclusive=True, exit_on_error=False)
        self.owner.paint()

    async def _ask(self, change: FileChange) -> None:
        try:
            left, right = await asyncio.gather(
                self._text(self._sides[0], change, is_there=change.mark != "−"),
                self._text(self._sides[1], change, is_there=change.mark != "+"),
            )
            # In a thread: of two long texts it may take a moment.
            self._found = await asyncio.to_thread(differences, right, left)
        except ConsoleError as error:
            self._problem = str(error)
        except Exception as error:  # noqa: BLE001  the top of the worker: shown on the page
            self._problem = f"a fault of the console itself: {type(error).__name__}: {error}"
        self.owner.paint()

    async def _text(self, side: Side, change: FileChange, *, is_there: bool) -> str:
        desk = self.owner.copying.desk
        if not is_there or desk is None:
            return ""
        if change.entry.kind == "link" and change.mark != "~":
            return f"a link to {change.entry.content}"
        return await desk.read_text(side, change.entry.path)

    # ---- the page

    def page_title(self, width: int) -> Line:
        """The file, which of how many, and which change the cursor is on."""
        change = self._changes[self._at]
        right = f"file {self._at + 1}/{len(self._changes)}"
        if self._found is not None:
            chosen = self.rows.chosen
            there = chosen.name if chosen is not None else "0"
            right = f"change {there}/{self._found.changes}  {right}"
        row = Row(width).add(f" {change.mark} ", "title_on")
        row.add(cut_left(safe(change.entry.path), max(8, width - len(right) - 8)), "title_on")
        row.right((right, "dim"), (" ", "dim"))
        return row.line()

    def page_lines(self, width: int) -> Sequence[Shown]:
        """Both texts; kept until something changes."""
        if self._found is None:
            left, right = self._sides
            words = f"✗ {self._problem}" if self._problem else f"◌ reading it on {left.host} and {right.host}"
            parts = wrap(words, max(10, width - 4))
            return [Shown(()), *(Shown(Row(width).add(f"  {part}", "warn").line()) for part in parts)]
        key = (width, id(self._found), self._is_whole, self._pan)
        if self._kept[0] != key or self._kept[1] is None:
            rows = DiffRows(self._found, width, is_whole=self._is_whole, pan=self._pan)
            self._kept = (key, rows)
        assert self._kept[1] is not None
        if not self._found.changes:
            return [Shown(()), Shown(Row(width).add("  the texts are the same", "ok").line())]
        return self._kept[1]

    def page_head(self, width: int) -> Sequence[Line]:
        """The title, and which text is which."""
        new, old = self._sides
        # The page has a cell less on either side than the screen.
        return [self.page_title(width), ((" ", "text"), *draw_diff_sides(old, new, width - 2))]

    @property
    def hint(self) -> str:
        """From which column on long lines are shown, and how far it is scrolled."""
        pan = f"column {self._pan + 1}  " if self._pan else ""
        return f"{pan}{self.rows.position}".rstrip()

    def page_keys(self) -> Sequence[tuple[str, str]] | None:
        """As many as mean something here."""
        files = (("< >", "files"),) if len(self._changes) > 1 else ()
        all_ = ("space", "only changes" if self._is_whole else "all lines")
        return (("esc", "back"), ("n N", "changes"), all_, *files, ("←→", "long lines"), ("?", "help"))

    # ---- actions

    def action_change(self, step: int) -> None:
        """The next change (1) or the one before (-1)."""
        if not self.rows.jump(step):
            end = "last" if step > 0 else "first"
            count = plural(self._found.changes, "change") if self._found is not None else "no change"
            self.owner.notify(f"this is the {end} of {count}", timeout=2, markup=False)
        self.owner.paint()

    def action_all(self) -> None:
        """All lines, or only changes."""
        self._is_whole = not self._is_whole
        self.owner.paint()

    def action_pan(self, step: int) -> None:
        """Long lines: on (1) or back (-1)."""
        self._pan = max(0, self._pan + step * _PAN)
        self.owner.paint()

    def action_file(self, step: int) -> None:
        """The next file that differs (1) or the one before (-1)."""
        at = self._at + step
        if 0 <= at < len(self._changes):
            self._at = at
            self._read()
