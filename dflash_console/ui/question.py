"""The question before a change on a host: what exactly will be done, and every yes that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from textual import on
from textual.containers import Horizontal
from textual.widgets import Input

from dflash_console.copies import Consent, NeedCode
from dflash_console.ui.choice import Button, Chosen, Dialog, Tick
from dflash_console.ui.drawing.line import Line, Row, columns, wrap
from dflash_console.ui.panel import Panel
from dflash_console.ui.typed import is_alone, together

if TYPE_CHECKING:
    from textual import events
    from textual.widget import Widget

__all__ = ["Asked", "QuestionScreen"]

_PASTED = 2
"""More characters than this at once are taken for pasted."""


class Asked(NamedTuple):
    """A question."""

    title: str
    draw: Callable[[int], Sequence[Line]]
    """What will be done, on what, and how old the picture is that this rests on."""
    yes: str
    """The answer that does it."""
    ticks: Sequence[tuple[NeedCode, str]] = ()
    """What needs a yes of its own."""
    names: Sequence[str] = ()
    """Production hosts, to be typed."""
    why_not: Callable[[], str] = lambda: ""
    """What has come between; asked again and again."""


class _Name(Input):
    """Where a host's name is typed. What is pasted is not taken."""

    def __init__(self, host: str) -> None:
        # What was typed is not replaced by the next letter when the focus comes back.
        super().__init__(compact=True, max_length=len(host) + 20, select_on_focus=False)
        self.host = host

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self._refuse()

    async def _on_key(self, event: events.Key) -> None:
        if event.is_printable and together(event) > _PASTED:
            event.stop()
            event.prevent_default()
            self._refuse()

    def action_paste(self) -> None:
        """Nor by the key for it."""
        self._refuse()

    def _refuse(self) -> None:
        words = "a name that is pasted confirms nothing: type it"
        self.app.notify(words, severity="warning", timeout=3, markup=False)


class _NameRow(Horizontal):
    """The words before a name, and the name."""

    def __init__(self, host: str) -> None:
        super().__init__(classes="name-row")
        self._host = host
        words = f"  type {host} to confirm  "
        self._words = Panel(ground="raised")
        self._words.styles.width = columns(words)
        self._words.show([Row(columns(words)).add(words, "warn").line()])
        self.name_input = _Name(host)

    def compose(self) -> list[Widget]:
        """Side by side."""
        return [self._words, self.name_input]

    @property
    def is_given(self) -> bool:
        """Whether the name stands there, exactly."""
        return self.name_input.value == self._host


class QuestionScreen(Dialog[Consent]):
    """Gives the consent when all of it was given, else None. Cancel has the focus."""

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked.title, asked.draw)
        self._asked = asked
        self._ticks = [Tick(code, words) for code, words in asked.ticks]
        self._names = [_NameRow(host) for host in asked.names]
        self._lacks = Panel(id="dialog-lacks", ground="raised")
        self._cancel = Button("cancel", "Cancel")
        self._yes = Button("yes", asked.yes, is_enabled=False)

    def choices(self) -> Sequence[Widget]:
        """A tick for each need, a line for each name."""
        return [*self._ticks, *self._names]

    def foot(self) -> Sequence[Widget]:
        """What is still needed."""
        return [self._lacks]

    def answers(self) -> Sequence[Button]:
        """Cancel first."""
        return [self._cancel, self._yes]

    def paint(self) -> None:
        """Draws the text, what is lacking, and lets the answer be given or not."""
        super().paint()
        width = self._body.scrollable_content_region.width
        if width < 8:
            return
        lacks, is_barred = self.lacks()
        mark = "✗ " if is_barred else "◌ "
        parts = wrap(lacks, width - 4) if lacks else []
        lines = [
            Row(width)
            .add("  " + (mark if number == 0 else "  ") + part, "bad" if is_barred else "dim")
            .line()
            for number, part in enumerate(parts)
        ]
        self._lacks.show([*(lines or [Row(width).add("  all is given", "ok").line()]), ()])
        self._leave_room()
        self._yes.enable(not lacks)

    def lacks(self) -> tuple[str, bool]:
        """What is not given yet, and whether it can't be given at all."""
        if why := self._asked.why_not():
            return why, True
        ticks = sum(not tick.is_on for tick in self._ticks)
        words = [f"{ticks} of {len(self._ticks)} to be ticked"] if ticks else []
        words += [f"type {row.name_input.host}" for row in self._names if not row.is_given]
        return ("still needed: " + ", ".join(words) if words else ""), False

    @on(Chosen)
    def _chosen(self, event: Chosen) -> None:
        event.stop()
        if isinstance(event.choice, Tick):
            event.choice.turn()
            self.paint()
        elif event.choice is self._cancel:
            self.dismiss(None)
        else:
            self._answer()

    def _answer(self) -> None:
        lacks, _ = self.lacks()
        self.paint()
        if lacks:
            self.owner.notify(lacks, severity="warning", timeout=3, markup=False)
            return
        codes = {code for code, _ in self._asked.ticks}
        self.dismiss(Consent(yes=True, allowed=frozenset(codes), typed=frozenset(self._asked.names)))

    def on_key(self, event: events.Key) -> None:
        """A letter that is typed while an answer or a tick has the focus begins the first name that is lacking."""
        name = next((row.name_input for row in self._names if not row.is_given), None)
        if name is None or not event.character or not event.is_printable or not is_alone(event):
            return
        event.stop()
        name.focus()
        name.insert_text_at_cursor(event.character)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.paint()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        """Enter in a name goes on, and answers nothing."""
        event.stop()
        self.focus_next()
