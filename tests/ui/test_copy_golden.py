"""Screens of copy, compare and roll back as text, beside the recorded ones, as in `test_golden`: calm, busy, broken."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
import pytest

from dflash_console.copies import Side, TargetPlan, TargetRun
from dflash_console.ui.app import ConsoleApp
from tests.ui import builders, copying, verdicts
from tests.ui.copying import StubDesk
from tests.ui.driving import after
from tests.ui.stub import console
from tests.ui.test_compare_keys import desk
from tests.ui.test_copy_keys import going
from tests.ui.test_golden import GOLDEN

SIZES = [(80, 24), (120, 40), (200, 50)]
TO_CT200 = ("enter", "greater_than_sign")
Step = str | Callable[[ConsoleApp], None]


def planned(*targets: TargetPlan) -> Callable[[], StubDesk]:
    """A desk with a plan for these."""

    def made() -> StubDesk:
        given = desk()
        given.copies.next_plan = copying.plan(*targets)
        return given

    return made


def runs(*those: TargetRun) -> Callable[[ConsoleApp], None]:
    """Has these run, from ct129."""

    def set_them(app: ConsoleApp) -> None:
        for run in those:
            app.copying._words[run.side] = ("copying from ct129", "copy from ct129")
        going(app, *those)

    return set_them


def crowd() -> tuple[TargetPlan, ...]:
    """Eight targets: most can be copied to."""
    sides = [Side(f"gpu{number:02d}", "/root/ml-env") for number in range(8)]
    return (
        *(copying.target(side, needs=()) for side in sides[:4]),
        copying.target(sides[4], needs=(copying.RUNNING,)),
        copying.target(sides[5], version=""),
        copying.failing(sides[6]),
        copying.target(sides[7], problem="gpu07 can't be asked: nothing answers at 10.1.2.7 port 22"),
    )


CHECKING = msgspec.structs.replace(copying.sending(copying.OTHER, 1.0), state="checking", rate=0.0, left=None)
SCREENS: dict[str, tuple[Callable[[], StubDesk], tuple[Step, ...]]] = {
    "copy-making": (StubDesk, (*TO_CT200, "c")),
    "copy-plan": (planned(), (*TO_CT200, "c")),
    "copy-plan-many": (planned(*crowd()), (*TO_CT200, "c")),
    "copy-plan-failing": (planned(copying.failing(copying.TARGET)), (*TO_CT200, "c")),
    "copy-question": (
        planned(copying.target(needs=(copying.RUNNING, copying.PRODUCTION)), copying.failing()),
        (*TO_CT200, "c", "c", "tab", "space", "tab", *"ct2"),
    ),
    "copy-busy": (planned(), (runs(copying.sending(), CHECKING), "c")),
    "copy-leaving": (planned(), (runs(copying.sending()), "c", "escape")),
    "copy-over": (
        planned(),
        (runs(copying.done(), copying.undone(), copying.failed(Side("kpro6", "/x"))), "c"),
    ),
    "copy-help": (planned(), (*TO_CT200, "c", "question_mark")),
    "compare": (desk, (*TO_CT200, "d")),
    "diff": (desk, (*TO_CT200, "d", "slash", *"server_01", "enter", "enter", "n")),
    "backups": (desk, (*TO_CT200, "b")),
    "rollback-question": (desk, (*TO_CT200, "b", "enter")),
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", SCREENS)
async def test_a_screen_looks_as_recorded(name: str, size: tuple[int, int]) -> None:
    make, steps = SCREENS[name]
    app = console(builders.story(), verdicts=verdicts.StubVerdicts(verdicts.story()), desk=make())
    async with app.run_test(size=size) as pilot:
        text = await after(pilot)
        for step in steps:
            if isinstance(step, str):
                text = await after(pilot, step)
            else:
                step(app)
                text = await after(pilot)
    path = GOLDEN / f"{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("DFLASH_CONSOLE_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
