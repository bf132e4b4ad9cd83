"""Whole screens as text, beside the recorded ones in `golden/`.

After a wanted change: `DFLASH_CONSOLE_GOLDEN=write pytest tests/ui/test_golden.py`, then read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dflash_console.fleet import HostView
from tests.ui import builders
from tests.ui.looking import screen_text
from tests.ui.stub import console

GOLDEN = Path(__file__).parent / "golden"
SIZES = [(80, 24), (200, 50)]
SCREENS: dict[str, tuple[Callable[[], Sequence[HostView]], tuple[str, ...]]] = {
    "fleet": (builders.story, ()),
    "every-kind": (builders.every_kind, ("G",)),
    "target": (builders.story, ("g", "j")),
    "host": (builders.story, ("enter",)),
    "help": (builders.story, ("question_mark",)),
    "filter": (builders.every_kind, ("slash", *"target")),
    "paused": (builders.story, ("p",)),
    "table": (lambda: builders.many(100), ("j", "j")),
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", SCREENS)
async def test_a_screen_looks_as_recorded(name: str, size: tuple[int, int]) -> None:
    views, keys = SCREENS[name]
    app = console(views())
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
        await pilot.pause()
        await pilot.pause()
        text = screen_text(app)
    path = GOLDEN / f"{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("DFLASH_CONSOLE_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
