"""Verify, driven by its keys: what is asked, what is answered at once, and what fills in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from dflash_console.ui.drawing.environments import draw_detail
from dflash_console.ui.drawing.evidence import draw_evidence
from dflash_console.ui.drawing.line import Line
from dflash_console.ui.drawing.matrix import Matrix, Place
from dflash_console.ui.evidence import EvidenceScreen
from dflash_console.ui.fleet_screen import FleetScreen
from dflash_console.ui.host_screen import HostScreen
from dflash_console.ui.panel import Panel
from dflash_console.ui.run import _beside
from dflash_console.verdict import Check, Verdict
from tests.ui import builders, verdicts
from tests.ui.driving import after, app_of, shown
from tests.ui.looking import screen_text
from tests.ui.stub import Clock, StubFleet, console
from tests.ui.verdicts import StubVerdicts
from tests.waiting import until

SIZE = (120, 40)
VENV = "/root/venv_sglang"


TO_CT200 = ("enter", "greater_than_sign")


# ---- what the key is pressed on


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        (("v",), [("ct129", None, False)]),
        (("V",), [("ct129", None, True)]),
        (("right", "v"), [("ct200", None, False)]),
        (("space", "right", "space", "down", "v"), [("ct129", None, False), ("ct200", None, False)]),
        (("space", "space", "right", "v"), [("ct200", None, False)]),
        (("space", "slash", *"kpro6", "enter", "v"), [("ct129", None, False)]),
        ((*TO_CT200, "v"), [("ct200", None, False)]),
        ((*TO_CT200, "2", "v"), [("ct200", VENV, False)]),
        ((*TO_CT200, "2", "l", "V"), [("ct200", "/root/venv", True)]),
        ((*TO_CT200, "2", "l", "l", "l", "v"), [("ct200", "/root/ml-env", False)]),
        (("space", *TO_CT200, "v"), [("ct200", None, False)]),
    ],
)
async def test_verify_asks_for_what_the_cursor_is_on(
    keys: tuple[str, ...], asked: list[tuple[str, str | None, bool]]
) -> None:
    source = StubVerdicts()
    async with console(builders.story(), verdicts=source).run_test(size=(160, 60)) as pilot:
        await after(pilot, *keys)
        assert source.asked == asked


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (("v",), "ct129: verifying /root/ml-env"),
        (("V",), "ct129: verifying deeply /root/ml-env"),
        (("right", "v"), f"ct200: verifying {VENV}"),
        (("space", "right", "space", "v"), "verifying 2 hosts"),
        (("down", "v"), "kpro6 is not connected"),
        (("space", "down", "space", "v"), "ct129: verifying /root/ml-env; kpro6 is not connected"),
        (("p", "v"), "the screen is paused"),
    ],
)
async def test_verify_answers_at_once(keys: tuple[str, ...], words: str) -> None:
    source = StubVerdicts(refusals={"kpro6": "kpro6 is not connected"})
    app = console(builders.story(), verdicts=source)
    async with app.run_test(size=(160, 60), notifications=True) as pilot:
        await after(pilot, *keys)
        await until(lambda: words in " ".join(screen_text(app).split()), 10, words)


async def test_read_only_does_not_forbid_verify() -> None:
    source = StubVerdicts()
    app = console(builders.story(), verdicts=source)
    app.is_read_only = True
    async with app.run_test(size=SIZE) as pilot:
        await after(pilot, "v")
        assert source.asked == [("ct129", None, False)]


async def test_a_console_that_can_not_verify_says_so() -> None:
    async with console(builders.story()).run_test(size=SIZE, notifications=True) as pilot:
        await after(pilot, "v")
        await shown(pilot, "nothing can be verified here")


async def test_the_panel_fills_in_before_the_next_whole_tick() -> None:
    source = StubVerdicts()
    app = console(builders.story(), verdicts=source)
    app.interval = 1000.0
    async with app.run_test(size=SIZE) as pilot:
        await after(pilot, "v")
        for verdict, words in (
            (verdicts.begun("ct129", "/root/ml-env"), "◌ verifying: files, find_spec, service"),
            (verdicts.verifying("ct129", "/root/ml-env"), "◌ verifying: find_spec, service"),
            (verdicts.ready(), "✓ ready · 3 min ago"),
        ):
            source.put(verdict)
            await shown(pilot, words)


async def test_a_paused_screen_shows_new_verdicts_only_when_it_goes_on() -> None:
    source = StubVerdicts()
    app = console(builders.story(), verdicts=source)
    async with app.run_test(size=SIZE) as pilot:
        await after(pilot, "p", "v")
        assert source.asked == [("ct129", None, False)]
        source.put(verdicts.ready())
        app.tick()
        assert "✓ ready" not in await after(pilot)
        assert "✓ ready" in await after(pilot, "p")


async def test_a_fault_of_verify_stands_in_the_header_and_answers_the_key() -> None:
    source = StubVerdicts()
    app = console(builders.story(), verdicts=source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await after(pilot)
        app.verifying.stop(ExceptionGroup("tasks", [KeyError("ct129")]))
        app.tick()
        assert "✗ verify stopped: KeyError: 'ct129'" in (await after(pilot)).splitlines()[0]
        await after(pilot, "v")
        await shown(pilot, "start the console anew")
        assert source.asked == []
        assert app.is_running


async def test_verdicts_that_fail_are_told_in_the_header_and_the_picture_stays() -> None:
    class Failing(StubVerdicts):
        def refresh(self) -> None:
            raise RuntimeError("no verdicts")

    source: StubVerdicts = StubVerdicts()
    app = console(builders.story(), verdicts=source)
    async with app.run_test(size=SIZE) as pilot:
        await after(pilot)
        source.__class__ = Failing
        app.tick()
        text = await after(pilot)
        assert "RuntimeError: no verdicts" in text
        assert "41.2/48G" in text


# ---- marks


async def test_a_mark_is_shown_counted_and_survives_a_filter() -> None:
    async with console(builders.story()).run_test(size=(160, 60)) as pilot:
        text = await after(pilot, "space")
        assert "▸ ◆ ct129" in text
        assert "◆ 1 marked" in text
        text = await after(pilot, "slash", *"kpro6", "enter", "space")
        assert "◆ 2 marked" in text
        assert "◆ ct129" not in text
        text = await after(pilot, "escape")
        assert "◆ ct129" in text
        assert "◆ kpro6" in text
        assert "◆" not in await after(pilot, "escape")


async def test_escape_ends_the_filter_before_it_clears_marks() -> None:
    async with console(builders.story()).run_test(size=(160, 60)) as pilot:
        await after(pilot, "space", "slash", "escape")
        assert app_of(pilot).marked == {"ct129"}
        await after(pilot, "slash", *"ct", "enter", "escape")
        assert app_of(pilot).marked == {"ct129"}
        await after(pilot, "escape")
        assert app_of(pilot).marked == frozenset()


async def test_marks_keep_to_the_name_while_hosts_come_and_go() -> None:
    fleet, source = StubFleet(builders.story()), StubVerdicts()
    async with console((), fleet=fleet, verdicts=source).run_test(size=(160, 60)) as pilot:
        await after(pilot, "space")
        first, *others = fleet.shown
        fleet.shown = tuple(others)
        app_of(pilot).tick()
        await after(pilot, "v")
        assert source.asked == [("ct200", None, False)]
        fleet.shown = (first, *others)
        app_of(pilot).tick()
        assert "◆ ct129" in await after(pilot)


async def test_a_row_of_the_table_can_be_marked() -> None:
    async with console(builders.many(100)).run_test(size=(80, 24)) as pilot:
        text = await after(pilot, "j", "space", "j")
        assert " ◆● gpu001" in text
        assert "▸ ● gpu002" in text


# ---- tabs


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ((), "overview"),
        (("tab",), "environments"),
        (("tab", "tab"), "overview"),
        (("shift+tab",), "environments"),
        (("2",), "environments"),
        (("2", "1"), "overview"),
        (("2", "greater_than_sign"), "environments"),
    ],
)
async def test_tabs_are_reached_by_tab_and_by_number(keys: tuple[str, ...], place: str) -> None:
    async with console(builders.story()).run_test(size=SIZE) as pilot:
        text = await after(pilot, "enter", *keys)
        screen = app_of(pilot).screen
        assert isinstance(screen, HostScreen)
        assert screen.tab.place == place
        assert f"▸{1 + (place == 'environments')} {place}" in text
        assert ("CHECK" in text) == (place == "environments")


@pytest.mark.parametrize(("left", "right", "up", "down"), [("left", "right", "up", "down"), tuple("hlkj")])
async def test_arrows_and_hjkl_move_from_cell_to_cell(left: str, right: str, up: str, down: str) -> None:
    source = StubVerdicts(verdicts.story())
    async with console(builders.story(), verdicts=source).run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "2")
        for keys, head in (
            ((), f"── modules  ✗ fail  {VENV} "),
            ((down,), f"── find_spec  ✗ fail  {VENV} "),
            ((right,), "── find_spec  ✓ pass  /root/venv "),
            ((up, up), "── origin  ✓ pass  /root/venv "),
            ((left, left), f"── origin  ✓ pass  {VENV} "),
            (("G",), f"── service sglang-dflash.service  ✗ fail  {VENV} "),
            (("g",), f"── python  ✓ pass  {VENV} "),
        ):
            assert head in await after(pilot, *keys)


async def test_a_click_puts_the_cursor_into_a_cell_and_a_second_one_opens_it() -> None:
    source = StubVerdicts(verdicts.story())
    async with console(builders.story(), verdicts=source).run_test(size=SIZE) as pilot:
        lines = (await after(pilot, *TO_CT200, "2")).splitlines()
        row = next(number for number, line in enumerate(lines) if line.strip().startswith("version"))
        at = (lines[row].index("! warn"), row)
        await pilot.click(offset=at)
        assert f"── version  ! warn  {VENV}" in await after(pilot)
        await pilot.click(offset=at, times=2)
        await after(pilot)
        assert isinstance(app_of(pilot).screen, EvidenceScreen)


async def test_the_cursor_keeps_to_its_cell_while_answers_come() -> None:
    source = StubVerdicts([verdicts.not_ready()])
    app = console(builders.story(), verdicts=source)
    async with app.run_test(size=(80, 24)) as pilot:
        before = await after(pilot, *TO_CT200, "2", "G")
        rows = [line.split()[0] for line in before.splitlines()[5:18]]
        head = "── service sglang-dflash.service"
        assert head in before
        for verdict in (verdicts.begun(), verdicts.verifying(), verdicts.not_ready()):
            source.put(verdict)
            app.tick()
            text = await after(pilot)
            assert head in text
            assert [line.split()[0] for line in text.splitlines()[5:18]] == rows
        assert text == before


async def test_a_tick_without_news_paints_no_row_of_the_matrix() -> None:
    clock, source = Clock(), StubVerdicts([verdicts.ready("ct200", VENV, age=600)])
    app = console(builders.story(), verdicts=source, clock=clock)
    async with app.run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "2")
        cells = app.screen.query_one("#cells", Panel)
        kept = list(cells._strips)
        clock.pass_by(1)
        app.tick()
        await after(pilot)
        assert all(old is new for old, new in zip(kept, cells._strips, strict=True))


@pytest.mark.parametrize("count", range(1, 13))
@pytest.mark.parametrize("size", [(80, 24), (200, 50), (40, 12)])
async def test_any_number_of_environments_keeps_the_cursor_on_the_screen(
    count: int, size: tuple[int, int]
) -> None:
    views, proved = verdicts.crowded(count)
    async with console(views, verdicts=StubVerdicts(proved)).run_test(size=size) as pilot:
        await after(pilot, "enter", "2", "g", *["h"] * count)
        for number in range(count):
            text = await after(pilot)
            assert f"venv-sglang-{number:02d}" in text
            assert "▾" in text
            assert text.count("▸") == 2
            await pilot.press("l", "j")


async def test_a_host_without_environments_says_why() -> None:
    views = [builders.unknown_key(), builders.story()[2]]
    async with console(views).run_test(size=SIZE) as pilot:
        assert "nothing is known of this host yet" in await after(pilot, "enter", "2", "j", "enter")
        assert "no environment was found" in await after(pilot, "greater_than_sign")


async def test_a_matrix_that_can_not_be_drawn_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[object]:
        raise RuntimeError("no matrix")

    monkeypatch.setattr("dflash_console.ui.environments.draw_matrix", fail)
    async with console(builders.story()).run_test(size=SIZE) as pilot:
        text = await after(pilot, "enter", "2")
        assert "this matrix could not be drawn: RuntimeError: no matrix" in text
        assert "GPUS" in await after(pilot, "1")


# ---- evidence


async def test_enter_shows_the_whole_evidence_and_escape_goes_back_to_the_cell() -> None:
    source = StubVerdicts(verdicts.story())
    async with console(builders.story(), verdicts=source).run_test(size=(80, 24)) as pilot:
        text = await after(pilot, *TO_CT200, "2", "j", "enter")
        assert isinstance(app_of(pilot).screen, EvidenceScreen)
        for words in ("ct200", VENV, "find_spec  ✗ fail", "03:12:32 UTC, 12 s ago", "EVIDENCE  5 lines"):
            assert words in text
        for line in verdicts.TRACE:
            assert line[:60] in text
        text = await after(pilot, "escape")
        assert f"── find_spec  ✗ fail  {VENV}" in text


async def test_a_cell_without_an_answer_opens_nothing_and_says_so() -> None:
    app = console(builders.story(), verdicts=StubVerdicts())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await after(pilot, "enter", "2", "enter")
        await shown(pilot, "nothing was said of this yet")
        assert isinstance(app.screen, HostScreen)


async def test_evidence_is_live_and_tells_when_it_is_made_anew() -> None:
    source = StubVerdicts(verdicts.story())
    app = console(builders.story(), verdicts=source)
    async with app.run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "2", "j", "enter", "v")
        assert source.asked == [("ct200", VENV, False)]
        source.put(verdicts.begun())
        app.tick()
        text = await after(pilot)
        assert "◌ verifying again; this is what was said before" in text
        assert verdicts.TRACE[-1] in text
        source.put(verdicts.ready("ct200", VENV))
        app.tick()
        text = await after(pilot)
        assert "find_spec  ✓ pass" in text
        assert verdicts.TRACE[-1] not in text


async def test_long_evidence_scrolls_to_its_end_and_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = tuple(f"{number:04d} {'文' * 4000}" for number in range(256))
    checks = verdicts.but(Check("record", "fail", "much is wrong", lines))
    source = StubVerdicts([Verdict("ct129", "/root/ml-env", checks, at=builders.WALL)])
    drawings: list[int] = []

    def counted(check: Check, width: int) -> Sequence[Line]:
        drawings.append(width)
        return draw_evidence(check, width)

    monkeypatch.setattr("dflash_console.ui.evidence.draw_evidence", counted)
    app = console(builders.story(), verdicts=source)
    async with app.run_test(size=(80, 24)) as pilot:
        assert "0000 文文" in await after(pilot, "enter", "2", "enter")
        assert "0255 文文" not in await after(pilot, "pagedown", "j", "k")
        text = await after(pilot, "G")
        assert "100 %" in text
        assert "文" in text.splitlines()[-2]
        app.tick()
        await after(pilot)
        assert drawings == [drawings[0]]
        assert "much is wrong" in await after(pilot, "g")


async def test_another_host_leads_out_of_the_evidence() -> None:
    source = StubVerdicts(verdicts.story())
    app = console(builders.story(), verdicts=source)
    async with app.run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "2", "enter")
        app.open_host("kpro6")
        assert "kpro6 · observe" in await after(pilot)
        assert isinstance(app.screen, HostScreen)
        await after(pilot, "less_than_sign", "2", "enter", "n")
        assert isinstance(app.screen, HostScreen)
        await after(pilot, "escape")
        assert isinstance(app.screen, FleetScreen)


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_hostile_evidence_runs_nothing_and_reaches_no_terminal(size: tuple[int, int]) -> None:
    bad = builders.HOSTILE
    checks = (Check(bad, "fail", bad, (bad, "")), Check("origin", "unknown", "[/b]", ("[bold]", bad)))
    source = StubVerdicts(
        [Verdict("mallory", bad, checks, at=builders.WALL, stale=bad), Verdict("mallory", "[/]", checks)]
    )
    views = [builders.hostile(), *builders.story()]
    app = console(views, verdicts=source)
    async with app.run_test(size=size, notifications=True) as pilot:
        for key in (
            "v",
            "enter",
            "2",
            "v",
            "enter",
            "V",
            "escape",
            "G",
            "enter",
            "escape",
            "l",
            "v",
            "escape",
        ):
            text = await after(pilot, key)
            assert all(character.isprintable() or character == "\n" for character in text)
        assert app.is_running


async def test_help_and_footer_tell_the_keys_of_the_tab_in_front() -> None:
    source = StubVerdicts(verdicts.story())
    async with console(builders.story(), verdicts=source).run_test(size=(120, 70)) as pilot:
        text = await after(pilot, "enter", "2")
        assert "enter evidence" in text.splitlines()[-1]
        text = await after(pilot, "question_mark")
        assert "the environment to the left" in text
        assert "scroll a page down" not in text
        text = await after(pilot, "escape", "enter", "question_mark")
        assert "back to the host" in text
        assert "scroll a page down" in text


async def test_the_palette_verifies() -> None:
    source = StubVerdicts()
    app = console(builders.story(), verdicts=source)
    async with app.run_test(size=(100, 40)) as pilot:
        await after(pilot, "colon", *"verify deeply")
        await until(lambda: "pins, binaries" in screen_text(app), 10, "the palette found the action")
        await pilot.press("enter")
        await until(lambda: bool(source.asked), 10, "a verification")
        assert source.asked == [("ct129", None, True)]


def test_the_detail_never_takes_more_lines_than_it_is_given() -> None:
    verdict = msgspec.structs.replace(verdicts.not_ready(), stale="x " * 300)
    shown_matrix = Matrix((VENV,), ("find_spec",), {VENV: verdict}, {})
    for height in range(1, 12):
        lines = draw_detail(shown_matrix, Place(VENV, "find_spec"), 40, height, builders.WALL)
        assert len(lines) <= max(height, 4)


async def test_what_fails_beside_the_screen_is_told_and_ends_nothing_silently() -> None:
    faults: list[Exception] = []
    is_shown = asyncio.Event()
    is_shown.set()

    async def failing() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.wait_for(asyncio.Event().wait(), 0))

    await _beside(is_shown, failing, faults.append)
    assert len(faults) == 1
    app = console(builders.story(), verdicts=StubVerdicts())
    app.verifying.stop(faults[0])
    assert app.verifying.fault.startswith("verify stopped: TimeoutError")
