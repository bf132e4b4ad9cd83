"""The console driven by its keys, over a fleet without hosts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from textual.events import MouseScrollDown, Paste, Resize
from textual.geometry import Size
from textual.pilot import Pilot
from textual.widgets import Input

from dflash_console.errors import StateError
from dflash_console.fleet import HostView
from dflash_console.model import GpuReport, LinkStatus
from dflash_console.ui.app import ConsoleApp
from dflash_console.ui.fleet_screen import FleetScreen
from dflash_console.ui.help import HelpScreen
from dflash_console.ui.host_screen import HostScreen
from dflash_console.ui.themes import load_themes
from tests.ui import builders
from tests.ui.looking import screen_text
from tests.ui.stub import THEMES, Clock, StubFleet, console
from tests.waiting import until


async def settled(pilot: Pilot[None]) -> str:
    """What is on the screen once everything that was asked for is drawn."""
    await pilot.pause()
    await pilot.pause()
    return screen_text(app_of(pilot))


def app_of(pilot: Pilot[None]) -> ConsoleApp:
    """The console that a pilot drives."""
    assert isinstance(pilot.app, ConsoleApp)
    return pilot.app


async def selected_after(pilot: Pilot[None], *keys: str) -> str:
    """The selected host once the keys were pressed."""
    for key in keys:
        await pilot.press(key)
    await pilot.pause()
    return app_of(pilot).selected


def grown(view: HostView, memory: int) -> HostView:
    """The view with another amount of memory on its first GPU."""
    assert view.snapshot is not None
    gpus = list(view.snapshot.gpu.gpus)
    gpus[0] = msgspec.structs.replace(gpus[0], memory_used=memory)
    report: GpuReport = msgspec.structs.replace(view.snapshot.gpu, gpus=gpus)
    snapshot = msgspec.structs.replace(view.snapshot, gpu=report)
    return msgspec.structs.replace(view, snapshot=snapshot, revision=view.revision + 1)


# ---- the fleet screen


async def test_all_hosts_are_on_the_first_screen() -> None:
    async with console(builders.every_kind()).run_test(size=(200, 50)) as pilot:
        text = await settled(pilot)
        for view in builders.every_kind():
            assert view.config.name in text
        assert "7 hosts" in text


async def test_a_tick_shows_what_changed() -> None:
    fleet = StubFleet(builders.story())
    async with console((), fleet=fleet).run_test(size=(160, 50)) as pilot:
        assert "41.2/48G" in await settled(pilot)
        fleet.shown = (grown(fleet.shown[0], 7 * builders.GIB), *fleet.shown[1:])
        app_of(pilot).tick()
        text = await settled(pilot)
        assert "7.0/48G" in text
        assert "41.2/48G" not in text


async def test_only_rows_that_changed_are_painted() -> None:
    fleet = StubFleet(builders.story())
    async with console((), fleet=fleet).run_test(size=(160, 50)) as pilot:
        await settled(pilot)
        panel = app_of(pilot).screen.query("HostPanel").first()
        kept = list(panel._strips)  # type: ignore[attr-defined]
        fleet.shown = (grown(fleet.shown[0], 7 * builders.GIB), *fleet.shown[1:])
        app_of(pilot).tick()
        await settled(pilot)
        drawn = list(panel._strips)  # type: ignore[attr-defined]
        changed = [row for row, (old, new) in enumerate(zip(kept, drawn, strict=True)) if old is not new]
        assert changed == [4]


ARROWS, LETTERS = ("right", "left", "down", "up"), ("l", "h", "j", "k")


@pytest.mark.parametrize("keys", [ARROWS, LETTERS])
async def test_arrows_and_hjkl_move_between_panels_by_place(keys: tuple[str, str, str, str]) -> None:
    right, left, down, up = keys
    async with console(builders.story()).run_test(size=(160, 60)) as pilot:
        await settled(pilot)
        assert app_of(pilot).selected == "ct129"
        assert await selected_after(pilot, right) == "ct200"
        assert await selected_after(pilot, left) == "ct129"
        assert await selected_after(pilot, down) == "kpro6"
        assert await selected_after(pilot, down) == "kpro6"
        assert await selected_after(pilot, up) == "ct129"


async def test_g_and_shift_g_go_to_the_first_and_the_last_host() -> None:
    async with console(builders.every_kind()).run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert await selected_after(pilot, "G") == "oldbox"
        assert "▸ oldbox" in await settled(pilot)
        assert await selected_after(pilot, "g") == "ct129"
        assert "▸ ct129" in await settled(pilot)


async def test_the_selected_panel_is_always_on_the_screen() -> None:
    async with console(builders.every_kind()).run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        seen = []
        for _ in range(20):
            text = await settled(pilot)
            app = app_of(pilot)
            if app.selected not in seen:
                seen.append(app.selected)
                assert f"▸ {app.selected}" in text
            await pilot.press("down")
        assert seen == [view.config.name for view in builders.every_kind()]


async def test_a_panel_longer_than_the_screen_is_scrolled_through_before_the_next_one() -> None:
    async with console(builders.story()).run_test(size=(80, 14)) as pilot:
        await settled(pilot)
        await pilot.press("down")
        lines = set((await settled(pilot)).splitlines())
        while await selected_after(pilot, "down") == "ct200":
            lines |= set((await settled(pilot)).splitlines())
        assert any("▸ ct200" in line for line in lines)
        assert any("PATH /root/sglang" in line for line in lines)
        assert any("target · production" in line for line in lines)


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (200, 50), (250, 70), (104, 30)])
async def test_nothing_is_cut_at_the_right_edge(size: tuple[int, int]) -> None:
    async with console(builders.every_kind()).run_test(size=size) as pilot:
        lines = (await settled(pilot)).splitlines()
        opened = [line for line in lines if line.startswith(("╭", "┏"))]
        assert opened
        assert all(line[-1] in "╮┓│┃╯┛▁▂▃▄▅▆▇█" for line in opened)
        assert "? help" in lines[-1]


async def test_a_resize_while_running_lays_everything_out_anew() -> None:
    async with console(builders.story()).run_test(size=(200, 50)) as pilot:
        wide = await settled(pilot)
        await pilot.resize_terminal(80, 24)
        narrow = await settled(pilot)
        await pilot.resize_terminal(200, 50)
        assert await settled(pilot) == wide
        assert max(len(line) for line in narrow.splitlines()) <= 80
        assert "▸ ct129" in narrow


# ---- filter


async def test_a_filter_is_live_and_escape_clears_it() -> None:
    async with console(builders.every_kind()).run_test(size=(200, 50)) as pilot:
        await settled(pilot)
        await pilot.press("slash", *"stale")
        text = await settled(pilot)
        assert "kpro6" in text
        assert "ct129" not in text
        assert "/stale 1 of 7" in text
        assert app_of(pilot).selected == "kpro6"
        await pilot.press("escape")
        assert "ct129" in await settled(pilot)


async def test_enter_keeps_the_filter_and_gives_the_keys_back() -> None:
    async with console(builders.every_kind()).run_test(size=(200, 50)) as pilot:
        await pilot.press("slash", *"target", "enter")
        assert await selected_after(pilot, "G") == "ct201"
        assert "ct129" not in await settled(pilot)
        await pilot.press("escape")
        assert "ct129" in await settled(pilot)


async def test_a_filter_that_lets_nobody_through_says_so() -> None:
    async with console(builders.story()).run_test(size=(80, 24)) as pilot:
        await pilot.press("slash", *"nobody")
        text = await settled(pilot)
        assert "no host matches nobody" in text
        assert "esc shows all hosts again" in text


async def test_letters_typed_into_the_filter_are_not_keys() -> None:
    async with console(builders.story()).run_test(size=(80, 24)) as pilot:
        await pilot.press("slash", *"qpt?:")
        await settled(pilot)
        assert app_of(pilot).screen.query_one(Input).value == "qpt?:"
        assert app_of(pilot).paused_for() is None
        assert app_of(pilot).is_running


# ---- the host screen


async def test_enter_opens_a_host_and_escape_goes_back() -> None:
    async with console(builders.story()).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("right", "enter")
        text = await settled(pilot)
        assert isinstance(app_of(pilot).screen, HostScreen)
        assert "ct200 · dflash-train · target · production" in text
        assert "GPUS" in text
        await pilot.press("escape")
        await settled(pilot)
        assert isinstance(app_of(pilot).screen, FleetScreen)
        assert app_of(pilot).selected == "ct200"


async def test_the_host_screen_is_live_and_keeps_its_place() -> None:
    fleet = StubFleet(builders.story())
    async with console((), fleet=fleet).run_test(size=(120, 30)) as pilot:
        await pilot.press("enter")
        await settled(pilot)
        await pilot.press("j", "j")
        before = await settled(pilot)
        fleet.shown = (grown(fleet.shown[0], 7 * builders.GIB), *fleet.shown[1:])
        app_of(pilot).tick()
        after = await settled(pilot)
        assert "memory 7.0G of 48.0G" in after
        assert after.splitlines()[2] == before.splitlines()[2]


async def test_the_host_screen_scrolls_to_its_end_and_goes_to_other_hosts() -> None:
    async with console(builders.story()).run_test(size=(100, 24)) as pilot:
        await pilot.press("enter", "G")
        assert "LINK" in await settled(pilot)
        await pilot.press("g")
        assert "FINDINGS" in await settled(pilot)
        await pilot.press("right")
        assert "ct200 · dflash-train" in await settled(pilot)
        await pilot.press("right", "right", "right")
        assert "no answer for 9 s" in await settled(pilot)
        await pilot.press("left", "left", "left")
        assert "ct129 · llm-two" in await settled(pilot)


# ---- pause, refresh, help, palette, themes


async def test_pause_freezes_the_screen_while_data_flows_on() -> None:
    fleet, clock = StubFleet(builders.story()), Clock()
    async with console((), fleet=fleet, clock=clock).run_test(size=(200, 50)) as pilot:
        await pilot.press("p")
        fleet.shown = (grown(fleet.shown[0], 7 * builders.GIB), *fleet.shown[1:])
        clock.pass_by(5)
        app_of(pilot).tick()
        text = await settled(pilot)
        assert "PAUSED 5 s" in text
        assert "41.2/48G" in text
        assert "no answer for 9 s" in text
        assert "03:12:49 UTC" in text
        await pilot.press("p")
        text = await settled(pilot)
        assert "PAUSED" not in text
        assert "7.0/48G" in text
        assert "no answer for 14 s" in text


async def test_refresh_asks_a_host_that_is_up_and_retries_one_that_is_not() -> None:
    fleet = StubFleet(builders.every_kind())
    async with console((), fleet=fleet).run_test(size=(200, 50)) as pilot:
        await pilot.press("ctrl+r", "G", "ctrl+r")
        await settled(pilot)
        assert fleet.asked == [("refresh", "ct129"), ("retry", "oldbox")]


async def test_help_lists_every_key_of_the_screen_and_the_marks() -> None:
    async with console(builders.story()).run_test(size=(100, 60)) as pilot:
        await pilot.press("question_mark")
        text = await settled(pilot)
        assert isinstance(app_of(pilot).screen, HelpScreen)
        for words in ("select the panel to the left", "freeze the screen", "Ctrl+R"):
            assert words in text
        await pilot.press("pagedown", "pagedown")
        assert "crash loop" in await settled(pilot)
        await pilot.press("escape")
        await settled(pilot)
        assert isinstance(app_of(pilot).screen, FleetScreen)


async def test_help_on_a_small_screen_scrolls_to_its_end() -> None:
    async with console(builders.story()).run_test(size=(60, 20)) as pilot:
        await pilot.press("question_mark")
        await settled(pilot)
        await pilot.press(*["pagedown"] * 6)
        assert "a terminal must" in " ".join((await settled(pilot)).split())


@pytest.mark.parametrize("key", ["colon", "ctrl+p"])
async def test_the_palette_opens_a_host_by_name(key: str) -> None:
    async with console(builders.story()).run_test(size=(100, 40)) as pilot:
        await settled(pilot)
        await pilot.press(key)
        await pilot.press(*"open kpro6")
        app = app_of(pilot)
        await until(lambda: "show all that is known" in screen_text(app), 10, "the palette found the host")
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, HostScreen), 10, "the host screen")
        assert app.selected == "kpro6"


async def test_the_palette_runs_the_registrys_actions() -> None:
    async with console(builders.story()).run_test(size=(100, 40)) as pilot:
        await settled(pilot)
        await pilot.press("colon", *"pause")
        app = app_of(pilot)
        await until(lambda: "Pause or go on" in screen_text(app), 10, "the palette found the action")
        await pilot.press("enter")
        await until(lambda: app.paused_for() is not None, 10, "a pause")


async def test_the_next_theme_is_worn_by_every_row_and_remembered() -> None:
    remembered: list[str] = []
    app = ConsoleApp(
        StubFleet(builders.story()),
        load_themes([THEMES]),
        theme="night",
        remember_theme=remembered.append,
        clock=Clock(),
    )
    async with app.run_test(size=(100, 40)) as pilot:
        await settled(pilot)
        for name in app.theme_names[app.theme_names.index("night") + 1 :]:
            await pilot.press("t")
            await settled(pilot)
            assert app.look.name == app.theme == name
        assert remembered == app.theme_names[app.theme_names.index("night") + 1 :]


async def test_a_theme_that_can_not_be_remembered_is_worn_all_the_same() -> None:
    def refuse(name: str) -> None:
        raise StateError(f"state.toml can't be written: [{name}]")

    app = ConsoleApp(StubFleet(builders.story()), load_themes([THEMES]), theme="night", remember_theme=refuse)
    async with app.run_test(size=(100, 40), notifications=True) as pilot:
        await pilot.press("t")
        await until(lambda: "state.toml can't be written" in screen_text(app), 5, "a toast")
        assert app.look.name != "night"


async def test_an_unknown_theme_is_told_and_the_console_starts() -> None:
    app = ConsoleApp(StubFleet(builders.story()), load_themes([THEMES]), theme="nihgt")
    async with app.run_test(size=(120, 40), notifications=True):
        await until(lambda: "no theme is called 'nihgt'" in screen_text(app), 5, "a toast about the theme")


async def test_keys_of_what_is_still_to_come_and_pasted_text_do_nothing() -> None:
    fleet = StubFleet(builders.story())
    async with console((), fleet=fleet).run_test(size=(160, 50)) as pilot:
        before = await settled(pilot)
        await pilot.press(*"csxrbdfei")
        app_of(pilot).screen.post_message(Paste("qqq\njjj\n"))
        assert await settled(pilot) == before
        assert app_of(pilot).is_running
        assert fleet.asked == []


async def test_q_quits_with_zero() -> None:
    app = console(builders.story())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("q")
    assert not app.return_code


# ---- trouble


async def test_a_host_that_can_not_be_drawn_says_so_and_harms_no_other() -> None:
    first, second, third = builders.story()
    broken = msgspec.structs.replace(second, utilization=None)
    async with console([first, broken, third]).run_test(size=(200, 50)) as pilot:
        text = await settled(pilot)
        assert "this panel could not be drawn: AttributeError" in text
        assert "41.2/48G" in text
        assert "no answer for 9 s" in text
        app_of(pilot).tick()
        await pilot.press("right", "enter")
        assert "this page could not be drawn: AttributeError" in await settled(pilot)


async def test_a_fleet_that_fails_is_told_in_the_header_and_the_picture_stays() -> None:
    class Failing(StubFleet):
        is_failing = False

        def views(self) -> tuple[HostView, ...]:
            if self.is_failing:
                raise RuntimeError("no views")
            return super().views()

    fleet = Failing(builders.story())
    async with console((), fleet=fleet).run_test(size=(200, 50)) as pilot:
        await settled(pilot)
        fleet.is_failing = True
        app_of(pilot).tick()
        text = await settled(pilot)
        assert "RuntimeError: no views" in text
        assert "41.2/48G" in text
        fleet.is_failing = False
        app_of(pilot).tick()
        assert "RuntimeError" not in await settled(pilot)


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_hostile_words_run_nothing_and_reach_no_terminal(size: tuple[int, int]) -> None:
    views = [builders.hostile(), *builders.story()]
    async with console(views).run_test(size=size) as pilot:
        for key in ("down", "enter", "escape", "slash"):
            text = await settled(pilot)
            assert all(character.isprintable() or character == "\n" for character in text)
            await pilot.press(key)
        await pilot.press(*"[bold]", "enter", "question_mark", "escape", "ctrl+r")
        await settled(pilot)
        assert app_of(pilot).is_running


async def test_the_screen_starts_before_any_host_has_answered() -> None:
    waiting: Sequence[HostView] = [
        HostView(config=view.config, link=LinkStatus("connecting", since=builders.WALL))
        for view in builders.story()
    ]
    fleet = StubFleet(waiting)
    async with console((), fleet=fleet).run_test(size=(160, 50)) as pilot:
        assert (await settled(pilot)).count("◌ connecting") >= 3
        fleet.shown = builders.story()
        app = app_of(pilot)
        await until(lambda: "41.2/48G" in screen_text(app), 5, "the first values, before the next whole tick")


# ---- many hosts


async def test_many_hosts_are_a_table_with_the_selected_hosts_panel_beside_it() -> None:
    async with console(builders.many(100)).run_test(size=(200, 50)) as pilot:
        text = await settled(pilot)
        assert "HOSTNAME" in text
        assert "gpu046" in text
        assert "▸ gpu000 · node-0 ━" in text
        await pilot.press("G")
        text = await settled(pilot)
        assert "gpu099" in text
        assert "▸ gpu099 · node-99 ━" in text
        assert "gpu000" not in text
        await pilot.press("k", "enter")
        assert "gpu098 · node-98 · target" in await settled(pilot)


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (120, 45)])
async def test_the_table_works_on_small_screens(size: tuple[int, int]) -> None:
    async with console(builders.many(100)).run_test(size=size) as pilot:
        await settled(pilot)
        for name in await _names_while_going_down(pilot, 60):
            assert name.startswith("gpu")
        assert app_of(pilot).selected == "gpu060"
        assert "▸ ● gpu060" in await settled(pilot)


async def _names_while_going_down(pilot: Pilot[None], times: int) -> list[str]:
    return [await selected_after(pilot, "j") for _ in range(times)]


async def test_the_table_can_be_filtered() -> None:
    async with console(builders.many(100)).run_test(size=(120, 40)) as pilot:
        await pilot.press("slash", *"gpu09", "enter")
        text = await settled(pilot)
        assert "gpu095" in text
        assert "gpu010" not in text
        assert "10 of 100" in text


async def test_a_broken_row_of_the_table_harms_no_other() -> None:
    fleet = StubFleet(builders.many(70))
    async with console((), fleet=fleet).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        snapshot = msgspec.structs.replace(fleet.shown[1].snapshot, units=[None])  # type: ignore[type-var]
        fleet.shown = (
            fleet.shown[0],
            msgspec.structs.replace(fleet.shown[1], snapshot=snapshot),
            *fleet.shown[2:],
        )
        app_of(pilot).tick()
        text = await settled(pilot)
        assert "RuntimeError" not in text
        assert "gpu001  could not be drawn: AttributeError" in text
        assert "gpu002" in text


async def test_a_mouse_click_selects_and_a_second_one_opens() -> None:
    async with console(builders.story()).run_test(size=(160, 50)) as pilot:
        await settled(pilot)
        await pilot.click(offset=(100, 10))
        assert app_of(pilot).selected == "ct200"
        await pilot.click(offset=(100, 10), times=2)
        await settled(pilot)
        assert isinstance(app_of(pilot).screen, HostScreen)


# ---- the selection stays in sight


def marked(text: str) -> str:
    """The host whose panel or row has the mark of the selection on the screen; empty when none has."""
    words = next((line.partition("▸ ")[2] for line in text.splitlines() if "▸ " in line), "")
    return next((word for word in words.split() if word.isascii()), "")


@pytest.mark.parametrize("views", [builders.every_kind(), builders.many(100)], ids=["panels", "table"])
@pytest.mark.parametrize("key", ["G", "g", "n"])
async def test_a_resize_keeps_the_selected_host_on_the_screen(views: Sequence[HostView], key: str) -> None:
    async with console(views).run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        chosen = await selected_after(pilot, key)
        for size in ((200, 50), (80, 24), (120, 40), (60, 14), (80, 24)):
            await pilot.resize_terminal(*size)
            assert marked(await settled(pilot)) == chosen, size


@pytest.mark.parametrize("views", [builders.every_kind(), builders.many(100)], ids=["panels", "table"])
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_selection_comes_along_page_by_page(
    views: Sequence[HostView], size: tuple[int, int]
) -> None:
    async with console(views).run_test(size=size) as pilot:
        await settled(pilot)
        for key, last in (("pagedown", views[-1]), ("pageup", views[0])):
            for _ in range(12):
                await pilot.press(key)
                assert marked(await settled(pilot)) == app_of(pilot).selected
            if size == (80, 24):
                assert app_of(pilot).selected == last.config.name


async def test_enter_does_not_open_a_host_that_is_out_of_sight() -> None:
    async with console(builders.every_kind()).run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for _ in range(12):
            await pilot._post_mouse_events([MouseScrollDown], offset=(20, 12))
        assert not marked(await settled(pilot))
        await pilot.press("enter")
        assert marked(await settled(pilot)) == "ct129"
        assert isinstance(app_of(pilot).screen, FleetScreen)
        await pilot.press("enter")
        await settled(pilot)
        assert isinstance(app_of(pilot).screen, HostScreen)


async def test_a_panel_that_grows_above_does_not_push_the_selected_one_off_the_screen() -> None:
    few = msgspec.structs.replace(builders.connecting(), config=builders.ct200().config)
    fleet = StubFleet([few, builders.ct129()])
    async with console((), fleet=fleet).run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("G")
        fleet.shown = (builders.ct200(), builders.ct129())
        app_of(pilot).tick()
        assert marked(await settled(pilot)) == "ct129"


async def test_two_resizes_that_meet_end_in_one_layout() -> None:
    async with console(builders.story()).run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        screen, laid_out = app_of(pilot).screen, []
        layout = screen._refresh_layout

        def counted(size: Size | None = None, scroll: bool = False) -> None:
            laid_out.append(size)
            layout(size, scroll)

        screen._refresh_layout = counted  # type: ignore[method-assign]
        for size in (Size(100, 29), Size(100, 30), Size(100, 28)):
            screen.post_message(Resize(size, size))
        await settled(pilot)
        before = len(laid_out)
        await settled(pilot)
        assert len(laid_out) == before < 12


# ---- trouble


async def test_n_goes_to_trouble_on_both_screens() -> None:
    async with console([*builders.many(2), *builders.every_kind()]).run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert await selected_after(pilot, "n") == "ct129"
        assert marked(await settled(pilot)) == "ct129"
        await pilot.press("enter", "n")
        assert "ct200 · dflash-train" in await settled(pilot)
        await pilot.press("N", "escape")
        assert marked(await settled(pilot)) == "ct129"


async def test_n_keeps_to_what_the_filter_shows() -> None:
    async with console(builders.every_kind()).run_test(size=(80, 24)) as pilot:
        await pilot.press("slash", *"no python", "enter", "n")
        await settled(pilot)
        assert app_of(pilot).selected == "oldbox"


async def test_n_without_trouble_says_so() -> None:
    app = console(builders.many(3))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("n")
        await until(lambda: "no host has trouble" in screen_text(app), 5, "a toast")
        assert app.selected == "gpu000"


# ---- words about keys


@pytest.mark.parametrize("keys", [("ctrl+c",), ("enter", "ctrl+c")])
async def test_ctrl_c_says_in_our_words_how_to_quit(keys: tuple[str, ...]) -> None:
    app = console(builders.story())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press(*keys)
        await until(lambda: "q quits" in screen_text(app), 5, "a toast")
        assert "ctrl+q" not in screen_text(app)
        assert app.is_running


async def test_the_footer_names_the_keys_of_the_filter_while_one_types() -> None:
    async with console(builders.story()).run_test(size=(80, 24)) as pilot:
        await pilot.press("slash", *"ct")
        footer = (await settled(pilot)).splitlines()[-1]
        assert "enter keep the filter" in footer
        assert "esc show all hosts" in footer
        assert "quit" not in footer
        await pilot.press("enter")
        assert "q quit" in (await settled(pilot)).splitlines()[-1]
