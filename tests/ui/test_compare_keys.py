"""Compare and roll back, driven by their keys."""

from __future__ import annotations

import msgspec
import pytest

from dflash_console.copies import Comparison, Consent, Entry, Look, Side, TargetPlan
from dflash_console.ui.compare_screen import CompareScreen, DiffScreen
from dflash_console.ui.copy_screen import CopyScreen
from dflash_console.ui.drawing.comparison import FileRows, changes_of
from dflash_console.ui.fleet_screen import FleetScreen
from dflash_console.ui.host_screen import HostScreen
from dflash_console.ui.question import QuestionScreen
from tests.ui import builders, copying
from tests.ui.copying import OTHER, SOURCE, TARGET, StubDesk
from tests.ui.driving import after, app_of, shown
from tests.ui.looking import screen_text
from tests.ui.stub import StubFleet, console
from tests.ui.test_copy_keys import lost
from tests.waiting import until

SIZE = (120, 40)
TO_CT200 = ("enter", "greater_than_sign")
PATH = "sglang/srt/layers/attention/server_01.py"
OLD = "import os\n\ndef verify(limit=10):\n    return limit\n" + "".join(
    f"x{at} = {at}\n" for at in range(60)
)
NEW = (
    OLD.replace("limit=10", "limit=64")
    .replace("import os\n", "import os\nimport sys\n")
    .replace("x40 = 40\n", "")
)


def desk(old: str = OLD, new: str = NEW) -> StubDesk:
    """One whose changed files have these texts."""
    made = StubDesk()
    for change in copying.difference().changed:
        made.texts[("ct129", change.path)] = new
        made.texts[("ct200", change.path)] = old
    return made


# ---- which files differ


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        (("right", "d"), ("compare", SOURCE, TARGET)),
        ((*TO_CT200, "2", "l", "d"), ("compare", SOURCE, Side("ct200", "/root/venv"))),
        (("right", "space", "G", "space", "d"), ("compare", TARGET, Side("kpro6", "/root/ml-env"))),
        ((*TO_CT200, "c", "d"), ("compare", SOURCE, TARGET)),
    ],
)
async def test_compare_asks_for_the_source_and_the_cursors_host_or_for_two_marked_ones(
    keys: tuple[str, ...], asked: tuple[object, ...]
) -> None:
    given = desk()
    given.copies.next_plan = copying.plan()
    kpro6 = builders.view(
        builders.kpro6().config, builders.snapshot("kpro6", venvs=[builders.venv("/root/ml-env")])
    )
    views = (builders.ct129(), builders.ct200(), kpro6)
    async with console(views, desk=given).run_test(size=(160, 60)) as pilot:
        await after(pilot, *keys)
        assert given.asked == [asked]
        assert isinstance(pilot.app.screen, CompareScreen)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (("d",), "ct129 is the source itself"),
        (("space", "right", "space", "G", "space", "d"), "3 hosts are marked"),
        (("G", "d"), "kpro6 has no environment"),
    ],
)
async def test_what_can_not_be_compared_is_said(keys: tuple[str, ...], words: str) -> None:
    given = desk()
    async with console(builders.story(), desk=given).run_test(size=(160, 60), notifications=True) as pilot:
        await after(pilot, *keys)
        await shown(pilot, words)
        assert given.asked == []


async def test_the_screen_does_not_wait_for_the_hosts() -> None:
    given = desk()
    given.may_answer.clear()
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        assert "◌ looking at both" in await after(pilot, *TO_CT200, "d")
        await after(pilot, "escape")
        assert isinstance(pilot.app.screen, HostScreen)
        await after(pilot, "d")
        given.may_answer.set()
        await shown(pilot, "6,376 files are the same")


async def test_files_stand_by_folder_and_a_filter_narrows_them() -> None:
    async with console(builders.story(), desk=desk()).run_test(size=SIZE) as pilot:
        text = await after(pilot, *TO_CT200, "d")
        for words in (
            "+ ct129:/root/ml-env  sglang 0.5.11",
            "− ct200:/root/venv_sglang  sglang 0.5.9",
            "sglang/srt/layers/attention  +2  ~1  −1",
            "~ server_01.py",
            "only ct129",
            "only ct200",
        ):
            assert words in text
        text = await after(pilot, "slash", *"attention server", "enter")
        assert "/attention server" in text
        assert "server_01.py" in text
        assert "dflash_" not in text
        assert "no file that differs matches" in await after(pilot, "slash", *"xyz", "enter")
        assert "dflash_01.py" in await after(pilot, "escape")
        await after(pilot, "escape")
        assert isinstance(pilot.app.screen, HostScreen)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((None, copying.look(), None, "ct129 can't be asked: connection lost"), "✗ ct129 can't be asked"),
        (
            (copying.look(SOURCE), copying.look(), Comparison((), (), (), 6_391), ""),
            "✓ the packages are the same",
        ),
        (
            (copying.look(SOURCE), copying.look(), Comparison((), (), (), 6_391), "ct129 holds a pipe"),
            "✗ ct129 holds a pipe",
        ),
    ],
)
async def test_what_there_is_to_say_instead_of_files_is_said(
    answer: tuple[Look | None, Look | None, Comparison | None, str], words: str
) -> None:
    given = desk()
    given.comparison = answer
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        text = await after(pilot, *TO_CT200, "d")
        assert words in text
        assert ("the packages are the same" in text) is (not answer[3]), "not of what was not listed"


async def test_of_very_many_files_only_those_in_sight_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 50_000
    entries = tuple(copying.entry(f"sglang/f{at // 50:04d}/x{at:06d}.py") for at in range(count))
    given = desk()
    given.comparison = (copying.look(SOURCE), copying.look(), Comparison(entries, (), (), 0), "")
    drawn: list[str] = []
    original = FileRows._file_line

    def counted(self: FileRows, change: object) -> object:
        drawn.append("")
        return original(self, change)  # type: ignore[arg-type]

    monkeypatch.setattr(FileRows, "_file_line", counted)
    async with console(builders.story(), desk=given).run_test(size=(80, 24)) as pilot:
        assert "x000000.py" in await after(pilot, *TO_CT200, "d")
        assert "x049999.py" in await after(pilot, "G")
        assert "x000000.py" in await after(pilot, "g")
        assert len(drawn) < 5_000


async def test_a_host_that_goes_away_is_said_in_the_comparison() -> None:
    fleet, given = StubFleet(builders.story()), desk()
    async with console((), fleet=fleet, desk=given).run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "d")
        first, second, third = fleet.shown
        fleet.shown = (first, lost(second), third)
        app_of(pilot).tick()
        assert "✗ ct200 is unreachable now" in await after(pilot)


# ---- the text of one


@pytest.mark.parametrize(("width", "is_beside"), [(80, False), (120, True)])
async def test_a_text_is_shown_side_by_side_where_there_is_room(width: int, is_beside: bool) -> None:
    given = desk()
    async with console(builders.story(), desk=given).run_test(size=(width, 40)) as pilot:
        text = await after(pilot, *TO_CT200, "d", "slash", *"server_01", "enter", "enter")
        assert isinstance(pilot.app.screen, DiffScreen)
        assert given.asked[1:] == [("read", SOURCE, PATH), ("read", TARGET, PATH)]
        assert "change 1/3  file 1/1" in text
        lines = [" ".join(line.split()) for line in text.splitlines()]
        if is_beside:
            assert any("│ 2 + import sys" in line for line in lines)
            assert "3 − def verify(limit=10): │ 4 + def verify(limit=64):" in lines
        else:
            assert lines.index("3 − def verify(limit=10):") < lines.index("4 + def verify(limit=64):")
        assert "equal lines" in text


async def test_n_goes_from_change_to_change_and_space_unfolds() -> None:
    async with console(builders.story(), desk=desk()).run_test(size=(80, 24), notifications=True) as pilot:
        await after(pilot, *TO_CT200, "d", "slash", *"server_01", "enter", "enter")
        assert "change 2/3" in await after(pilot, "n")
        text = await after(pilot, "n")
        assert "change 3/3" in text
        assert "x40 = 40" in text
        await after(pilot, "n")
        await shown(pilot, "this is the last of 3 changes")
        assert "change 2/3" in await after(pilot, "N")
        text = await after(pilot, "space", "G")
        assert "x59 = 59" in text
        assert "equal lines" not in text


async def test_long_lines_are_cut_and_can_be_moved_along() -> None:
    given = desk("a" * 3000 + "old end\n", "a" * 3000 + "new end\n")
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        text = await after(pilot, *TO_CT200, "d", "slash", *"server_01", "enter", "enter")
        assert "…" in text
        assert "old end" not in text
        text = await after(pilot, *["right"] * 150)
        assert "column 3001" in text
        assert "old end" in text
        assert "new end" in text
        assert "column" not in await after(pilot, *["left"] * 150)


async def test_the_next_file_is_read_when_it_is_gone_to() -> None:
    given = desk()
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "d", "slash", *"server", "enter", "enter")
        text = await after(pilot, "greater_than_sign")
        assert "file 2/3" in text
        assert "server_02.py" in text
        assert "server_01.py" in await after(pilot, "less_than_sign", "less_than_sign")


async def test_a_file_that_is_no_text_says_so_and_one_sided_ones_are_whole() -> None:
    given = desk()
    given.texts[("ct129", "sglang/lang/backend/dflash_04.py")] = "one\ntwo\n"
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        text = await after(pilot, *TO_CT200, "d", "enter")
        assert "+ one" in text
        assert given.asked[-1] == ("read", SOURCE, "sglang/lang/backend/dflash_04.py")
        await after(pilot, "greater_than_sign")
        await shown(pilot, "dflash_11.py is no text")


async def test_hostile_texts_and_paths_reach_no_terminal() -> None:
    bad = builders.HOSTILE
    given = desk(bad + "\n\tx\u202e\x1b[2J\n" + "文" * 500, bad + "y\n")
    entry = Entry(bad.replace("\n", ""), "file", 10, 0o644, "00")
    given.comparison = (copying.look(), copying.look(), Comparison((), (entry,), (), 0), bad)
    given.texts = {
        ("ct129", entry.path): bad + "\x1b[2J",
        ("ct200", entry.path): "\u202e\x9b31m" + "文" * 500,
    }
    for size in ((80, 24), (200, 50)):
        async with console(builders.story(), desk=given).run_test(size=size) as pilot:
            for key in (*TO_CT200, "d", "enter", "n", "right", "space"):
                text = await after(pilot, key)
                assert all(character.isprintable() or character == "\n" for character in text)
            assert isinstance(pilot.app.screen, DiffScreen)


def test_a_file_in_each_state_has_its_mark() -> None:
    found = changes_of(copying.difference(1, 1, 1))
    assert sorted(change.mark for change in found) == ["+", "~", "−"]


# ---- backups


async def test_backups_are_listed_while_the_screen_waits_for_nothing() -> None:
    given = desk()
    given.may_answer.clear()
    given.rollback_plan = msgspec.structs.replace(
        copying.target(),
        look=msgspec.structs.replace(
            copying.look(),
            backups=(
                copying.backup(0),
                copying.backup(1, in_use="process 4711 (python)"),
                copying.backup(2, ""),
            ),
        ),
    )
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        assert "◌ looking at the backups on ct200" in await after(pilot, *TO_CT200, "b")
        given.may_answer.set()
        await shown(pilot, "3 kept")
        text = screen_text(app_of(pilot))
        for words in (
            "in place  sglang 0.5.9  6,391 files  121M  from ct129 by kim@laptop, 3 h 6 m ago",
            "2026-08-02 01:12",
            "98.0M  copy",
            "ct129, 2026-07-31 11:12",
            "in use by process 4711 (python)",
            "none",
            "rollback",
        ):
            assert words in text


async def test_rolling_back_asks_cancel_first_and_then_shows_how_far_it_is() -> None:
    given = desk()
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        text = await after(pilot, *TO_CT200, "b", "down", "enter")
        assert "sglang 0.5.9 of 9 h 0 m ago, 1,940 files, is put back" in text
        assert "type ct200 to confirm" in text
        await after(pilot, "enter")
        assert "3 kept" in screen_text(app_of(pilot))
        assert given.copies.rolled_back == []
        await after(pilot, "enter", "tab", *"ct200", "tab", "tab", "enter")
        wanted = copying.look().backups[1].id
        ((*asked, seen),) = given.copies.rolled_back
        assert asked == [TARGET, wanted, Consent(True, typed=frozenset({"ct200"}))]
        assert seen == copying.look(), "what was shown"
        text = await after(pilot)
        assert type(app_of(pilot).screen) is CopyScreen
        assert "rolling back to 0.5.9" in text
        assert "taking the lock" in text
        await after(pilot, "escape", "enter")
        assert type(app_of(pilot).screen) is HostScreen


async def test_a_rollback_ignores_marks_and_takes_the_cursors_host() -> None:
    given = desk()
    async with console(builders.story(), desk=given).run_test(size=(160, 60)) as pilot:
        await after(pilot, "space", "right", "b")
        assert given.asked == [("backups", TARGET)]


async def test_a_read_only_console_lists_backups_and_puts_none_back() -> None:
    given = desk()
    app = console(builders.story(), desk=given)
    app.is_read_only = True
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        assert "3 kept" in await after(pilot, *TO_CT200, "b")
        await after(pilot, "enter")
        await shown(pilot, "read-only: nothing is put back")


async def test_a_rollback_that_is_refused_says_why_in_its_place() -> None:
    given = desk()
    given.rollback_plan = copying.failing(TARGET)
    async with console(builders.story(), desk=given).run_test(size=SIZE, notifications=True) as pilot:
        text = await after(pilot, *TO_CT200, "b", "enter")
        assert "✗ versions: python 3.12 there, 3.10 here" in text
        await shown(pilot, "nothing can be put back")
        assert not isinstance(pilot.app.screen, QuestionScreen)


async def test_a_host_that_can_not_be_asked_for_backups_says_why() -> None:
    given = desk()
    given.rollback_plan = copying.target(problem="ct200 can't be asked: connection lost")
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        assert "✗ ct200 can't be asked: connection lost" in await after(pilot, *TO_CT200, "b")


async def test_an_environment_without_backups_says_so() -> None:
    given = desk()
    given.rollback_plan = msgspec.structs.replace(copying.target(), look=copying.look(backups=0))
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        assert "BACKUPS  none is kept" in await after(pilot, *TO_CT200, "b")


async def test_b_shows_what_runs_instead() -> None:
    given = desk()
    async with console(builders.story(), desk=given).run_test(size=(160, 60)) as pilot:
        await after(pilot)
        given.copies.runs = (copying.sending(OTHER),)
        await after(pilot, "b")
        assert isinstance(pilot.app.screen, CopyScreen)
        await after(pilot, "escape", "enter")
        assert isinstance(pilot.app.screen, FleetScreen)


async def test_a_fault_while_asking_is_told_and_ends_nothing() -> None:
    class Broken(StubDesk):
        async def plan_roll_back(self, side: Side) -> TargetPlan:
            raise RuntimeError("no backups")

        async def compare(
            self, left: Side, right: Side
        ) -> tuple[Look | None, Look | None, Comparison | None, str]:
            raise RuntimeError("no comparison")

    async with console(builders.story(), desk=Broken()).run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "b")
        await until(lambda: "RuntimeError: no backups" in screen_text(app_of(pilot)), 10, "the fault")
        await after(pilot, "escape", "d")
        await until(lambda: "RuntimeError: no comparison" in screen_text(app_of(pilot)), 10, "the fault")
        assert app_of(pilot).is_running
