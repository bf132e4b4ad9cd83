"""Copy, driven by its keys: from what, to what, the plan, the question, how far it is, how it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from textual.events import Key, Paste
from textual.pilot import Pilot
from textual.widgets import Input

from dflash_console.copies import Consent, CopyPlan, Need, Side, TargetRun
from dflash_console.fleet import HostView
from dflash_console.model import LinkStatus
from dflash_console.ui.app import ConsoleApp
from dflash_console.ui.copy_screen import CopyScreen
from dflash_console.ui.fleet_screen import FleetScreen
from dflash_console.ui.host_screen import HostScreen
from dflash_console.ui.page_screen import CheckScreen
from dflash_console.ui.question import QuestionScreen
from dflash_console.ui.verifying import Target
from tests.ui import builders, copying
from tests.ui.copying import OTHER, SOURCE, TARGET, StubDesk
from tests.ui.driving import after, app_of, shown
from tests.ui.looking import screen_text
from tests.ui.stub import Clock, StubFleet, console
from tests.waiting import until

SIZE = (120, 40)
TO_CT200 = ("enter", "greater_than_sign")
CONSENT = Consent(yes=True, typed=frozenset({"ct200"}))


def desk(plan: CopyPlan | None = None) -> StubDesk:
    """One whose plan is there at once."""
    made = StubDesk()
    made.copies.next_plan = plan or copying.plan()
    return made


def with_role(view: HostView, role: str) -> HostView:
    """The same host in another role."""
    return msgspec.structs.replace(view, config=msgspec.structs.replace(view.config, role=role))


def lost(view: HostView) -> HostView:
    """The same host, which does not answer any more."""
    return msgspec.structs.replace(view, link=LinkStatus("unreachable", "no route"))


def going(app: ConsoleApp, *runs: TargetRun) -> None:
    """Has these run, as if they had been started here."""
    assert app.copying.desk is not None
    copies = app.copying.desk.copies
    assert isinstance(copies, copying.StubCopies)
    copies.runs = runs
    app.copying.targets = tuple(run.side for run in runs)
    app.tick()


async def key(pilot: Pilot[None], name: str, *, together: int) -> None:
    """A key that the terminal sent in one go with others."""
    event = Key(name, name if len(name) == 1 else None)
    vars(event)["together"] = together
    pilot.app.post_message(event)
    await after(pilot)


# ---- from what, to what


@pytest.mark.parametrize(
    ("keys", "targets"),
    [
        (("right", "c"), (TARGET,)),
        (("right", "space", "G", "space", "c"), (TARGET, Side("kpro6", "/root/ml-env"))),
        (("space", "right", "space", "c"), (TARGET,)),
        ((*TO_CT200, "c"), (TARGET,)),
        ((*TO_CT200, "2", "l", "c"), (Side("ct200", "/root/venv"),)),
        ((*TO_CT200, "2", "c"), (TARGET,)),
    ],
)
async def test_copy_plans_for_what_the_cursor_is_on_or_all_that_are_marked(
    keys: tuple[str, ...], targets: tuple[Side, ...]
) -> None:
    given = desk()
    kpro6 = builders.view(
        builders.kpro6().config, builders.snapshot("kpro6", venvs=[builders.venv("/root/ml-env")])
    )
    views = (builders.ct129(), builders.ct200(), kpro6)
    async with console(views, desk=given).run_test(size=(160, 60)) as pilot:
        await after(pilot, *keys)
        assert given.copies.planned == [(SOURCE, targets)]
        assert isinstance(pilot.app.screen, CopyScreen)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (("c",), "ct129 is the source itself: select or mark the hosts"),
        (("down", "c"), "kpro6 has no environment that is known"),
    ],
)
async def test_what_can_not_be_copied_to_is_said(keys: tuple[str, ...], words: str) -> None:
    given = desk()
    async with console(builders.story(), desk=given).run_test(size=(160, 60), notifications=True) as pilot:
        await after(pilot, *keys)
        await until(lambda: words in " ".join(screen_text(app_of(pilot)).split()), 10, words)
        assert given.copies.planned == []


async def test_a_reason_that_ends_in_a_question_is_gone_on_from_without_a_colon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = desk()
    monkeypatch.setattr(given, "side_of", lambda view, venv: "ct200 is not connected: is sshd running?")
    story = [builders.ct129(), builders.ct200()]
    async with console(story, desk=given).run_test(size=(160, 60), notifications=True) as pilot:
        await after(pilot)
        app_of(pilot).copying._plan_for([Target("ct200")], SOURCE)
        words = "is sshd running? select or mark"
        await until(lambda: words in " ".join(screen_text(app_of(pilot)).split()), 10, words)


async def test_without_a_source_the_key_says_what_to_write_in_the_config() -> None:
    views = [with_role(view, "target") for view in builders.story()]
    given = desk()
    async with console(views, desk=given).run_test(size=SIZE, notifications=True) as pilot:
        await after(pilot, "right", "c")
        await until(lambda: 'role = "source"' in screen_text(app_of(pilot)), 10, "the config's key")
        await after(pilot, "d")
        assert isinstance(pilot.app.screen, FleetScreen)
        assert given.copies.planned == []


async def test_of_several_sources_one_is_chosen() -> None:
    views = [builders.ct129(), builders.ct200(), with_role(builders.looping(), "source")]
    given = desk()
    async with console(views, desk=given).run_test(size=(160, 60)) as pilot:
        text = await after(pilot, "right", "c")
        assert "copy from which source?" in text
        await after(pilot, "escape")
        assert given.copies.planned == []
        await after(pilot, "c", "tab", "enter")
        assert given.copies.planned == [(OTHER, (TARGET,))]


async def test_hosts_that_were_marked_and_are_left_out_stand_on_the_plan() -> None:
    given = desk()
    async with console(builders.story(), desk=given).run_test(size=(160, 60)) as pilot:
        text = await after(pilot, "space", "right", "space", "G", "space", "c")
        assert given.copies.planned == [(SOURCE, (TARGET,))]
        assert "left out    ct129 is the source itself" in text
        assert "left out    kpro6 has no environment that is known" in text


@pytest.mark.parametrize("letter", ["c", "b", "d"])
async def test_a_console_that_can_not_copy_says_so(letter: str) -> None:
    async with console(builders.story()).run_test(size=SIZE, notifications=True) as pilot:
        await after(pilot, "right", letter)
        await shown(pilot, "nothing can be copied here")


async def test_a_read_only_console_says_why_it_does_not_copy() -> None:
    given = desk()
    app = console(builders.story(), desk=given)
    app.is_read_only = True
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await after(pilot, "right", "c")
        await shown(pilot, "read-only")
        assert given.copies.planned == []


async def test_why_no_plan_is_made_is_said() -> None:
    given = desk()
    given.copies.refusal = "another copy is under way"
    async with console(builders.story(), desk=given).run_test(size=SIZE, notifications=True) as pilot:
        await after(pilot, "right", "c")
        await shown(pilot, "another copy is under way")
        assert isinstance(pilot.app.screen, FleetScreen)


# ---- the plan


async def test_the_plan_fills_in_and_esc_leaves_it() -> None:
    given = StubDesk()
    app = console(builders.story(), desk=given)
    app.interval = 1000.0
    async with app.run_test(size=SIZE) as pilot:
        text = await after(pilot, *TO_CT200, "c")
        assert "◌ planning" in text
        assert "listing 6,396 files on ct129" in text
        given.copies.steps = "verifying ct129"
        await shown(pilot, "verifying ct129")
        given.copies.plan_now, given.copies.is_planning = copying.plan(), False
        await shown(pilot, "plan: nothing is changed yet")
        assert "◌ planning" not in await after(pilot)
        await after(pilot, "escape")
        assert isinstance(app.screen, HostScreen)
        assert given.copies.cancelled == 0


async def test_leaving_an_unfinished_plan_stops_it() -> None:
    given = StubDesk()
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "c", "escape")
        assert given.copies.cancelled == 1
        assert isinstance(pilot.app.screen, HostScreen)


async def test_a_plan_that_could_not_be_made_says_why_and_can_be_made_anew() -> None:
    given = StubDesk()
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "c")
        given.copies.is_planning, given.copies.steps = False, "ct129 can't be asked: connection lost"
        assert "ct129 can't be asked: connection lost" in await after(pilot, "c")
        given.copies.next_plan = copying.plan()
        text = await after(pilot, "ctrl+r")
        assert given.copies.planned == [(SOURCE, (TARGET,))] * 2
        assert "preflight" in text


async def test_the_plan_says_what_there_is_to_know_before_a_copy() -> None:
    target = copying.target(needs=(copying.RUNNING, copying.PRODUCTION))
    given = desk(copying.plan(target, copying.failing()))
    async with console(builders.story(), desk=given).run_test(size=(160, 70)) as pilot:
        text = await after(pilot, *TO_CT200, "c")
        for words in (
            "sglang 0.5.11  6,391 files  121M  looked at 4 s ago",
            "✓ ready · 3 min ago",
            "1 of 2 can be copied to",
            "+12  ~3  −5  6,376 stay  4.1M to send",
            "sglang/srt/layers       +2  ~1  −1",
            "… 2 more folders",
            "3 backups there",
            "from ct129, 3 h 6 m ago",
            "also   sglang-0.5.11.dist-info comes with it",
            "needs  a yes of its own: sglang-dflash.service (process 9981) runs from this environment",
            "! warn    pins",
            "✗ fail    space",
            "✗ versions: python 3.12 there, 3.10 here",
        ):
            assert words in text


async def test_enter_shows_the_evidence_of_a_check_and_the_files_of_a_folder() -> None:
    given = desk()
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        text = await after(pilot, *TO_CT200, "c", *["down"] * 6, "enter")
        assert isinstance(pilot.app.screen, CheckScreen)
        assert "torch==2.11.0   installed 2.9.1+cu128" in text
        await after(pilot, "escape", "g", "enter")
        assert given.asked == [("compare", SOURCE, TARGET)]
        assert "/sglang/srt/layers" in await after(pilot)


async def test_a_host_that_goes_away_is_said_in_its_place() -> None:
    fleet, given = StubFleet(builders.story()), desk()
    async with console((), fleet=fleet, desk=given).run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "c")
        first, second, third = fleet.shown
        fleet.shown = (first, lost(second), third)
        app_of(pilot).tick()
        assert "✗ ct200 is unreachable now, last heard" in await after(pilot)


async def test_a_plan_that_can_not_be_drawn_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> list[object]:
        raise RuntimeError("no plan")

    monkeypatch.setattr("dflash_console.ui.copy_screen.draw_plan", fail)
    async with console(builders.story(), desk=desk()).run_test(size=SIZE) as pilot:
        assert "this page could not be drawn: RuntimeError: no plan" in await after(pilot, *TO_CT200, "c")
        await after(pilot, "escape")
        assert isinstance(pilot.app.screen, HostScreen)


async def test_a_plan_that_fails_on_every_target_is_not_asked_about() -> None:
    given = desk(copying.plan(copying.failing(TARGET)))
    async with console(builders.story(), desk=given).run_test(size=SIZE, notifications=True) as pilot:
        await after(pilot, *TO_CT200, "c", "c")
        await shown(pilot, "it can't be copied: versions")
        assert isinstance(pilot.app.screen, CopyScreen)


# ---- the question


async def test_cancel_has_the_focus_and_enter_copies_nothing() -> None:
    given = desk(copying.plan(copying.target(needs=())))
    async with console([builders.ct129(), builders.looping()], desk=given).run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "c", "c", "enter")
        assert isinstance(pilot.app.screen, CopyScreen)
        assert given.copies.started == []
        await after(pilot, "c", "escape")
        assert given.copies.started == []


async def test_a_host_without_needs_takes_one_deliberate_answer() -> None:
    given = desk(copying.plan(copying.target(OTHER, needs=())))
    async with console([builders.ct129(), builders.looping()], desk=given).run_test(size=SIZE) as pilot:
        text = await after(pilot, *TO_CT200, "c", "c")
        for words in (
            "from    ct129:/root/ml-env   sglang 0.5.11",
            "to      ct202:/opt/env",
            "sglang 0.5.9 is replaced and kept as a backup",
            "This rests on a look 4 s ago",
            "all is given",
        ):
            assert words in text
        await after(pilot, "tab", "enter")
        assert given.copies.started == [Consent(yes=True)]
        assert isinstance(pilot.app.screen, CopyScreen)
        assert "copying from ct129" in screen_text(app_of(pilot))


async def test_every_need_is_ticked_by_itself_and_a_production_host_typed() -> None:
    needs = (copying.RUNNING, Need("warned", "NFS: the swap is not atomic"), copying.PRODUCTION)
    given = desk(copying.plan(copying.target(needs=needs)))
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        text = await after(pilot, *TO_CT200, "c", "c")
        assert "still needed: 2 of 2 to be ticked, type ct200" in text
        assert "still needed: 1 of 2 to be ticked, type ct200" in await after(pilot, "tab", "space")
        assert "still needed: type ct200" in await after(pilot, "tab", "enter")
        assert "still needed: type ct200" in await after(pilot, "tab", *"CT200")
        text = await after(pilot, *["backspace"] * 5, *"ct200")
        assert "all is given" in text
        assert "still needed: 1 of 2" in await after(pilot, "shift+tab", "space")
        await after(pilot, "space", "tab", "enter")
        assert given.copies.started == []
        await after(pilot, "tab", "enter")
        allowed = frozenset({need.code for need in needs} - {"production"})
        assert given.copies.started == [Consent(True, allowed, frozenset({"ct200"}))]


async def test_a_production_host_is_typed_also_when_the_plan_forgot_it() -> None:
    given = desk(copying.plan(copying.target(needs=())))
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        assert "type ct200 to confirm" in await after(pilot, *TO_CT200, "c", "c")


@pytest.mark.parametrize("first", ["", "tab"])
async def test_a_name_can_be_typed_at_once_whatever_has_the_focus(first: str) -> None:
    """Also one that begins with a letter which moves the focus elsewhere, and one that is gone on with later."""
    given = desk(copying.plan(copying.target(OTHER, needs=(copying.RUNNING, Need("production", "type it")))))
    story = [builders.ct129(), builders.looping()]
    async with console(story, desk=given).run_test(size=SIZE) as pilot:
        text = await after(pilot, *TO_CT200, "c", "c", *filter(None, [first]))
        assert "tab next   enter choose   esc back" in text
        assert "type ct202 to confirm  kl" in await after(pilot, *"kl")
        await after(pilot, "backspace", "backspace", *"ct2", "shift+tab")
        assert "still needed: 1 of 1 to be ticked" in await after(pilot, *"02")
        assert given.copies.started == []


async def test_pasted_text_confirms_nothing() -> None:
    given = desk(copying.plan(copying.target(needs=(copying.RUNNING, copying.PRODUCTION))))
    async with console(builders.story(), desk=given).run_test(size=SIZE, notifications=True) as pilot:
        await after(pilot, *TO_CT200, "c", "c", "tab")
        await key(pilot, "space", together=5)
        assert "[ ]" in await after(pilot)
        await after(pilot, "space", "tab")
        name = pilot.app.screen.query_one(Input)
        pilot.app.post_message(Paste("ct200"))
        await shown(pilot, "type it")
        assert name.value == ""
        for letter in "ct200":
            await key(pilot, letter, together=5)
        assert name.value == ""
        name.action_paste()
        assert name.value == ""
        assert "all is given" in await after(pilot, *"ct200")
        await after(pilot, "tab", "tab")
        await key(pilot, "enter", together=2)
        assert given.copies.started == []
        assert isinstance(pilot.app.screen, QuestionScreen)
        await after(pilot, "enter")
        assert len(given.copies.started) == 1


async def test_a_plan_that_changed_while_it_was_asked_about_is_not_carried_out() -> None:
    given = desk(copying.plan(copying.target(OTHER, needs=())))
    views = [builders.ct129(), builders.looping()]
    async with console(views, desk=given).run_test(size=SIZE, notifications=True) as pilot:
        await after(pilot, *TO_CT200, "c", "c", "tab")
        given.copies.plan_now = copying.plan()
        await after(pilot, "enter")
        assert given.copies.started == []
        assert "the plan has changed" in screen_text(app_of(pilot))


async def test_a_host_that_goes_away_while_it_is_asked_about_bars_the_answer() -> None:
    given = desk(copying.plan(copying.target(OTHER, needs=())))
    fleet = StubFleet([builders.ct129(), builders.looping()])
    async with console((), fleet=fleet, desk=given).run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "c", "c", "tab")
        first, second = fleet.shown
        fleet.shown = (first, lost(second))
        app_of(pilot).tick()
        text = await after(pilot, "enter")
        assert given.copies.started == []
        assert "✗ ct202 is unreachable now" in text


async def test_targets_that_can_not_be_copied_to_are_named_in_the_question() -> None:
    given = desk(copying.plan(copying.target(), copying.failing()))
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        text = await after(pilot, *TO_CT200, "c", "c")
        assert "not to  ct202: versions: python 3.12 there" in text
        assert "[ ]" not in text


@pytest.mark.parametrize("size", [(80, 24), (60, 16), (40, 12)])
async def test_a_question_of_any_length_can_be_answered_on_a_small_screen(size: tuple[int, int]) -> None:
    targets = [
        copying.target(
            Side(f"gpu{number}", "/root/a/rather/long/path/to/an/environment"),
            needs=(copying.RUNNING, Need("warned", "x " * 80)),
        )
        for number in range(5)
    ]
    given = desk(copying.plan(*targets))
    async with console(builders.story(), desk=given).run_test(size=size) as pilot:
        text = await after(pilot, *TO_CT200, "c", "c")
        assert "[ Cancel ]" in text
        for _ in targets:
            text = await after(pilot, "tab", "space", "tab", "space")
            assert "[ Cancel ]" in text
        await after(pilot, "tab", "tab", "enter")
        assert len(given.copies.started) == 1


# ---- how far it is


async def test_progress_is_left_running_and_shown_again() -> None:
    given = desk(copying.plan(copying.target(OTHER, needs=())))
    app = console([builders.ct129(), builders.looping()], desk=given)
    app.interval = 1000.0
    async with app.run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "c", "c", "tab", "enter")
        given.copies.runs = (copying.sending(OTHER),)
        await shown(pilot, "3,966 of 6,396 files  75.0M of 121M  41.0 MB/s  2 s left")
        text = await after(pilot, "escape")
        assert "▸[ Leave it running ]" in text
        text = await after(pilot, "enter")
        assert isinstance(app.screen, HostScreen)
        assert "→ copy 62 %" in text.splitlines()[0]
        given.copies.runs = (copying.sending(OTHER, 0.75),)
        await shown(pilot, "→ copy 75 %")
        text = await after(pilot, "c")
        assert isinstance(app.screen, CopyScreen)
        assert len(given.copies.planned) == 1
        assert " 75 %" in text
        assert given.copies.cancelled == 0


@pytest.mark.parametrize(
    ("answer", "cancelled"), [(("tab", "enter"), 1), (("tab", "tab", "enter"), 0), (("escape",), 0)]
)
async def test_esc_asks_before_it_cancels(answer: tuple[str, ...], cancelled: int) -> None:
    given = desk()
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        await after(pilot)
        going(app_of(pilot), copying.sending())
        await after(pilot, "c", "escape", *answer)
        assert given.copies.cancelled == cancelled
        assert isinstance(pilot.app.screen, CopyScreen)


async def test_a_question_about_leaving_that_stands_when_the_copy_ends_says_so() -> None:
    given = desk()
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        await after(pilot)
        going(app_of(pilot), copying.sending())
        assert "▸[ Leave it running ]" in await after(pilot, "c", "escape")
        going(app_of(pilot), copying.done())
        await shown(pilot, "It has come to its end meanwhile: nothing is left to be cancelled.")
        assert "under way" not in await after(pilot)


async def test_an_end_in_the_background_is_told_once_and_c_shows_it() -> None:
    given = desk()
    async with console(builders.story(), desk=given).run_test(size=(160, 50), notifications=True) as pilot:
        app = app_of(pilot)
        await after(pilot)
        going(app, copying.sending())
        assert "→ copy 62 %" in await after(pilot)
        going(app, copying.done())
        await shown(pilot, "ct200: copy: done; c shows it")
        app.clear_notifications()
        app.tick()
        assert "c shows it" not in await after(pilot)
        text = await after(pilot, "c")
        for words in (
            "✓ done",
            "+12  ~3  −5",
            "swapped in one step",
            "backups/20260802T031240Z-7f3a",
            "✓ ready",
        ):
            assert words in text
        assert given.copies.planned == []
        text = await after(pilot, "escape")
        assert "✓ copy done" not in text.splitlines()[0]
        await after(pilot, "right", "c")
        assert len(given.copies.planned) == 1


async def test_every_end_says_where_the_old_package_is() -> None:
    given = desk()
    async with console(builders.story(), desk=given).run_test(size=(160, 50)) as pilot:
        await after(pilot)
        going(app_of(pilot), copying.done(), copying.undone(), copying.failed(Side("kpro6", "/root/x")))
        text = await after(pilot, "c")
        assert "the package that was there is kept: /root/venv_sglang/.dflash-console/backups/" in text
        assert "the package is as it was before" in text
        assert "the package that was there: /root/x/.dflash-console/backups/20260802T031240Z-7f3a" in text
        assert "an interrupted copy of 02:14 was undone first" in text
        await after(pilot, "enter")
        assert "ImportError" in screen_text(app_of(pilot))


async def test_after_the_end_c_plans_the_same_again() -> None:
    given = desk(copying.plan(copying.target(OTHER, needs=())))
    async with console([builders.ct129(), builders.looping()], desk=given).run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "c", "c", "tab", "enter")
        given.copies.runs = (copying.undone(),)
        text = await after(pilot, "c")
        assert given.copies.planned == [(SOURCE, (OTHER,))] * 2
        assert "plan: nothing is changed yet" in text


async def test_a_run_that_nothing_carries_on_is_not_shown_as_running() -> None:
    class Broken(copying.StubCopies):
        @property
        def is_running(self) -> bool:
            return False

    given = StubDesk(Broken())
    async with console(builders.story(), desk=given).run_test(size=SIZE) as pilot:
        await after(pilot)
        going(app_of(pilot), copying.sending())
        text = await after(pilot, "c")
        assert "✗ failed" in text
        assert "it ended without saying how" in text
        await after(pilot, "escape")
        assert isinstance(pilot.app.screen, FleetScreen)


async def test_quitting_asks_while_something_is_copied() -> None:
    given = desk()
    app = console(builders.story(), desk=given)
    async with app.run_test(size=SIZE) as pilot:
        await after(pilot)
        going(app, copying.sending())
        assert "a copy is under way" in await after(pilot, "q")
        await after(pilot, "enter")
        assert app.is_running
        await pilot.press("q", "tab", "enter")
        await until(lambda: not app.is_running, 10, "the end")


async def test_an_interrupted_copy_that_was_settled_is_told() -> None:
    given = desk()
    given.copies.notices.append(
        "ct200:/root/venv_sglang: an interrupted copy was undone: the old package is in place"
    )
    async with console(builders.story(), desk=given).run_test(size=SIZE, notifications=True) as pilot:
        await after(pilot)
        app_of(pilot).tick()
        await shown(pilot, "an interrupted copy was undone")
        assert given.copies.notices == []


async def test_a_fault_of_copy_stands_in_the_header_and_answers_the_key() -> None:
    given = desk()
    app = console(builders.story(), desk=given)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await after(pilot)
        app.copying.stop(ExceptionGroup("tasks", [KeyError("ct129")]))
        assert "✗ copy stopped: KeyError: 'ct129'" in (await after(pilot)).splitlines()[0]
        await after(pilot, "c")
        await shown(pilot, "start the console anew")


async def test_another_host_leads_out_of_a_plan() -> None:
    app = console(builders.story(), desk=desk())
    async with app.run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "c", "enter")
        app.open_host("kpro6")
        assert "kpro6 · observe" in await after(pilot)
        assert isinstance(app.screen, HostScreen)


async def test_the_palette_copies() -> None:
    given = desk()
    async with console(builders.story(), desk=given).run_test(size=(100, 40)) as pilot:
        await after(pilot, *TO_CT200, "colon", *"copy the")
        await until(lambda: "Copy the package" in screen_text(app_of(pilot)), 10, "the action")
        await pilot.press("enter")
        await until(lambda: bool(given.copies.planned), 10, "a plan")


# ---- words that mean harm


def hostile() -> tuple[CopyPlan, tuple[TargetRun, ...]]:
    """A plan and runs all of whose words are meant to do harm."""
    bad = builders.HOSTILE
    checks = tuple(msgspec.structs.replace(check, detail=bad, evidence=(bad,)) for check in copying.PREFLIGHT)
    side = Side("mallory", bad)
    target = msgspec.structs.replace(
        copying.target(side, checks=(*checks, msgspec.structs.replace(checks[0], name=bad, state="warn"))),
        beside=(bad,),
        needs=(Need("running", bad),),
    )
    look = msgspec.structs.replace(
        copying.look(), version=bad, dist_version="[/]", strange=(bad,), followed=(bad,)
    )
    plan = msgspec.structs.replace(copying.plan(msgspec.structs.replace(target, look=look)), look=look)
    runs = (
        msgspec.structs.replace(
            copying.done(side), detail=bad, notes=(bad,), backup=bad, swap=bad, checks=checks
        ),
        msgspec.structs.replace(copying.failed(side), detail=bad),
    )
    return plan, runs


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_hostile_words_run_nothing_and_reach_no_terminal(size: tuple[int, int]) -> None:
    plan, runs = hostile()
    given = desk(plan)
    app = console([builders.ct129(), builders.hostile()], desk=given)
    async with app.run_test(size=size, notifications=True) as pilot:
        steps: Sequence[str | Callable[[], None]] = (
            *(
                "enter",
                "greater_than_sign",
                "c",
                "G",
                "enter",
                "escape",
                "c",
                "tab",
                "space",
                "escape",
                "escape",
            ),
            lambda: given.copies.notices.append(builders.HOSTILE),
            lambda: going(app, *runs),
            *("c", "down", "enter", "escape"),
        )
        for step in steps:
            if isinstance(step, str):
                text = await after(pilot, step)
            else:
                step()
                text = await after(pilot)
            assert all(character.isprintable() or character == "\n" for character in text)
        assert app.is_running


async def test_a_plan_is_not_drawn_anew_for_a_terminal_when_nothing_changed() -> None:
    clock = Clock()
    app = console(builders.story(), desk=desk(), clock=clock)
    async with app.run_test(size=SIZE) as pilot:
        await after(pilot, *TO_CT200, "c")
        assert isinstance(app.screen, CopyScreen)
        rows = app.screen.rows
        await until(lambda: bool(rows._strips) and None not in rows._strips, 10, "all rows painted")
        kept = list(rows._strips)
        app.tick()
        await after(pilot)
        assert all(old is new for old, new in zip(kept, rows._strips, strict=True))
