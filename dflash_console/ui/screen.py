"""What the fleet screen and the host screen share: a header, a footer, and painting what the app holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual.screen import Screen

from dflash_console.ui.actions import Place, footer_keys
from dflash_console.ui.drawing.copying import copying_words
from dflash_console.ui.drawing.header import HeaderState, draw_footer, draw_header
from dflash_console.ui.drawing.line import Row
from dflash_console.ui.panel import Panel
from dflash_console.ui.verifying import Target

if TYPE_CHECKING:
    from textual.geometry import Size

    from dflash_console.ui.app import ConsoleApp
    from dflash_console.ui.scene import HostScene

__all__ = ["ConsoleScreen"]


class ConsoleScreen(Screen[None]):
    """A screen that the app's tick paints."""

    AUTO_FOCUS = ""
    is_in_front: ClassVar[bool] = False
    """Whether it lies over the fleet or a host, and is closed when another host is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.header = Panel(id="header", ground="raised")
        self.footer = Panel(id="footer", ground="raised")

    @property
    def owner(self) -> ConsoleApp:
        """The app, by its own type."""
        return cast("ConsoleApp", self.app)

    @property
    def places(self) -> tuple[Place, ...]:
        """Whose keys work here, beside those that work everywhere."""
        raise NotImplementedError

    @property
    def targets(self) -> Sequence[Target]:
        """What a key that does something to a host is pressed on."""
        return [Target(self.owner.selected)] if self.owner.selected else []

    @property
    def target(self) -> Target | None:
        """What a key is pressed on that does something to one host only, whatever is marked."""
        return next(iter(self.targets), None)

    def paint(self) -> None:
        """Draws everything from the app's scene; only what differs from before is written to the terminal."""
        raise NotImplementedError

    def show_selected(self) -> None:
        """Shows the host that was selected from elsewhere."""
        raise NotImplementedError

    def candidates(self) -> Sequence[HostScene]:
        """The hosts that may be selected here."""
        return self.owner.scene.hosts

    def paint_frame(
        self,
        *,
        filter_text: str = "",
        shown: int = 0,
        hint: str = "",
        keys: Sequence[tuple[str, str]] | None = None,
    ) -> None:
        """Draws header and footer; `keys` stand in the footer instead of those of the place."""
        width = self.size.width
        owner = self.owner
        state = HeaderState(
            wall=owner.now().wall,
            paused_for=owner.paused_for(),
            filter_text=filter_text,
            shown=shown,
            is_read_only=owner.is_read_only,
            fault=owner.fault or owner.verifying.fault or owner.copying.fault,
            marked=len(owner.marked),
            copying=copying_words(owner.copying.goings()),
        )
        self.header.show([draw_header(owner.scene, state, width)])
        self.footer.show([draw_footer(footer_keys(*self.places) if keys is None else keys, width, hint)])

    def show_fault(self, text: str) -> None:
        """Puts what went wrong in the header's place."""
        self.header.show([Row(self.size.width).add(" DFLASH ", "badge").add(f"  ✗ {text}", "bad").line()])

    def _screen_resized(self, size: Size) -> None:
        """Lays out for the terminal as it is now: of two events that meet, one is of another size, and Textual
        answers each with a new one, for ever."""
        super()._screen_resized(self.app.size)

    def on_resize(self) -> None:
        """Draws for the new size, once the widgets know theirs."""
        self.call_after_refresh(self.owner.paint)

    def on_screen_resume(self) -> None:
        """Draws what changed while another screen was in front."""
        self.call_after_refresh(self.owner.paint)
