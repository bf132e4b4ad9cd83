"""What a tick paints: what can be seen, as it is now, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widget import Widget

from dflash_console.fleet import HostView
from dflash_console.ui import panel as panel_module
from dflash_console.ui.app import ConsoleApp
from dflash_console.ui.drawing.line import Line
from dflash_console.ui.drawing.panel import draw_panel
from dflash_console.ui.panel import HostPanel, Panel
from dflash_console.ui.scene import HostScene, Moment
from tests.ui import builders
from tests.ui.looking import screen_text
from tests.ui.stub import StubFleet, console

SIZE = (160, 50)


async def shown(pilot: Pilot[None]) -> str:
    """What is on the screen once all is drawn."""
    assert isinstance(pilot.app, ConsoleApp)
    await pilot.pause()
    await pilot.pause()
    return screen_text(pilot.app)


async def after_tick(pilot: Pilot[None], fleet: StubFleet, views: Sequence[HostView]) -> str:
    """What is on the screen once the fleet shows these views."""
    assert isinstance(pilot.app, ConsoleApp)
    fleet.shown = tuple(views)
    pilot.app.tick()
    return await shown(pilot)


async def fresh(views: Sequence[HostView], *keys: str) -> str:
    """What a console shows that is started with these views."""
    async with console(views).run_test(size=SIZE) as pilot:
        await shown(pilot)
        await pilot.press(*keys)
        return await shown(pilot)


def drawings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the hosts whose panels are drawn from now on."""
    names: list[str] = []

    def noted(host: HostScene, width: int, moment: Moment, *, is_selected: bool, room: int) -> list[Line]:
        names.append(host.name)
        return draw_panel(host, width, moment, is_selected=is_selected, room=room)

    monkeypatch.setattr(panel_module, "draw_panel", noted)
    return names


@pytest.mark.parametrize("keys", [("pagedown",), ("pagedown", "pagedown", "pageup"), ("G",), ("G", "g")])
async def test_a_panel_that_comes_into_view_shows_what_its_host_says_now(keys: tuple[str, ...]) -> None:
    fleet = StubFleet(builders.many(40))
    async with console((), fleet=fleet).run_test(size=SIZE) as pilot:
        await shown(pilot)
        for tick in range(1, 5):
            await after_tick(pilot, fleet, builders.many(40, tick))
        await pilot.press(*keys)
        assert await shown(pilot) == await fresh(builders.many(40, 4), *keys)


async def test_panels_out_of_view_are_drawn_now_and_then_only(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = StubFleet(builders.many(64))
    async with console((), fleet=fleet).run_test(size=SIZE) as pilot:
        await shown(pilot)
        names = drawings(monkeypatch)
        await after_tick(pilot, fleet, builders.many(64, 1))
        assert names[:2] == ["gpu000", "gpu001"]
        assert len(names) < 32
        for tick in range(2, 32):
            await after_tick(pilot, fleet, builders.many(64, tick))
        assert set(names) == {view.config.name for view in fleet.shown}


async def test_a_panel_out_of_view_that_grows_has_its_new_height_at_once() -> None:
    fleet = StubFleet(builders.many(40))
    async with console((), fleet=fleet).run_test(size=SIZE) as pilot:
        await shown(pilot)
        last = list(pilot.app.screen.query(HostPanel))[-1]
        before = last.size.height
        *others, view = builders.many(40, 1)
        assert view.snapshot is not None
        more = [builders.venv(f"/opt/{number}") for number in range(9)]
        snapshot = msgspec.structs.replace(view.snapshot, venvs=more)
        await after_tick(pilot, fleet, [*others, msgspec.structs.replace(view, snapshot=snapshot)])
        assert last.size.height > before + 3


async def test_a_tick_in_which_a_panel_out_of_view_is_drawn_marks_no_row_of_it() -> None:
    fleet = StubFleet(builders.many(40))
    async with console((), fleet=fleet).run_test(size=SIZE) as pilot:
        await shown(pilot)
        panel = Panel()
        await pilot.app.screen.mount(panel)
        await shown(pilot)
        panel.show([(("a", "text"),)])
        await shown(pilot)
        panel.show([(("b", "text"),)], is_seen=False)
        assert not panel._repaint_regions
        assert panel.render_line(0).text.rstrip() == "b"
        panel.show([(("c", "text"),)])
        assert panel._repaint_regions


@pytest.mark.parametrize("has_colours", [True, False])
@pytest.mark.parametrize("theme", ["night", "day", "contrast", "sixteen"])
async def test_rows_look_as_textuals_own_way_would_paint_them(
    theme: str, has_colours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_colours:
        monkeypatch.setenv("NO_COLOR", "1")
    app = console(builders.every_kind())
    async with app.run_test(size=SIZE) as pilot:
        await shown(pilot)
        app.use_theme(theme)
        await shown(pilot)
        seen = set()
        for panel in app.screen.query(Panel):
            whole = Region(0, 0, panel.size.width, panel.size.height)
            ours, theirs = panel.render_lines(whole), Widget.render_lines(panel, whole)
            assert [list(strip) for strip in ours] == [list(strip) for strip in theirs]
            seen |= {segment.style.color for strip in ours for segment in strip if segment.style}
        greys = {colour for colour in seen if colour is None or len(set(colour.triplet or (0,))) == 1}
        assert has_colours or seen == greys


@pytest.mark.parametrize("left", [0, 1, 7])
async def test_a_row_is_cut_to_the_region_that_is_asked_for(left: int) -> None:
    async with console(builders.story()).run_test(size=SIZE) as pilot:
        await shown(pilot)
        panel = pilot.app.screen.query(HostPanel).first()
        whole = panel.render_line(3).text
        (strip,) = panel.render_lines(Region(left, 3, 20, 1))
        assert strip.text == whole[left : left + 20]
        assert panel.render_line(panel.size.height + 5).text == " " * panel.size.width
