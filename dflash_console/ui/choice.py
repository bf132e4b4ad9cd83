"""Dialogs: lines that can be chosen, and a question with a few answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen, ScreenResultType

from dflash_console.ui.drawing.line import Line, Row, columns, wrap
from dflash_console.ui.panel import Panel
from dflash_console.ui.typed import is_alone

if TYPE_CHECKING:
    from textual import events
    from textual.geometry import Size
    from textual.widget import Widget

    from dflash_console.ui.app import ConsoleApp

__all__ = ["Answer", "Button", "Chosen", "Dialog", "PickScreen", "Tick"]


_FRAME = 3
"""Lines of a dialog beside text and what is lacking: the border and the answers."""


class Chosen(Message):
    """Enter, space or a click on something that can be chosen."""

    def __init__(self, choice: Choice) -> None:
        super().__init__()
        self.choice = choice


class Choice(Panel):
    """Something that can have the focus and be chosen. Keys that the terminal sent in one go choose nothing."""

    can_focus = True

    def __init__(self, name: str) -> None:
        super().__init__(ground="raised")
        self.choice_name = name

    def on_mount(self) -> None:
        """Draws once the width is known."""
        self.call_after_refresh(self.draw)

    def on_resize(self) -> None:
        """Draws for the new width."""
        self.draw()

    def watch_has_focus(self, has_focus: bool) -> None:
        """Shows it."""
        super().watch_has_focus(has_focus)
        if self.is_mounted:
            self.draw()

    def draw(self) -> None:
        """Draws it as it is."""
        raise NotImplementedError

    def on_key(self, event: events.Key) -> None:
        """Chosen."""
        if event.key not in ("enter", "space"):
            return
        event.stop()
        if is_alone(event):
            self.post_message(Chosen(self))
        else:
            self.app.notify("pasted text chooses nothing", severity="warning", timeout=2, markup=False)

    def on_click(self, event: events.Click) -> None:
        """Chosen."""
        event.stop()
        self.focus()
        self.post_message(Chosen(self))


class Button(Choice):
    """A word in brackets."""

    def __init__(self, name: str, words: str, *, is_enabled: bool = True) -> None:
        super().__init__(name)
        self.words = words
        self.is_enabled = is_enabled
        self.can_focus = is_enabled
        self.styles.width = columns(words) + 6

    def draw(self) -> None:
        """Marked while it has the focus, dim while it can't be chosen."""
        row = Row(columns(self.words) + 6).add("▸" if self.has_focus else " ", "title_on")
        row.add(f"[ {self.words} ]", "strong" if self.is_enabled else "faint")
        self.show([row.line()], 0 if self.has_focus else None)

    def enable(self, is_enabled: bool) -> None:
        """Lets it be chosen, or not."""
        if is_enabled != self.is_enabled:
            self.is_enabled = is_enabled
            # One that has the focus keeps it, and says why it can't be chosen.
            self.can_focus = is_enabled or self.has_focus
            self.draw()


class Tick(Choice):
    """A yes that is given by its own."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(name)
        self.words = words
        self.is_on = False

    def draw(self) -> None:
        """A box and the words, folded."""
        width = self.size.width
        if width < 12:
            return
        lines: list[Line] = []
        for number, part in enumerate(wrap(self.words, width - 6)):
            row = Row(width).add("▸" if self.has_focus and number == 0 else " ", "title_on")
            box = "[✓] " if self.is_on else "[ ] "
            row.add(box if number == 0 else "    ", "ok" if self.is_on else "warn")
            lines.append(row.add(part, "text" if self.is_on else "warn").line())
        self.show(lines, 0 if self.has_focus else None)

    def turn(self) -> None:
        """On or off."""
        self.is_on = not self.is_on
        self.draw()


class Dialog(ModalScreen[ScreenResultType]):
    """A box over the screen below: text that is drawn anew each second, things to choose, answers in a row."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "leave it", show=False),
        Binding("tab,down,j", "app.focus_next", "the next", show=False),
        Binding("shift+tab,up,k", "app.focus_previous", "the one before", show=False),
        Binding("right,l", "app.focus_next", "the next", show=False),
        Binding("left,h", "app.focus_previous", "the one before", show=False),
        Binding("pagedown", "scroll(10)", "a page down", show=False),
        Binding("pageup", "scroll(-10)", "a page up", show=False),
    ]

    def __init__(self, title: str, draw: Callable[[int], Sequence[Line]]) -> None:
        """`draw` gives the text for a width."""
        super().__init__()
        self._words_above = title
        self._draw_text = draw
        self._text = Panel(id="dialog-text", ground="raised")
        self._body = VerticalScroll(id="dialog-body", can_focus=False)

    @property
    def owner(self) -> ConsoleApp:
        """The app, by its own type."""
        return cast("ConsoleApp", self.app)

    def choices(self) -> Sequence[Widget]:
        """What stands below the text."""
        return ()

    def foot(self) -> Sequence[Widget]:
        """What stands between that and the answers."""
        return ()

    def answers(self) -> Sequence[Button]:
        """The first one has the focus."""
        raise NotImplementedError

    def compose(self) -> Iterator[Widget]:
        """The box."""
        from textual.containers import Vertical

        box = Vertical(id="dialog")
        box.border_title = self._words_above
        box.border_subtitle = "tab next   enter choose   esc back"
        with box:
            with self._body:
                yield self._text
                yield from self.choices()
            yield from self.foot()
            with Horizontal(id="dialog-answers"):
                yield from self.answers()
        # A `with` of Textual has the box mounted.

    def _screen_resized(self, size: Size) -> None:
        """As for the console's other screens."""
        super()._screen_resized(self.app.size)

    def on_mount(self) -> None:
        """The harmless answer has the focus."""
        self.set_focus(self.query(Button).first())
        self.call_after_refresh(self.paint)
        self.set_interval(1.0, self.paint)

    def on_resize(self) -> None:
        """Draws for the new width."""
        self.call_after_refresh(self.paint)

    def paint(self) -> None:
        """Draws the text as things are now."""
        width = self._body.scrollable_content_region.width
        if width < 8:
            return
        try:
            lines = self._draw_text(width)
        except Exception as error:  # noqa: BLE001  a fault in drawing must not end the console; it is shown instead
            words = f"this could not be drawn: {type(error).__name__}: {error}"
            lines = [Row(width).add(words, "bad").line()]
        self._text.show(lines)
        self._leave_room()

    def _leave_room(self) -> None:
        """The answers are in sight, whatever else there is."""
        below = sum(max(1, len(panel.lines)) for panel in self.query("#dialog-lacks").results(Panel))
        self._body.styles.max_height = max(1, self.app.size.height - _FRAME - below)

    def action_leave(self) -> None:
        """Nothing is done."""
        self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        """Scrolls the text."""
        self._body.scroll_to(y=round(self._body.scroll_y) + lines, animate=False)


class Answer(NamedTuple):
    """One answer to a question."""

    name: str
    words: str


class PickScreen(Dialog[str]):
    """A question with a few answers; gives the chosen one's name, None when it was left."""

    def __init__(self, title: str, draw: Callable[[int], Sequence[Line]], answers: Sequence[Answer]) -> None:
        super().__init__(title, draw)
        self._answers = answers

    def answers(self) -> Sequence[Button]:
        """As given."""
        return [Button(answer.name, answer.words) for answer in self._answers]

    def on_chosen(self, event: Chosen) -> None:
        """Gives it back."""
        event.stop()
        self.dismiss(event.choice.choice_name)
