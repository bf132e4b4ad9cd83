"""What a console shows, as text."""

from __future__ import annotations

from collections.abc import Iterable

from dflash_console.ui.app import ConsoleApp
from dflash_console.ui.drawing.line import Line, plain

__all__ = ["screen_text", "texts"]


def texts(lines: Iterable[Line]) -> list[str]:
    """Drawn lines without their inks and without trailing spaces."""
    return [plain(line).rstrip() for line in lines]


def screen_text(app: ConsoleApp) -> str:
    """All that is on the screen, as a terminal would show it."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"
