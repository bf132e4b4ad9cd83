"""systemctl's words become rows: recorded outputs in, facts out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from dflash_console.agent.units import text as unit_text
from dflash_console.agent.units.text import (
    describe_unit,
    escape_path,
    match_names,
    parse_show,
    refusal,
    steady_at,
    system_name,
)
from dflash_console.model import Unit, is_missing

DATA = Path(__file__).parent.parent / "data" / "systemctl"
NOW = 2101.0
EPOCH = 1796006521.4 - NOW
SYSTEM = parse_show((DATA / "show-252-system.txt").read_text())


def row(name: str, blocks: list[dict[str, str]] = SYSTEM, now: float = NOW) -> Unit:
    ((_, _, block),) = match_names(blocks, [name])
    assert block is not None
    return unit(block, name, now)


def unit(block: dict[str, str], name: str = "x.service", now: float = NOW) -> Unit:
    facts = describe_unit(block, monotonic=now, epoch=EPOCH)
    return msgspec.convert({"name": name, **facts}, Unit)


def test_a_running_unit_is_told_in_full() -> None:
    running = row("sglang-run.service")
    assert (running.load, running.active, running.sub, running.result) == (
        "loaded",
        "active",
        "running",
        "success",
    )
    assert running.description == "SGLang with DFlash on port 30001"
    assert running.main_pid is not None
    assert running.main_pid > 1
    assert running.restarts == 0
    assert running.fragment == "/etc/systemd/system/sglang-run.service"
    assert running.enabled == "disabled"
    assert len(running.invocation_id) == 32
    assert (running.exit_status, running.problem, running.is_looping, running.needs_reload) == (
        "",
        "",
        False,
        False,
    )


def test_a_point_in_time_comes_from_the_monotonic_clock() -> None:
    running = row("sglang-run.service")
    block = next(block for block in SYSTEM if block["Id"] == "sglang-run.service")
    assert running.since == pytest.approx(EPOCH + int(block["StateChangeTimestampMonotonic"]) / 1e6, abs=0.01)


def test_a_unit_that_is_not_installed_is_not_found_and_says_so() -> None:
    unknown = row("nope.service")
    assert unknown.load == "not-found"
    assert unknown.problem == "Unit nope.service not found."
    assert unknown.since is None


def test_an_installed_unit_that_does_not_run_is_stopped() -> None:
    stopped = row("sglang-stopped.service")
    assert (stopped.load, stopped.active, stopped.main_pid) == ("loaded", "inactive", None)
    assert is_missing(stopped.memory)


def test_a_masked_and_a_broken_unit_say_why_they_do_not_load() -> None:
    masked, broken = row("sglang-masked.service"), row("sglang-bad.service")
    assert (masked.load, masked.enabled) == ("masked", "masked")
    assert masked.problem == "Unit sglang-masked.service is masked."
    assert broken.load == "bad-setting"
    assert broken.problem == "Unit sglang-bad.service has a bad unit file setting."


def test_a_failed_unit_says_how_its_main_process_ended() -> None:
    assert row("sglang-failed.service").exit_status == "exited 3"
    killed = row("sglang-killed.service")
    assert (killed.active, killed.result, killed.exit_status) == ("failed", "signal", "killed 9")


def test_a_status_of_systemds_own_is_named() -> None:
    block = {
        "Id": "x.service",
        "ExecMainPID": "7",
        "MainPID": "0",
        "ExecMainCode": "1",
        "ExecMainStatus": "203",
    }
    assert unit(block).exit_status == "exited 203 EXEC"


def test_a_unit_whose_process_still_runs_has_no_exit_status() -> None:
    assert row("sglang-notify.service").exit_status == ""


def test_a_starting_unit_is_neither_running_nor_looping() -> None:
    starting = row("sglang-notify.service")
    assert (starting.active, starting.sub, starting.is_looping) == ("activating", "start", False)


def test_a_unit_that_waits_for_its_next_try_is_looping() -> None:
    looping = row("sglang-loop.service")
    assert (looping.active, looping.sub) == ("activating", "auto-restart")
    assert looping.is_looping
    assert isinstance(looping.restarts, int)
    assert looping.restarts > 1


def test_a_restarted_unit_loops_until_it_is_up_for_a_minute() -> None:
    block = {**next(block for block in SYSTEM if block["Id"] == "sglang-run.service"), "NRestarts": "1"}
    start = int(block["ActiveEnterTimestampMonotonic"]) / 1e6
    assert unit(block, now=start + 59).is_looping
    assert steady_at(block) == pytest.approx(start + 60)
    assert not unit(block, now=start + 60).is_looping


def test_a_unit_that_was_never_restarted_does_not_loop_however_young_it_is() -> None:
    block = next(block for block in SYSTEM if block["Id"] == "sglang-run.service")
    assert not unit(block, now=int(block["ActiveEnterTimestampMonotonic"]) / 1e6).is_looping
    assert steady_at(block) is None


def test_an_edited_unit_file_asks_for_a_reload() -> None:
    assert row("sglang-edited.service").needs_reload


def test_an_alias_is_answered_under_the_name_that_was_asked() -> None:
    alias = row("dflash-alias.service")
    assert (alias.name, alias.load) == ("dflash-alias.service", "loaded")
    assert alias.fragment == "/etc/systemd/system/sglang-alias-target.service"


def test_a_commands_empty_lines_and_fake_properties_stay_inside_its_unit() -> None:
    names = [block["Id"] for block in SYSTEM]
    assert "spoof.service" not in names
    assert "sglang-lines.service" in names
    lines = next(block for block in SYSTEM if block["Id"] == "sglang-lines.service")
    assert unit_text.split_command(lines["ExecStart"]) == (
        "/bin/sh",
        "/bin/sh -c echo one\n\nId=spoof.service\nsleep 1000 ; exit 0",
    )
    assert lines["ActiveState"] == "active"


def test_a_command_that_never_closes_its_brace_breaks_nothing() -> None:
    blocks = parse_show("Id=a.service\n\nExecStart={ path=/x ; argv[]=/x\n\nId=b.service\n")
    assert [block["Id"] for block in blocks] == ["a.service", "b.service"]


def test_of_several_commands_the_first_counts() -> None:
    oneshot = next(block for block in SYSTEM if block["Id"] == "sglang-oneshot.service")
    assert unit_text.split_command(oneshot["ExecStart"]) == ("/bin/true", "/bin/true one")


def test_rows_follow_the_config_and_a_glob_repeats_nothing() -> None:
    asked = [
        "sglang-stopped.service",
        "*sglang*.service",
        "nope.service",
        "*dflash*.service",
        "sglang-run.service",
    ]
    found = match_names(SYSTEM, asked)
    names = [name for _, name, _ in found]
    assert names[0] == "sglang-stopped.service"
    assert names[-2:] == ["nope.service", "sglang-run.service"]
    assert names.count("sglang-stopped.service") == names.count("sglang-run.service") == 1
    by_glob = [name for glob, name, _ in found if glob == "*sglang*.service"]
    assert by_glob == sorted(by_glob)
    assert "sglang-t@5.service" in by_glob


def test_a_glob_without_a_match_gives_no_row() -> None:
    assert match_names(SYSTEM, ["*vllm*.service"]) == []


def test_a_glob_does_not_make_a_row_of_a_unit_that_is_not_installed() -> None:
    assert match_names(SYSTEM, ["nop*"]) == []


def test_a_plain_name_that_nobody_answered_stands_without_a_block() -> None:
    blocks = parse_show((DATA / "show-252-refused.txt").read_text())
    found = match_names(blocks, ["sglang-dropin.service", "sglang-t@.service"])
    assert [(name, block is None) for _, name, block in found] == [
        ("sglang-dropin.service", False),
        ("sglang-t@.service", True),
    ]


def test_a_user_unit_reads_like_a_system_unit() -> None:
    blocks = parse_show((DATA / "show-252-user.txt").read_text())
    running = row("sglang-user.service", blocks)
    assert (running.load, running.active) == ("loaded", "active")
    assert row("nope.service", blocks).load == "not-found"


@pytest.mark.parametrize("absent", ["[not set]", "18446744073709551615", None])
def test_what_systemd_does_not_count_is_missing_and_not_a_number(absent: str | None) -> None:
    block = dict(next(block for block in SYSTEM if block["Id"] == "sglang-run.service"))
    for key in ("NRestarts", "MemoryCurrent", "TasksCurrent"):
        del block[key]
        if absent is not None:
            block[key] = absent
    running = unit(block)
    assert is_missing(running.restarts)
    assert is_missing(running.memory)
    assert is_missing(running.tasks)


def test_counted_memory_and_tasks_are_numbers() -> None:
    block = {**next(block for block in SYSTEM if block["Id"] == "sglang-run.service")}
    running = unit({**block, "MemoryCurrent": "123456789", "TasksCurrent": "42"})
    assert (running.memory, running.tasks) == (123456789, 42)


def test_an_older_systemd_without_the_newer_properties_is_read_too() -> None:
    block = dict(next(block for block in SYSTEM if block["Id"] == "sglang-killed.service"))
    for key in ("NRestarts", "StateChangeTimestampMonotonic", "InvocationID"):
        del block[key]
    killed = unit(block)
    assert killed.active == "failed"
    assert killed.invocation_id == ""
    assert killed.since == pytest.approx(
        EPOCH + int(block["InactiveEnterTimestampMonotonic"]) / 1e6, abs=0.01
    )
    assert not killed.is_looping


def test_numbers_of_absurd_length_are_not_taken() -> None:
    assert is_missing(unit({"Id": "x.service", "MemoryCurrent": "9" * 5000}).memory)


ODD = [
    "sglang",
    "sglang.service",
    "a b$(id)",
    "tüv",
    "x@1",
    "t@.service",
    "foo.bar",
    "run-1.scope",
    "a;b",
    "100",
]


@pytest.mark.parametrize("name", ODD)
def test_names_are_made_as_systemd_makes_them(name: str) -> None:
    done = subprocess.run(
        ["systemd-escape", "--mangle", "--", name], capture_output=True, text=True, timeout=10, check=True
    )
    assert system_name(name) == done.stdout.rstrip("\n")


def test_a_glob_stays_as_it_is() -> None:
    assert system_name("*sglang*") == "*sglang*"


def test_a_bare_template_is_refused_with_the_way_out() -> None:
    assert refusal("t@.service") == "t@.service is a template: name an instance of it, such as t@1.service"
    assert refusal("t@5.service") == ""
    assert refusal("@x.service").startswith("not a unit name")
    assert refusal("x" * 300 + ".service").startswith("not a unit name")


def test_a_units_object_path_is_escaped_as_the_bus_does() -> None:
    # Seen in real signals of systemd 252.
    assert escape_path("sglang-dropin.service") == "/org/freedesktop/systemd1/unit/sglang_2ddropin_2eservice"
    assert escape_path("0x.service") == "/org/freedesktop/systemd1/unit/_30x_2eservice"
    assert escape_path(r"a\x20b.service") == "/org/freedesktop/systemd1/unit/a_5cx20b_2eservice"
