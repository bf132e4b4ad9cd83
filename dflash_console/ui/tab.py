"""What every tab of the host screen is: a part of one host, moved through with the same keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.containers import Container

from dflash_console.ui.actions import Place

if TYPE_CHECKING:
    from dflash_console.ui.app import ConsoleApp
    from dflash_console.ui.scene import HostScene, Moment

__all__ = ["Tab"]


class Tab(Container):
    """A tab. A new one gives a place, with its keys in the registry, and joins the host screen's `TABS`."""

    place: ClassVar[Place]
    title: ClassVar[str]

    @property
    def owner(self) -> ConsoleApp:
        """The app, by its own type."""
        return cast("ConsoleApp", self.app)

    @property
    def venv(self) -> str | None:
        """The environment under the cursor; None where that is the host as a whole."""
        return None

    @property
    def hint(self) -> str:
        """What there is to say at the right of the footer."""
        return ""

    def paint(self, host: HostScene, moment: Moment) -> None:
        """Draws the host; a fault in it is shown in the tab's place."""
        raise NotImplementedError

    def start(self) -> None:
        """Begins anew, for another host."""

    def move(self, step: str) -> bool:
        """Goes `left`, `right`, `up`, `down`, to the `first` or the `last`; says whether that means something here."""
        raise NotImplementedError

    def page(self, direction: int) -> None:
        """Goes a screenful down (1) or up (-1)."""
        raise NotImplementedError

    def open(self) -> None:
        """Opens what is under the cursor."""
