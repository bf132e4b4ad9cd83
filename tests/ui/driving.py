"""Drives a console by its keys and looks at what that shows."""

from __future__ import annotations

from textual.pilot import Pilot

from dflash_console.ui.app import ConsoleApp
from tests.ui.looking import screen_text
from tests.waiting import until

__all__ = ["after", "app_of", "shown"]


def app_of(pilot: Pilot[None]) -> ConsoleApp:
    """The console that a pilot drives."""
    assert isinstance(pilot.app, ConsoleApp)
    return pilot.app


async def after(pilot: Pilot[None], *keys: str) -> str:
    """What is on the screen after these keys, the first of which comes when all is drawn."""
    await pilot.pause()
    await pilot.pause()
    for key in keys:
        await pilot.press(key)
    await pilot.pause()
    await pilot.pause()
    return screen_text(app_of(pilot))


async def shown(pilot: Pilot[None], words: str) -> None:
    """Waits until these words are on the screen."""
    app = app_of(pilot)
    await until(lambda: words in screen_text(app), 10, words)
