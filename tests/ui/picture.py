"""Draws README's picture: `python -m tests.ui.picture FILE` writes the fleet screen of the story as SVG."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from tests.ui import builders
from tests.ui.stub import console

WEB_FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)


async def draw() -> str:
    """The screen at 152x36, without the web fonts that Rich's template would load from elsewhere."""
    app = console(builders.story())
    async with app.run_test(size=(152, 36)) as pilot:
        await pilot.pause()
        return WEB_FONT.sub("", app.export_screenshot(title="dflash-console"))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(asyncio.run(draw()), encoding="utf-8")
