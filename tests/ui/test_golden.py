"""Whole screens as text, beside the recorded ones in `golden/`.

After a wanted change: `DFLASH_CONSOLE_GOLDEN=write pytest tests/ui/test_golden.py`, then read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dflash_console.fleet import HostView
from dflash_console.verdict import Verdict
from tests.ui import builders, verdicts
from tests.ui.looking import screen_text
from tests.ui.stub import console

GOLDEN = Path(__file__).parent / "golden"
SIZES = [(80, 24), (200, 50)]
CROWD_VIEWS, CROWD = verdicts.crowded(12)
SCREENS: dict[str, tuple[Callable[[], Sequence[HostView]], tuple[str, ...]]] = {
    "fleet": (builders.story, ()),
    "every-kind": (builders.every_kind, ("G",)),
    "target": (builders.story, ("g", "j")),
    "host": (builders.story, ("enter",)),
    "help": (builders.story, ("question_mark",)),
    "filter": (builders.every_kind, ("slash", *"target")),
    "paused": (builders.story, ("p",)),
    "table": (lambda: builders.many(100), ("j", "j")),
    "verified": (builders.story, ("down", "space")),
    "matrix": (builders.story, ("enter", "greater_than_sign", "2", "right", "left", "j")),
    "crowd": (lambda: CROWD_VIEWS, ("enter", "tab", *["l"] * 6, "k")),
    "evidence": (builders.story, ("enter", "greater_than_sign", "2", "j", "enter")),
    "verified-table": (lambda: builders.many(100), ("j", "space", "j")),
}
PROVED: dict[str, Sequence[Verdict]] = {
    "verified": verdicts.story(),
    "matrix": verdicts.story(),
    "crowd": CROWD,
    "evidence": verdicts.story(),
    "verified-table": [
        verdicts.ready("gpu000"),
        verdicts.not_ready("gpu001", "/root/ml-env"),
        verdicts.verifying("gpu002", "/root/ml-env"),
        verdicts.stale("gpu003"),
    ],
}
"""What was verified on a screen; nothing on the others."""


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", SCREENS)
async def test_a_screen_looks_as_recorded(name: str, size: tuple[int, int]) -> None:
    views, keys = SCREENS[name]
    proved = PROVED.get(name)
    app = console(views(), verdicts=verdicts.StubVerdicts(proved) if proved is not None else None)
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
