"""Each name of the config gets its row, or the reason why there is none."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dflash_console.agent.slot import Slot
from dflash_console.agent.units import UnitSection
from dflash_console.agent.units import files as unit_files
from dflash_console.agent.units import inspector as unit_inspect
from dflash_console.agent.units import show as unit_show
from dflash_console.agent.units.files import FileWatch, installed_units
from dflash_console.model import Missing, Unit
from tests.agent.driver import PATIENCE
from tests.agent.systemctl import (
    RUN,
    STOPPED,
    Systemctl,
    command_of,
    configured,
    pump,
    read,
    rows,
    wait,
)
from tests.waiting import until_sync

NOT_BOOTED = (
    "System has not been booted with systemd as init system (PID 1). Can't operate.\n"
    "Failed to connect to bus: Host is down\n"
)


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    return Systemctl(tmp_path, monkeypatch)


@pytest.fixture
def section() -> Iterator[UnitSection]:
    made = UnitSection()
    yield made
    made.close()


# ---- rows


def test_each_name_has_its_row_in_the_configs_order(systemctl: Systemctl, section: UnitSection) -> None:
    asked = [STOPPED, "nope.service", "sglang-t@.service", RUN, "sglang-failed"]
    found = read(configured(section, *asked), 0.0)
    assert [row.name for row in found] == asked
    assert [row.load if isinstance(row.load, str) else row.load.missing for row in found] == [
        "loaded",
        "not-found",
        "error",
        "loaded",
        "loaded",
    ]
    assert found[2].problem.startswith("sglang-t@.service is a template")
    assert found[4].active == "failed"
    assert len(systemctl.calls) == 1


def test_what_a_unit_starts_is_told_beside_its_state(systemctl: Systemctl, section: UnitSection) -> None:
    (stopped,) = read(configured(section, STOPPED), 0.0)
    assert stopped.interpreter == "/opt/venv_sglang/bin/python"
    assert stopped.command == "/opt/venv_sglang/bin/python -m sglang.launch_server --model-path /models/x"
    assert (stopped.port, stopped.listening) == (30000, None)


@pytest.mark.parametrize("names", [[STOPPED], [f"user:{STOPPED}"], [f"user:{STOPPED}", STOPPED, RUN]])
def test_the_first_value_is_whole(systemctl: Systemctl, section: UnitSection, names: list[str]) -> None:
    slot = Slot("units", lambda: section)
    slot.tick({"units": names}, 0.0)

    def look() -> bool:
        pump(section, 0.0)
        slot.collect(0.0)
        return slot.pending is not None

    until_sync(look, PATIENCE, "a first value")
    found = msgspec.json.decode(str(slot.pending), type=list[Unit])
    assert [row.name for row in found] == names
    for row in found:
        if row.name != RUN:
            assert (row.interpreter, row.port) == ("/opt/venv_sglang/bin/python", 30000)


def test_the_first_value_waits_for_a_unit_that_hangs_until_its_deadline_only(
    systemctl: Systemctl, section: UnitSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_inspect, "inspect_unit", lambda block: os.read(os.pipe()[0], 1))
    configured(section, STOPPED)
    section.tick(0.0)
    (manager,) = section._managers()
    wait(section, 0.0, lambda: manager.has_read, "systemd's answer")
    section.tick(unit_inspect.DEADLINE - 0.1)
    assert (section.value, section.note) == (None, "")
    section.tick(unit_inspect.DEADLINE)
    (row,) = rows(section)
    assert (row.load, row.interpreter) == (
        "loaded",
        Missing("hung", "a process or file of the unit does not answer"),
    )


def test_a_users_manager_that_hangs_keeps_the_system_units_for_a_while_only(
    systemctl: Systemctl, section: UnitSection
) -> None:
    systemctl.say("hang-user")
    configured(section, "user:x.service", STOPPED)
    section.tick(0.0)
    system, user = section._managers()
    wait(section, 0.0, lambda: system.is_whole, "the system's units")
    assert section.value is None
    section.tick(unit_show.DEADLINE)
    assert not user.is_whole or user.rows
    assert [row.name for row in rows(section)][-1] == STOPPED


def test_no_secret_of_a_command_or_an_environment_leaves_the_host(
    systemctl: Systemctl, section: UnitSection
) -> None:
    read(configured(section, RUN), 0.0)
    sent = json.dumps(section.value)
    assert "verysecret" not in sent
    assert "hf_abc" not in sent
    assert "--api-key ***" in sent


def test_a_name_that_systemctl_refuses_costs_the_others_nothing(
    systemctl: Systemctl, section: UnitSection
) -> None:
    systemctl.say("refused/locked.service")
    systemctl.say("refused/first.service")
    found = read(configured(section, "first.service", RUN, "locked.service", STOPPED), 0.0)
    assert [isinstance(row.load, Missing) for row in found] == [True, False, True, False]
    assert found[0].load == Missing("error", "Failed to get properties: Access denied")
    calls = len(systemctl.calls)
    read(section, 3.0)
    assert len(systemctl.calls) == calls + 1, "what was refused is left out for a while"


def test_without_a_systemd_each_name_says_why_and_globs_say_it_in_a_note(
    systemctl: Systemctl, section: UnitSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_show, "BOOTED", str(systemctl.folder / "none"))
    systemctl.say("dead", NOT_BOOTED)
    (row,) = read(configured(section, RUN), 0.0)
    reason = " ".join(NOT_BOOTED.split())
    assert row.load == Missing("not_found", reason)
    assert row.problem == reason
    assert read(configured(section, "*sglang*.service"), 60.0) == []
    assert section.note == reason


@pytest.mark.skipif(Path("/run/systemd/system").exists(), reason="systemd runs here")
def test_a_machine_that_was_not_booted_with_systemd_is_told_in_systemctls_words(section: UnitSection) -> None:
    (row,) = read(configured(section, RUN), 0.0)
    assert isinstance(row.load, Missing)
    assert row.load.missing == "not_found"
    assert "System has not been booted with systemd" in row.load.detail


def test_a_machine_without_systemctl_says_so(
    section: UnitSection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(unit_show, "SYSTEM_PATH", str(tmp_path))
    (row,) = read(configured(section, RUN), 0.0)
    assert row.load == row.active == Missing("not_found", "systemctl is not installed")


def test_a_systemctl_that_hangs_is_hung_after_its_deadline(
    systemctl: Systemctl, section: UnitSection
) -> None:
    systemctl.say("hang")
    configured(section, RUN)
    section.tick(0.0)
    wait(section, 0.0, lambda: len(systemctl.calls) == 1, "the call")
    # By then it has hung; the next one will not.
    until_sync(lambda: "sleep" in command_of(section), PATIENCE, "the hang")
    (systemctl.folder / "hang").unlink()
    section.tick(unit_show.DEADLINE + 0.1)
    assert rows(section)[0].load == Missing("hung", "systemctl: no answer within 5 s")
    clock = itertools.count(7)
    # The clock stands while a child runs: on a busy machine it would run away to the next deadline.
    until_sync(lambda: read(section, float(next(clock)))[0].load == "loaded", PATIENCE, "the next reading")


def test_user_units_are_asked_of_the_users_own_manager(systemctl: Systemctl, section: UnitSection) -> None:
    found = read(configured(section, f"user:{RUN}", STOPPED, "user:nope.service"), 0.0)
    assert [row.name for row in found] == [f"user:{RUN}", STOPPED, "user:nope.service"]
    assert sorted(call.startswith("--user ") for call in systemctl.calls) == [False, True]
    runtime = f"/run/user/{os.geteuid()}"
    environments = (systemctl.folder / "environments").read_text().splitlines()
    assert f"{runtime} unix:path={runtime}/bus" in environments


def test_a_user_without_a_manager_is_told_and_the_system_is_read(
    systemctl: Systemctl, section: UnitSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    configured(section, "user:x.service")
    systemctl.say("dead", "Failed to connect to bus: No such file or directory\n")
    (row,) = read(section, 0.0)
    assert row.load == Missing(
        "not_found",
        "Failed to connect to bus: No such file or directory "
        "(/run/user/4711 is not there: no login session and no lingering)",
    )


def test_names_that_are_no_longer_configured_are_gone(systemctl: Systemctl, section: UnitSection) -> None:
    read(configured(section, RUN, STOPPED, "user:nope.service"), 0.0)
    assert [row.name for row in read(configured(section, STOPPED), 10.0)] == [STOPPED]
    assert read(configured(section), 20.0) == []


# ---- globs and files


def test_a_glob_also_finds_units_that_are_installed_and_not_loaded(
    systemctl: Systemctl, section: UnitSection
) -> None:
    files = systemctl.folder / "files"
    files.mkdir()
    for name in (STOPPED, RUN, "sglang-t@.service", "sglang.conf", "other.service"):
        (files / name).touch()
    found = read(configured(section, "*sglang*.service"), 0.0)
    assert [row.name for row in found] == [RUN, STOPPED]


def test_a_stopped_unit_that_systemd_has_unloaded_keeps_its_row_and_its_time(
    systemctl: Systemctl, section: UnitSection
) -> None:
    (systemctl.folder / "files").mkdir()
    (systemctl.folder / "files" / RUN).touch()
    read(configured(section, "*sglang*"), 0.0)
    stamps = ("StateChange", "ActiveEnter", "ActiveExit", "InactiveEnter", "InactiveExit")
    unloaded = {f"{which}TimestampMonotonic": "0" for which in stamps}
    systemctl.change(RUN, ActiveState="inactive", SubState="dead", MainPID="0", **unloaded)
    (stopped,) = read(section, 3.0)
    assert stopped.active == "inactive"
    assert stopped.since == pytest.approx(time.time() - time.monotonic() + 3.0, abs=1.0)
    (later,) = read(section, 6.0)
    assert later.since == stopped.since


def test_a_folder_that_is_not_there_holds_no_units(tmp_path: Path) -> None:
    (tmp_path / "a.service").touch()
    assert installed_units([str(tmp_path / "none"), str(tmp_path)], ["*.service"]) == ["a.service"]


def test_an_edited_added_or_removed_file_is_noticed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_files, "LOCAL", (str(tmp_path),))
    unit = tmp_path / "x.service"
    watch = FileWatch()
    watch.watch([str(unit), str(tmp_path)])
    assert not watch.has_changed()
    unit.write_text("[Service]\n")
    assert watch.has_changed()
    assert not watch.has_changed()
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    assert watch.has_changed()
    unit.unlink()
    assert watch.has_changed()


def test_files_that_may_lie_on_a_network_are_not_looked_at(tmp_path: Path) -> None:
    watch = FileWatch()
    watch.watch([str(tmp_path / "x.service")])
    (tmp_path / "x.service").touch()
    assert not watch.has_changed()
