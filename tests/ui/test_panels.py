"""What stands in a host's panel."""

from __future__ import annotations

import msgspec
import pytest

from dflash_console.fleet import HostView
from dflash_console.model import Missing
from dflash_console.ui.drawing.line import Line, columns, plain
from dflash_console.ui.drawing.panel import draw_fault, draw_panel
from dflash_console.ui.scene import HostScene, SceneMaker
from tests.ui import builders
from tests.ui.looking import texts

ALL = (*builders.every_kind(), builders.hostile())
WIDTHS = (40, 52, 60, 66, 80, 100, 250)


def scene_of(view: HostView) -> HostScene:
    """The view with its findings."""
    return SceneMaker().take([view], builders.MOMENT).hosts[0]


def drawn(view: HostView, width: int = 80, *, room: int = 99, is_selected: bool = False) -> list[Line]:
    """The panel of a view."""
    return draw_panel(scene_of(view), width, builders.MOMENT, is_selected=is_selected, room=room)


def text_of(view: HostView, width: int = 80, *, room: int = 99) -> str:
    """The panel of a view as text."""
    return "\n".join(texts(drawn(view, width, room=room)))


def with_gpu(**fields: object) -> HostView:
    """ct129 with its first GPU changed."""
    view = builders.ct129()
    assert view.snapshot is not None
    card = msgspec.structs.replace(view.snapshot.gpu.gpus[0], **fields)
    return with_report(view, gpus=[card, *view.snapshot.gpu.gpus[1:]])


def with_report(view: HostView, **fields: object) -> HostView:
    """The view with its GPU report changed."""
    assert view.snapshot is not None
    report = msgspec.structs.replace(view.snapshot.gpu, **fields)
    return msgspec.structs.replace(view, snapshot=msgspec.structs.replace(view.snapshot, gpu=report))


def with_unit(**fields: object) -> HostView:
    """ct129 with its unit changed."""
    view = builders.ct129()
    assert view.snapshot is not None
    unit = msgspec.structs.replace(view.snapshot.units[0], **fields)
    return msgspec.structs.replace(view, snapshot=msgspec.structs.replace(view.snapshot, units=[unit]))


def line_with(text: str, words: str) -> str:
    """The one line that has these words."""
    found = [line for line in text.splitlines() if words in line]
    assert len(found) == 1, (words, text)
    return found[0]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "view", [*builders.every_kind(), builders.hostile()], ids=lambda view: view.config.name
)
def test_every_line_of_a_panel_is_exactly_as_wide_as_the_panel(view: HostView, width: int) -> None:
    assert {columns(plain(line)) for line in drawn(view, width)} == {width}


def test_the_border_names_host_hostname_role_production_latency_age_and_state() -> None:
    lines = texts(drawn(builders.ct200()))
    assert "ct200 · dflash-train" in lines[0]
    assert "✗ 1 critical" in lines[0]
    assert "target · production · 2.1 ms · now" in lines[-1]


def test_the_selected_panel_differs_by_shape_too() -> None:
    assert plain(drawn(builders.ct129(), is_selected=True)[0]).startswith("┏━ ▸ ct129")
    assert plain(drawn(builders.ct129())[0]).startswith("╭─ ct129")


def test_a_healthy_host_says_ok_in_a_word() -> None:
    assert "● ok" in texts(drawn(builders.many(1)[0]))[0]


def test_the_blocks_come_in_the_order_of_the_design() -> None:
    text = text_of(builders.ct200())
    places = [
        text.index(word) for word in ("✗ /root/venv_sglang", "GPU  ", "ENV  ", "SVC  ", "PATH ", "HOST ")
    ]
    assert places == sorted(places)


def test_three_findings_are_shown_and_the_rest_is_counted() -> None:
    text = text_of(builders.looping())
    assert "+" in line_with(text, "more")
    assert text.index("✗ sglang-dflash.service") < text.index("▲ ")


# ---- GPUs


def test_a_busy_gpu_shows_use_history_memory_heat_power_and_user() -> None:
    line = line_with(text_of(builders.ct129()), "41.2/48G")
    for part in ("  0 ██████", " 62% ", "▅▆", "71°", "274W", "sglang-dflash"):
        assert part in line


def test_columns_are_the_same_for_every_gpu_and_every_panel() -> None:
    lines = text_of(builders.ct200()).splitlines() + text_of(builders.ct129()).splitlines()
    strokes = {line.index("/96G") for line in lines if "/96G" in line}
    strokes |= {line.index("/48G") for line in lines if "/48G" in line}
    assert len(strokes) == 1


def test_a_lost_gpu_keeps_its_row_and_says_why_and_since_when() -> None:
    line = line_with(text_of(builders.ct129()), "✗ lost")
    assert "  1 ✗ lost  reset not supported, reboot the host" in line
    assert "last good 02:58:11" in line


@pytest.mark.parametrize(
    ("health", "words"),
    [("reset_required", "reset required"), ("hung", "hung"), ("unreadable", "unreadable"), ("lost", "lost")],
)
def test_every_kind_of_sick_gpu_has_its_word(health: str, words: str) -> None:
    assert f"✗ {words}" in text_of(with_gpu(health=health, health_detail="Xid 79"))


def test_a_gpu_that_needs_attention_keeps_its_values_and_is_marked() -> None:
    line = line_with(text_of(with_gpu(health="attention", health_detail="row remap pending")), "62%")
    assert "▲ row remap" in line


def test_a_missing_cell_shows_its_reason_never_zero_or_nothing() -> None:
    gone = Missing("unsupported")
    view = with_gpu(
        utilization=gone, temperature=gone, power=Missing("permission"), memory_used=Missing("hung")
    )
    line = text_of(view, 100).splitlines()[3]
    assert "not supported" in line
    assert "hung" in line
    assert "n/a" in line
    assert "perm" in line
    assert " 0%" not in line
    assert "0°" not in line


def test_a_missing_use_has_a_short_word_where_the_bar_is_too_narrow() -> None:
    line = text_of(with_gpu(utilization=Missing("unsupported")), 60).splitlines()[3]
    assert "n/a" in line


def test_who_uses_a_gpu_is_the_unit_then_the_program_then_the_venv() -> None:
    def user(**fields: object) -> str:
        process = msgspec.structs.replace(builders.process(7, "x"), **fields)
        return line_with(text_of(with_gpu(processes=[process])), "62%")

    assert "ddtree" in user(unit="ddtree.service")
    assert "ddtree" in user(command="/root/venv/bin/python /root/ddtree.py --budget 64")
    assert "sglang.launch" in user(command="python -m sglang.launch_server")
    assert "ml-env" in user(command=Missing("permission"), venv="/root/ml-env")
    assert "pid 7" in user(command=Missing("permission"))


def test_several_users_are_counted() -> None:
    processes = [builders.process(1, "a"), builders.process(2, "b")]
    assert "a +1" in line_with(text_of(with_gpu(processes=processes)), "62%")


def test_memory_that_no_visible_process_holds_is_told() -> None:
    line = line_with(text_of(with_gpu(processes=[], hidden_memory=40 * builders.GIB)), "62%")
    assert "unseen 40.0G" in line


def test_processes_that_may_not_be_read_say_so() -> None:
    assert "no permission" in line_with(text_of(with_gpu(processes=Missing("permission"))), "62%")


def test_cards_of_another_host_are_told_on_both_panels() -> None:
    assert "shared with kpro6" in text_of(builders.ct200())
    assert "shared with ct200" in text_of(builders.kpro6())


def test_a_driver_that_does_not_answer_is_told_above_the_rows() -> None:
    trouble = Missing("mismatch", "kernel module 580.95, library 570.12")
    text = text_of(with_report(builders.ct129(), trouble=trouble))
    assert "✗ driver mismatch: kernel module 580.95, library 570.12" in text


def test_a_host_without_gpus_says_none_and_who_has_them() -> None:
    text = text_of(with_report(builders.ct129(), gpus=[], kernel_count=0, passed_through=2))
    assert "GPU  none  2 passed through to a VM" in text


def test_idle_gpus_share_a_line_only_where_the_panel_is_too_high() -> None:
    assert "7 cards idle" not in text_of(builders.ct200(), room=40)
    folded = text_of(builders.ct200(), room=20)
    assert "1–7" in line_with(folded, "7 cards idle")
    assert len(folded.splitlines()) <= len(text_of(builders.ct200()).splitlines()) - 6


def test_a_sick_gpu_is_never_folded() -> None:
    view = builders.ct200()
    assert view.snapshot is not None
    gpus = list(view.snapshot.gpu.gpus)
    gpus[4] = msgspec.structs.replace(builders.lost_gpu(4), uuid=gpus[4].uuid)
    text = text_of(with_report(view, gpus=gpus), room=20)
    assert "  4 ✗ lost" in text
    assert "1–3" in text
    assert "5–7" in text


# ---- environments


def test_an_environment_tells_python_torch_version_origin_and_modules() -> None:
    text = text_of(builders.ct129(), 100)
    assert "ENV  /root/ml-env  py 3.12.3  torch 2.11.0+cu130" in text
    assert "sglang 0.5.11  /root/ml-env/lib/python3.12/site-packages/sglang/__init__.py" in text
    assert "dflash  ✓ worker  ✓ info  ✓ utils" in text


def test_a_nested_copy_is_told_apart_and_missing_modules_are_marked() -> None:
    text = text_of(builders.ct200())
    assert "nested copy" in line_with(text, "sglang 0.5.9")
    assert "✗ worker  ✗ info  ✗ utils  none is there" in text


def test_an_environment_without_the_package_and_one_that_is_not_there_differ() -> None:
    text = text_of(builders.ct200())
    assert "ENV  /root/venv  py 3.12.3  torch 2.9.1+cu128  no sglang" in text
    assert "ENV  /root/ml-env  ✗ not there" in text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dist_version": "0.5.9"}, "dist-info says 0.5.9"),
        ({"kind": "namespace", "origin": Missing("not_found")}, "namespace, no __init__.py"),
        ({"kind": "editable", "editable_from": "/root/src/sglang"}, "editable"),
        ({"outside": True}, "outside the venv"),
        ({"version": Missing("error", "odd")}, "version error"),
    ],
)
def test_every_odd_package_has_its_words(fields: dict[str, object], words: str) -> None:
    package = msgspec.structs.replace(builders.package("/root/ml-env"), **fields)
    view = builders.ct129()
    assert view.snapshot is not None
    snapshot = msgspec.structs.replace(view.snapshot, venvs=[builders.venv("/root/ml-env", package=package)])
    assert words in text_of(msgspec.structs.replace(view, snapshot=snapshot), 100)


def test_a_module_that_is_there_and_can_not_serve_is_neither_there_nor_missing() -> None:
    modules = dict(builders.package("/r").modules)
    modules[builders.MODULES[1]] = Missing("error", "empty file")
    package = msgspec.structs.replace(builders.package("/r"), modules=modules)
    view = builders.ct129()
    assert view.snapshot is not None
    snapshot = msgspec.structs.replace(view.snapshot, venvs=[builders.venv("/r", package=package)])
    assert "✓ worker  ! info (empty file)  ✓ utils" in text_of(
        msgspec.structs.replace(view, snapshot=snapshot)
    )


# ---- services


def test_a_running_service_tells_since_when_port_and_environment() -> None:
    assert "SVC  sglang-dflash  ● running  3 h 12 m  :30000 listening  ml-env" in text_of(builders.ct129())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"active": "inactive", "sub": "dead"}, "○ stopped"),
        ({"active": "failed", "sub": "failed", "exit_status": "exited 1"}, "✗ failed"),
        ({"active": "activating", "sub": "start"}, "◌ starting"),
        ({"active": "active", "sub": "running", "is_looping": True, "restarts": 14}, "↻ restarting"),
        ({"load": "not-found", "active": "inactive", "sub": "dead"}, "? not installed"),
        ({"load": "masked", "active": "inactive", "sub": "dead"}, "⊘ masked"),
        ({"load": "bad-setting", "problem": "line 3: odd"}, "✗ bad-setting"),
        ({"load": Missing("hung")}, "— systemd: hung"),
        ({"active": "active", "sub": "exited"}, "● active (exited)"),
        ({"listening": False}, ":30000 not listening"),
        ({"needs_reload": True}, "unit file edited, not reloaded"),
        ({"restarts": 2}, "2 restarts"),
    ],
)
def test_every_state_of_a_service_has_its_own_mark_and_word(fields: dict[str, object], words: str) -> None:
    assert words in text_of(with_unit(**fields), 120)


def test_a_stopped_service_is_not_red_and_not_running() -> None:
    text = text_of(builders.ct200())
    assert "○ stopped" in line_with(text, "SVC  sglang-dflash")
    assert "listening" not in line_with(text, "SVC  sglang-dflash")


# ---- paths and the host


def test_paths_tell_whether_they_are_there_their_size_and_the_room() -> None:
    text = text_of(builders.ct200())
    assert "✓ folder 54.0G  301G free" in line_with(text, "PATH /dev/shm/Qwen3.6-27B")
    assert "✗ not there" in line_with(text, "PATH /root/sglang")


def test_the_host_line_tells_load_memory_disk_and_uptime() -> None:
    line = line_with(text_of(builders.ct129()), "HOST")
    assert "load 3.2/64  mem 121/755G  / 402G free  shm 301G free  up 12 d 4 h" in line


def test_sections_that_never_came_are_being_read_not_empty() -> None:
    view = msgspec.structs.replace(
        builders.ct129(), unread=frozenset({"gpu", "venvs", "units"}), snapshot=builders.snapshot("llm-two")
    )
    text = text_of(view)
    for label in ("GPU  reading…", "ENV  reading…", "SVC  reading…"):
        assert label in text
    assert "none" not in text


# ---- links


def test_a_silent_host_keeps_its_picture_dimmed_with_its_age() -> None:
    lines = drawn(builders.kpro6())
    text = "\n".join(texts(lines))
    assert "◐ no answer for 9 s · last good picture below · next try in 4 s" in text
    assert "71.2/96G" in text
    body = next(line for line in lines if "71.2" in plain(line))
    assert not {ink for _, ink in body} & {"bar", "history", "strong", "note"}
    assert "9 s ago" in plain(lines[-1])


def test_a_link_says_what_happened_and_where_the_rest_is() -> None:
    text = text_of(builders.unknown_key())
    assert "? host key unknown · next try in 4 min" in text
    assert "… enter: all" in text


def test_a_try_that_is_under_way_is_told() -> None:
    view = builders.no_python()
    link = msgspec.structs.replace(view.link, next_try=builders.WALL - 2)
    assert "· trying now" in text_of(msgspec.structs.replace(view, link=link))


def test_a_host_that_has_just_been_asked_is_connecting() -> None:
    assert "◌ connecting" in texts(drawn(builders.connecting()))[0]


def test_hostile_words_reach_the_screen_as_harmless_text() -> None:
    for line in drawn(builders.hostile(), 120):
        assert plain(line).isprintable()
    assert "[@click=app.quit]" in text_of(builders.hostile(), 120)


def test_a_panel_that_can_not_be_drawn_says_so_in_its_place() -> None:
    lines = texts(draw_fault("ct129", ValueError("odd [bold] value"), 80))
    assert lines[0].startswith("╭─ ct129")
    assert "ValueError: odd [bold] value" in "\n".join(lines)
