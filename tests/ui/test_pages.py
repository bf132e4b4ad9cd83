"""The host screen's page, the table, the header and the footer."""

from __future__ import annotations

import msgspec
import pytest

from dflash_console.config import HostConfig
from dflash_console.fleet import HostView
from dflash_console.model import GpuReport, LinkStatus, Missing
from dflash_console.ui.actions import footer_keys
from dflash_console.ui.drawing.header import HeaderState, draw_footer, draw_header
from dflash_console.ui.drawing.host_page import draw_host_page
from dflash_console.ui.drawing.line import columns, plain
from dflash_console.ui.drawing.table import draw_row, draw_titles, plan_table
from dflash_console.ui.scene import Scene, SceneMaker
from tests.ui import builders
from tests.ui.looking import texts

ALL = (*builders.every_kind(), builders.hostile())


def scene_of(*views: HostView) -> Scene:
    """The scene of these views."""
    return SceneMaker().take(views, builders.MOMENT)


def page(view: HostView, width: int = 120) -> str:
    """The page of a host."""
    return "\n".join(texts(draw_host_page(scene_of(view).hosts[0], width, builders.MOMENT)))


@pytest.mark.parametrize("width", [56, 78, 120, 248])
@pytest.mark.parametrize("view", ALL, ids=lambda view: view.config.name)
def test_no_line_of_a_page_is_longer_than_the_screen(view: HostView, width: int) -> None:
    for line in draw_host_page(scene_of(view).hosts[0], width, builders.MOMENT):
        assert columns(plain(line)) <= width
        assert plain(line).isprintable() or not line


def test_a_page_tells_every_field_of_a_gpu() -> None:
    text = page(builders.ct129())
    for part in (
        "memory 41.2G of 48.0G",
        "temperature 71°C",
        "power 274 W of 300 W",
        "PCIe gen 4 of 4",
        "lanes ×16 of 16",
        "ECC corrected 0",
        "uncorrected 0",
        "remap pending no",
        "remap failed no",
        "slowed by nothing",
        "recovery none",
        "persistence yes",
        "0000:41:00.0",
        "GPU-6000-0000",
        "driver 580.95.05",
    ):
        assert part in text


def test_a_command_without_room_beside_its_process_stands_below_it() -> None:
    lines = page(builders.ct200(), 78).splitlines()
    at = next(number for number, line in enumerate(lines) if "41177" in line)
    assert "/root/venv/bin/python /root/ddtree/ddtree.py --budget 64" in lines[at + 1]


def test_a_page_tells_every_process_with_who_and_what() -> None:
    text = page(builders.ct200(), 160)
    line = next(line for line in text.splitlines() if "41177" in line)
    for part in ("root", "71.0G", "/root/venv", "/root/venv/bin/python /root/ddtree/ddtree.py --budget 64"):
        assert part in line


def test_a_page_tells_reasons_in_full_words() -> None:
    text = page(builders.ct129())
    assert "power lost: GPU is lost" in text
    assert "last good 02:58:11 UTC, 14 min ago" in text


def test_a_page_tells_packages_and_the_full_origin_of_every_module() -> None:
    text = page(builders.ct129())
    assert "transformers 4.57.1" in text
    assert "/root/ml-env/lib/python3.12/site-packages/sglang/srt/speculative/dflash_worker.py" in text
    assert "✗ sglang.srt.speculative.dflash_info" in page(builders.ct200())


def test_a_page_tells_what_a_service_runs_and_how_it_is_set_up() -> None:
    text = page(builders.ct129())
    for part in ("--api-key ***", "interpreter", "at boot enabled", "memory 31.0G", "main pid 9981"):
        assert part in text


def test_a_page_shows_the_whole_text_of_the_link() -> None:
    text = page(builders.unknown_key(), 78)
    assert " ".join(text.split()).count("Nothing was trusted and nothing was sent.") == 1
    assert "SHA256:2nq9cQy5mCN9oVf1m1yFvP5Q1x2C0m6Yx0q0m8Z7v3E" in text
    assert "next try in 4 min" in text


def test_a_page_tells_what_the_agent_could_not_read() -> None:
    text = page(msgspec.structs.replace(builders.ct129(), notes={"units": "systemctl is not there"}))
    assert "NOTES" in text
    assert "systemctl is not there" in text


def test_a_page_tells_reboots_and_failed_tries() -> None:
    view = msgspec.structs.replace(builders.kpro6(), failures=3, rebooted_at=builders.WALL - 60)
    assert "failed tries 3" in page(view)
    assert "rebooted 03:11:44 UTC" in page(view)


# ---- the table


@pytest.mark.parametrize("width", [58, 80, 96, 120, 200])
def test_no_row_of_the_table_is_longer_than_the_screen(width: int) -> None:
    scene = scene_of(*ALL)
    plan = plan_table(scene.hosts, width)
    lines = [draw_row(host, plan, width, scene.moment, False) for host in scene.hosts]
    for line in [draw_titles(plan, width), *lines]:
        assert columns(plain(line)) <= width
        assert plain(line).isprintable()


def test_the_columns_of_the_table_are_aligned() -> None:
    scene = scene_of(*builders.every_kind())
    plan = plan_table(scene.hosts, 160)
    titles = plain(draw_titles(plan, 160))
    rows = [plain(draw_row(host, plan, 160, scene.moment, False)) for host in scene.hosts]
    assert {row[titles.index("STATE") - 1] for row in rows} == {" "}
    assert rows[0][titles.index("SERVICE") :].startswith("● running")
    assert rows[0][titles.index("ROLE") :].startswith("source")


def test_a_row_marks_sick_gpus_one_by_one_and_tells_the_worst_finding() -> None:
    scene = scene_of(builders.ct129(), builders.looping())
    plan = plan_table(scene.hosts, 160)
    assert "▅✗ " in plain(draw_row(scene.hosts[0], plan, 160, scene.moment, False))
    assert "✗ " in plain(draw_row(scene.hosts[0], plan, 160, scene.moment, False))
    row = plain(draw_row(scene.hosts[1], plan, 160, scene.moment, False))
    assert "↻ restarting" in row
    assert "crash loop" in row


def test_a_row_without_values_says_why() -> None:
    scene = scene_of(builders.unknown_key())
    row = plain(draw_row(scene.hosts[0], plan_table(scene.hosts, 160), 160, scene.moment, True))
    assert "host key unknown" in row
    assert " 0%" not in row


# ---- header and footer


LIVE = HeaderState(builders.WALL)


def header(width: int, state: HeaderState = LIVE) -> str:
    """The header over every kind of host."""
    return plain(draw_header(scene_of(*builders.every_kind()), state, width)).rstrip()


def test_the_header_counts_hosts_and_findings_in_words() -> None:
    text = header(200)
    for part in ("7 hosts", "● 3 up", "◐ 1 stale", "◌ 1 connecting", "✗ 2 down", "critical", "warnings"):
        assert part in text
    assert text.endswith("live 1.0 s   03:12:44 UTC")


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_narrow_header_keeps_all_numbers_and_the_clock(width: int) -> None:
    text = header(width)
    assert columns(text) <= width
    for part in ("● 3", "◐ 1", "◌ 1", "✗ 2", "▲ ", "03:12:44"):
        assert part in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_paused_screen_says_so_with_its_age(width: int) -> None:
    assert "PAUSED" not in header(width)
    assert "PAUSED 1 min" in header(width, LIVE._replace(paused_for=72.0))


def test_the_header_tells_the_filter_and_how_many_hosts_it_shows() -> None:
    assert "/stale 1 of 7" in header(200, LIVE._replace(filter_text="stale", shown=1))


def test_the_header_tells_read_only() -> None:
    assert "read-only" in header(200, LIVE._replace(is_read_only=True))


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_the_footer_shows_as_many_keys_as_fit(width: int) -> None:
    text = plain(draw_footer(footer_keys("fleet"), width, "3/7"))
    assert columns(text) <= width
    assert "move" in text
    assert text.rstrip()[-1] != "…"


def test_without_findings_the_header_says_so() -> None:
    scene = scene_of(builders.many(1)[0])
    assert "no findings" in plain(draw_header(scene, LIVE, 120))


def test_a_reason_is_told_in_words_for_whatever_a_page_lacks() -> None:
    view = builders.ct129()
    assert view.snapshot is not None
    host = msgspec.structs.replace(view.snapshot.host, root=Missing("permission", "statvfs"))
    snapshot = msgspec.structs.replace(view.snapshot, host=host)
    assert "/ no permission: statvfs" in page(msgspec.structs.replace(view, snapshot=snapshot))


# ---- the header where room lacks


LINK_COUNTS, FINDING_COUNTS = ("● 3", "◐ 1", "◌ 1", "✗ 2"), ("✗ 5", "▲ 6")


@pytest.mark.parametrize("width", range(56, 200))
def test_links_and_findings_are_told_apart_at_every_width(width: int) -> None:
    text = header(width)
    assert columns(text) <= width
    places = [text.index(part) for part in (*LINK_COUNTS, *FINDING_COUNTS)]
    assert places == sorted(places)
    assert "down" in text or "findings ✗ 5" in text


@pytest.mark.parametrize("width", range(80, 200))
def test_words_stay_and_the_clock_gives_way(width: int) -> None:
    for part in ("7 hosts", "up", "stale", "down", "crit", "warn"):
        assert part in header(width)
    if width < 110:
        assert "live" not in header(width)


def test_nothing_is_called_fine_before_it_was_read() -> None:
    view = msgspec.structs.replace(builders.many(1)[0], unread=frozenset({"venvs"}))
    for unsure in (view, builders.connecting()):
        text = plain(draw_header(scene_of(unsure), LIVE, 120))
        assert "no findings" not in text
        assert "reading" in text
    host = scene_of(view).hosts[0]
    row = plain(draw_row(host, plan_table([host], 160), 160, builders.MOMENT, False))
    assert row.rstrip().endswith("reading")


# ---- words of the page


def test_a_page_stands_still_when_its_host_is_silent() -> None:
    view = msgspec.structs.replace(builders.looping(), link=LinkStatus("unreachable", since=builders.WALL))
    host = scene_of(view).hosts[0]
    moment = builders.MOMENT._replace(wall=builders.WALL + 900, mono=builders.MONO + 900)
    before, after = (texts(draw_host_page(host, 120, at)) for at in (builders.MOMENT, moment))
    at = next(number for number, line in enumerate(before) if line.startswith("GPUS"))
    end = next(number for number, line in enumerate(before) if line.startswith("LINK"))
    assert before[at:end] == after[at:end]


def test_a_page_reads_as_sentences_do() -> None:
    view = builders.looping()
    assert view.snapshot is not None
    unit = msgspec.structs.replace(view.snapshot.units[0], enabled="disabled", exit_status="exited 3")
    text = page(msgspec.structs.replace(view, snapshot=msgspec.structs.replace(view.snapshot, units=[unit])))
    assert "at boot disabled" in text
    assert "last exit 3" in text


def test_a_host_without_gpus_says_so_once() -> None:
    view = builders.view(HostConfig("box"), builders.snapshot("box"))
    assert view.snapshot is not None
    gpu = GpuReport(gpus=[], source="none", driver=Missing("not_found"), kernel_count=0)
    text = page(msgspec.structs.replace(view, snapshot=msgspec.structs.replace(view.snapshot, gpu=gpu)))
    assert "no NVIDIA card is on the PCI bus" in text
    assert "read by" not in text
    assert "driver" not in text


LONG = "/srv/models/a-rather-long-name-of-an-organisation/Qwen3.6-27B-DFlash-with-a-long-name/snapshots/4f1c"


@pytest.mark.parametrize("width", [56, 78, 100])
def test_a_long_path_is_whole_and_breaks_at_strokes_only(width: int) -> None:
    view = builders.ct129()
    assert view.snapshot is not None
    snapshot = msgspec.structs.replace(
        view.snapshot,
        paths=[builders.path(LONG)],
        venvs=[builders.venv(LONG, package=builders.package(LONG))],
        units=[msgspec.structs.replace(view.snapshot.units[0], interpreter=LONG, fragment=LONG)],
    )
    lines = page(msgspec.structs.replace(view, snapshot=snapshot), width).splitlines()
    joined = "".join(line.strip() for line in lines)
    assert joined.count(LONG) >= 5
    parts = {part for line in lines for part in line.split() if "/" in part}
    known = set(LONG.split("/")) | {"lib", "python3.12", "site-packages", "sglang", "srt", "speculative", ""}
    broken = {piece for part in parts if "organisation" in part for piece in part.split("/")} - known
    assert broken <= {"__init__.py", "dflash_worker.py", "dflash_info.py", "dflash_utils.py", "dev", "bin"}


def test_a_page_says_that_subfolders_are_not_counted() -> None:
    assert "what lies in subfolders is not counted" in page(builders.ct129())
