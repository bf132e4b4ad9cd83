"""Whatever the model lets through can be drawn, in bounded work and in as many lines as a person may read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from dflash_console.config import HostConfig
from dflash_console.fleet import HostView
from dflash_console.model import SECTIONS, GpuProcess, Section
from dflash_console.ui.drawing import gpu_page, host_page, line, places, services, venvs
from dflash_console.ui.drawing.gpus import process_name
from dflash_console.ui.drawing.host_page import draw_host_page
from dflash_console.ui.drawing.line import Line, columns, plain, wrap
from dflash_console.ui.drawing.listing import listed
from dflash_console.ui.drawing.panel import draw_panel
from dflash_console.ui.drawing.table import draw_row, plan_table
from dflash_console.ui.drawing.words import age, clock, latency, memory_pair, share, size, span
from dflash_console.ui.scene import HostScene, SceneMaker
from tests.ui import builders
from tests.ui.extremes import TEXTS, extreme_view
from tests.ui.looking import texts

NUMBERS = (-(1 << 63), -1, 0, 1, 1023, 1024, (1 << 63) - 1, 1 << 63, 1 << 70, 10**30, 10**400)
FRACTIONS = (-1e308, -1.0, -0.0, 0.0, 0.049, 9.96, 999.96, 1e11, 1e15, 1e308, float("inf"), float("nan"))


def scene_of(view: HostView) -> HostScene:
    """The view with its findings."""
    return SceneMaker().take([view], builders.MOMENT).hosts[0]


@pytest.mark.parametrize("seed", range(60))
def test_any_host_can_be_drawn_on_every_screen(seed: int) -> None:
    host = scene_of(extreme_view(seed))
    assert not [finding for finding in host.findings if finding.code == "console_fault"]
    for width in (40, 80, 200):
        panel = draw_panel(host, width, builders.MOMENT, is_selected=bool(seed % 2), room=40)
        assert {columns(plain(row)) for row in panel} == {width}
        plan = plan_table([host], width)
        rows = [
            *draw_host_page(host, width, builders.MOMENT),
            draw_row(host, plan, width, builders.MOMENT, False),
        ]
        assert max(columns(plain(row)) for row in rows) <= width
        assert all(plain(row).isprintable() for row in (*panel, *rows))


# ---- numbers


@pytest.mark.parametrize("count", NUMBERS)
def test_any_amount_of_bytes_takes_five_cells_at_most(count: int) -> None:
    assert len(size(count)) <= 5
    for other in NUMBERS:
        used, total = memory_pair(count, other)
        assert max(len(used), len(total)) <= 5
        assert len(share(count, other)) <= 32


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1.0K"),
        (1023 * 1024, "1.0M"),
        (999 << 10, "999K"),
        ((1 << 63) - 1, "8.0E"),
        (1 << 71, ">998E"),
    ],
)
def test_an_amount_of_bytes_has_the_unit_that_fits(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("used", "total", "pair"),
    [
        (42_200 << 20, 48 << 30, ("41.2", "/48G")),
        (0, 288 << 30, ("0.0", "/288G")),
        (1100 << 30, 1536 << 30, ("1.1", "/1.5T")),
        (0, 12 << 40, ("0.0", "/12T")),
    ],
)
def test_the_memory_of_many_gpus_is_told_in_a_larger_unit(
    used: int, total: int, pair: tuple[str, str]
) -> None:
    assert memory_pair(used, total) == pair


def test_more_free_than_there_is_gives_no_number_of_what_is_used() -> None:
    assert share(-5, 755 << 30) == "—/755G"


@pytest.mark.parametrize("value", FRACTIONS)
def test_any_time_has_words(value: float) -> None:
    assert len(span(value)) <= 16
    assert len(age(value, 1.0)) <= 20
    assert len(clock(value)) == 8
    assert len(latency(value)) <= 16 or value < -1e6


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(0.44, "0.4 ms"), (9.9, "9.9 ms"), (23.4, "23 ms"), (12_345.0, "12 s")]
)
def test_a_round_trip_has_as_many_digits_as_matter(milliseconds: float, text: str) -> None:
    assert latency(milliseconds) == text


@pytest.mark.parametrize("unit", [None, *TEXTS])
def test_every_process_has_a_name(unit: str | None) -> None:
    for command in TEXTS:
        for venv in (None, *TEXTS):
            assert process_name(GpuProcess(7, 0, command=command, unit=unit, venv=venv))


# ---- long texts


@pytest.mark.parametrize("text", [text for text in TEXTS if len(text) > 1000])
def test_a_long_text_is_measured_about_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = 0

    def counted(part: str) -> int:
        nonlocal measured
        measured += len(part)
        return columns(part)

    monkeypatch.setattr(line, "columns", counted)
    for shorten in (line.cut, line.cut_left, line.cut_middle):
        shorten(text, 30)
    wrap(text, 30)
    assert measured <= 12 * len(text)


@pytest.mark.parametrize("text", ["x" * 4000, "word " * 800, "文" * 2000])
@pytest.mark.parametrize(("first", "most"), [(None, 1), (None, 3), (5, 1), (5, 3)])
def test_a_text_with_too_many_lines_ends_in_a_mark(text: str, first: int | None, most: int) -> None:
    lines = wrap(text, 10, first, most)
    assert len(lines) == most
    assert lines[-1].endswith("…")
    assert columns(lines[0]) <= (first or 10)
    assert all(columns(part) <= 10 for part in lines)


def test_a_text_that_just_fits_has_no_mark() -> None:
    assert wrap("one two", 4, most=2) == ["one", "two"]
    assert wrap("one\ntwo\nthree", 9, most=2) == ["one", "two…"]


# ---- long lists


def huge(count: int = 1000) -> HostView:
    """A host with as many environments, units and paths as the model lets through."""
    return builders.view(
        HostConfig("huge", paths=["/x"]),
        builders.snapshot(
            "huge",
            [
                builders.gpu(index, processes=[builders.process(pid, f"/opt/{pid}") for pid in range(256)])
                for index in range(64)
            ],
            venvs=[
                builders.venv(f"/opt/{number}", package=builders.package(f"/opt/{number}"))
                for number in range(count)
            ],
            units=[builders.unit(f"unit-{number}.service") for number in range(count)],
            paths=[builders.path(f"/data/{number}") for number in range(count)],
        ),
    )


def test_a_panel_of_a_huge_host_counts_what_it_leaves_out() -> None:
    lines = draw_panel(scene_of(huge()), 80, builders.MOMENT, is_selected=False, room=40)
    text = "\n".join(texts(lines))
    assert len(lines) < 500
    assert "… 966 more of 1000 · enter: all" in text
    assert text.count("… 900 more of 1000 · enter: all") == 2
    assert "HOST " in text


def test_a_page_of_a_huge_host_counts_what_it_leaves_out() -> None:
    lines = draw_host_page(scene_of(huge()), 120, builders.MOMENT)
    text = "\n".join(texts(lines))
    assert len(lines) < 5 * 1000
    assert text.count("dflash-console status --json tells all") >= 4
    assert "… 60 more of 64" in text
    assert "LINK" in text


@pytest.mark.parametrize(
    ("module", "name", "draw"),
    [
        (venvs, "_venv_lines", draw_panel),
        (services, "_unit_lines", draw_panel),
        (places, "_path_lines", draw_panel),
        (host_page, "_venv", draw_host_page),
        (host_page, "_unit", draw_host_page),
        (host_page, "_path", draw_host_page),
        (gpu_page, "_gpu_lines", draw_host_page),
    ],
)
def test_nothing_is_drawn_that_is_left_out(
    module: object, name: str, draw: Callable[..., list[Line]], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Sequence[Line]] = []
    real = getattr(module, name)

    def counted(*arguments: object) -> list[Line]:
        lines: list[Line] = real(*arguments)
        drawn.append(lines)
        return lines

    monkeypatch.setattr(module, name, counted)
    options = {"is_selected": False, "room": 40} if draw is draw_panel else {}
    draw(scene_of(huge()), 120, builders.MOMENT, **options)
    most = 100 if draw is draw_panel else 1000
    assert most <= sum(map(len, drawn)) < most + 400


def test_one_item_that_is_longer_than_the_limit_is_cut() -> None:
    rows = listed([1], lambda _: [(("x", "text"),)] * 50, 80, 10)
    assert len(rows) == 11
    assert "goes on" in plain(rows[-1])
    assert len(listed([1], lambda _: [(("x", "text"),)] * 50, 80, None)) == 50


# ---- what the agent leaves out


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("has_picture", [True, False])
def test_a_panel_tells_what_the_agent_left_out(section: Section, has_picture: bool) -> None:
    view = msgspec.structs.replace(
        builders.ct200() if has_picture else builders.connecting(), notes={section: "200 more are not shown"}
    )
    lines = texts(draw_panel(scene_of(view), 80, builders.MOMENT, is_selected=False, room=99))
    assert sum("200 more are not shown" in text for text in lines) == 1


def test_a_note_about_a_section_without_a_block_names_the_section() -> None:
    view = msgspec.structs.replace(builders.kpro6(), notes={"paths": "odd"})
    text = "\n".join(texts(draw_panel(scene_of(view), 80, builders.MOMENT, is_selected=False, room=99)))
    assert "▲ paths: odd" in text
