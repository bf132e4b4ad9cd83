"""What stands in a host's panel."""

from __future__ import annotations

import msgspec
import pytest

from dflash_console.config import HostConfig
from dflash_console.fleet import HostView, Section
from dflash_console.model import LinkState, LinkStatus, Missing
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
    assert "n/a" in line_with(text_of(with_gpu(utilization=Missing("unsupported")), 60), "41.2/48G")


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
    assert "40.0G unseen" in line


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
    assert "✓ folder, 17 entries, 54.0G in files  301G free" in line_with(text, "PATH /dev/shm/Qwen3.6-27B")
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


def later(view: HostView, seconds: float, width: int = 80) -> list[str]:
    """The panel of a view as it is drawn some time after its last sample, without its border and link."""
    moment = builders.MOMENT._replace(wall=builders.WALL + seconds, mono=builders.MONO + seconds)
    lines = texts(draw_panel(scene_of(view), width, moment, is_selected=False, room=99))
    return [line for line in lines[1:-1] if line.startswith(("│ SVC", "│ HOST", "│ GPU", "│   0"))]


@pytest.mark.parametrize("state", ["up", "stale", "unreachable", "refused", "agent_failed", "connecting"])
def test_the_ages_inside_a_picture_are_as_of_its_last_sample(state: LinkState) -> None:
    view = msgspec.structs.replace(builders.looping(), link=LinkStatus(state, since=builders.WALL))
    assert later(view, 0) == later(view, 15) == later(view, 4000)
    assert any("restarting  3 s" in line for line in later(view, 4000))


def test_only_the_links_own_age_goes_on() -> None:
    moment = builders.MOMENT._replace(wall=builders.WALL + 60, mono=builders.MONO + 60)
    text = "\n".join(texts(draw_panel(scene_of(builders.kpro6()), 80, moment, is_selected=False, room=99)))
    assert "no answer for 1 min" in text
    assert "observe · 1 min ago" in text


@pytest.mark.parametrize("unread", [{"gpu"}, {"venvs", "units"}, {"paths"}])
def test_a_host_is_not_ok_before_all_of_it_was_read(unread: set[Section]) -> None:
    view = msgspec.structs.replace(builders.many(1)[0], unread=frozenset(unread))
    assert "◌ reading" in texts(drawn(view))[0]
    assert "ok" not in texts(drawn(view))[0]


def test_what_is_wrong_is_told_also_while_the_rest_is_read() -> None:
    view = msgspec.structs.replace(builders.ct129(), unread=frozenset({"units"}))
    assert "✗ 1 critical" in texts(drawn(view))[0]


@pytest.mark.parametrize("unread", [True, False])
@pytest.mark.parametrize(("section", "label"), [("gpu", "GPU"), ("venvs", "ENV"), ("units", "SVC")])
def test_a_section_that_can_not_be_read_is_not_called_empty(
    section: Section, label: str, unread: bool
) -> None:
    view = msgspec.structs.replace(
        builders.view(builders.ct129().config, builders.snapshot("llm-two")),
        notes={section: "System has not been booted with systemd"},
        unread=frozenset({section}) if unread else frozenset(),
    )
    assert f"{label}  can't be read" in text_of(view)


def test_units_that_match_nothing_and_no_units_at_all_differ() -> None:
    view = builders.view(HostConfig("box"), builders.snapshot("box"))
    assert "SVC  none match *sglang*.service, *dflash*.service" in text_of(view)
    assert "SVC  none watched" in text_of(
        builders.view(HostConfig("box", units=[]), builders.snapshot("box"))
    )


@pytest.mark.parametrize("width", [60, 62, 64, 66, 70, 80, 120])
@pytest.mark.parametrize("amount", [900 * 1024**2, 41 * 1024**3 + 2 * 1024**2, 139 * 1024**3])
def test_no_number_in_the_last_column_is_cut(width: int, amount: int) -> None:
    text = text_of(with_gpu(processes=[], hidden_memory=amount), width)
    line = line_with(text, "62%")
    assert "unseen" in line
    assert "…" not in line
    many = [builders.process(number, f"/opt/a-long-name-of-a-program-{number}") for number in range(12)]
    assert line_with(text_of(with_gpu(processes=many), width), "62%").rstrip("│ ").endswith("+11")


@pytest.mark.parametrize("width", [60, 76, 100])
def test_a_finding_that_is_longer_than_its_line_goes_on_below(width: int) -> None:
    text = " ".join(text_of(builders.ct200(), width).replace("│", " ").split())
    assert "/root/venv_sglang nested copy: sglang/sglang holds a second tree" in text
    assert "Python still imports the outer one" in text


def test_a_findings_subject_is_whole_where_there_is_room() -> None:
    view = builders.ct200()
    assert view.snapshot is not None
    gone = builders.path("/dev/shm/models/Qwen3.6-27B-DFlash-draft", size=None)
    snapshot = msgspec.structs.replace(view.snapshot, paths=[gone], venvs=[])
    text = text_of(msgspec.structs.replace(view, snapshot=snapshot), 100)
    assert "▲ /dev/shm/models/Qwen3.6-27B-DFlash-draft  is not there; the config names it" in text


def test_a_panel_without_room_for_longer_findings_cuts_them() -> None:
    assert len(drawn(builders.ct200(), 80, room=18)) < len(drawn(builders.ct200(), 80, room=22))


@pytest.mark.parametrize("width", [50, 60, 80])
def test_paths_are_whole_and_what_they_are_stands_below_where_room_lacks(width: int) -> None:
    text = text_of(builders.ct129(), width)
    assert "/root/models/Qwen3.6-27B-DFlash " in text
    assert "17 entries, 3.0G in files" in text


@pytest.mark.parametrize(
    ("entries", "size", "words"),
    [
        (3, 0, "✓ folder, 3 entries  "),
        (1, 0, "✓ folder, 1 entry  "),
        (0, 0, "✓ folder, empty  "),
        (17, 54 * builders.GIB, "✓ folder, 17 entries, 54.0G in files"),
    ],
)
def test_a_folder_of_folders_does_not_look_empty(entries: int, size: int, words: str) -> None:
    view = builders.ct129()
    assert view.snapshot is not None
    info = msgspec.structs.replace(builders.path("/models"), entries=entries, size=size)
    snapshot = msgspec.structs.replace(view.snapshot, paths=[info])
    assert words in text_of(msgspec.structs.replace(view, snapshot=snapshot))


@pytest.mark.parametrize("width", [44, 52, 60, 80, 100])
@pytest.mark.parametrize("before", ["", "The host shows another key than the known one. " * 3])
def test_a_fingerprint_is_never_cut(width: int, before: str) -> None:
    view = builders.unknown_key()
    link = msgspec.structs.replace(view.link, detail=before + view.link.detail)
    text = text_of(msgspec.structs.replace(view, link=link), width)
    joined = "".join(line.strip("│ ") for line in text.splitlines())
    assert "SHA256:2nq9cQy5mCN9oVf1m1yFvP5Q1x2C0m6Yx0q0m8Z7v3E" in joined
    assert "… enter: all" in text


@pytest.mark.parametrize("width", [40, 44, 48, 52, 56, 60, 70])
@pytest.mark.parametrize("view", ALL, ids=lambda view: view.config.name)
def test_no_wrapped_line_begins_with_what_only_parts_words(view: HostView, width: int) -> None:
    link = msgspec.structs.replace(view.link, next_try=builders.WALL + 4)
    for line in texts(drawn(msgspec.structs.replace(view, link=link), width)):
        assert not line.lstrip("│ ").startswith("·")


def test_a_stale_panel_says_once_that_nothing_comes() -> None:
    view = builders.kpro6()
    link = msgspec.structs.replace(view.link, detail="no sample for more than 3 s", next_try=None)
    text = text_of(msgspec.structs.replace(view, link=link))
    assert "no answer for 9 s" in text
    assert "no sample" not in text
    assert "try" not in text


@pytest.mark.parametrize("state", ["unreachable", "refused", "no_python", "agent_failed", "host_key_unknown"])
def test_a_try_that_runs_right_now_is_told(state: LinkState) -> None:
    view = msgspec.structs.replace(builders.no_python(), link=LinkStatus(state, detail="x"))
    assert "· trying now" in text_of(view)
