"""A fleet without hosts: shows the views that a test gives it, and notes what it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dflash_console.fleet import HostView
from dflash_console.ui.app import ConsoleApp
from dflash_console.ui.desk import Desk
from dflash_console.ui.scene import Moment
from dflash_console.ui.themes import load_themes
from dflash_console.ui.verifying import VerdictSource
from tests.ui.builders import MOMENT

THEMES = Path(__file__).resolve().parents[2] / "themes"


class StubFleet:
    """Stands for `Fleet`."""

    def __init__(self, views: Sequence[HostView]) -> None:
        self.shown = tuple(views)
        self.asked: list[tuple[str, str]] = []

    def views(self) -> tuple[HostView, ...]:
        """What the test set."""
        return self.shown

    def retry(self, name: str) -> None:
        """Noted."""
        self.asked.append(("retry", name))

    def refresh(self, name: str) -> None:
        """Noted."""
        self.asked.append(("refresh", name))


class Clock:
    """A clock that only moves when told."""

    def __init__(self) -> None:
        self.moment = MOMENT

    def __call__(self, interval: float) -> Moment:
        return self.moment._replace(interval=interval)

    def pass_by(self, seconds: float) -> None:
        """Moves both clocks."""
        self.moment = self.moment._replace(wall=self.moment.wall + seconds, mono=self.moment.mono + seconds)


def console(
    views: Sequence[HostView],
    *,
    clock: Clock | None = None,
    fleet: StubFleet | None = None,
    verdicts: VerdictSource | None = None,
    desk: Desk | None = None,
) -> ConsoleApp:
    """A console over these hosts, at a clock that stands still."""
    return ConsoleApp(
        fleet or StubFleet(views),
        load_themes([THEMES]),
        theme="night",
        interval=1.0,
        verdicts=verdicts,
        desk=desk,
        clock=clock or Clock(),
    )
