"""The units section reads when something changed and seldom else, and gives each name its row or the reason.

`systemctl` is a stand-in here that answers with recorded blocks; signals come over a real dbus-daemon.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from dflash_console.agent import unit_files, unit_manager, unit_show
from dflash_console.agent.unit_files import FileWatch, installed_units
from dflash_console.agent.unit_text import escape_path
from dflash_console.agent.units import UnitSection
from dflash_console.model import Missing, Unit
from tests.agent.bus_peers import Systemd, session_bus
from tests.waiting import until_sync

RECORDED = (Path(__file__).parent.parent / "data" / "systemctl" / "show-252-system.txt").read_text()
NOT_BOOTED = (
    "System has not been booted with systemd as init system (PID 1). Can't operate.\n"
    "Failed to connect to bus: Host is down\n"
)
SCRIPT = """#!/bin/sh
cd {folder}
echo "$*" >> calls
echo "$XDG_RUNTIME_DIR $DBUS_SESSION_BUS_ADDRESS" >> environments
[ -e hang ] && exec sleep 600
[ -e dead ] && {{ cat dead >&2; exit 1; }}
case "$*" in *" -p Version") echo Version=252; exit 0;; esac
while [ "$1" != -- ]; do shift; done
shift
for name do
  case "$name" in *'*'*) continue;; esac
  [ -e "refused/$name" ] && {{ echo "Failed to get properties: Access denied" >&2; exit 1; }}
  cat "units/$name" 2> /dev/null || sed "s/nope/${{name%.service}}/" units/nope.service
  echo
done
"""
RUN, STOPPED = "sglang-run.service", "sglang-stopped.service"


class Systemctl:
    """The stand-in and what it is to say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("bin", "units", "refused"):
            (folder / name).mkdir()
        script = folder / "bin" / "systemctl"
        script.write_text(SCRIPT.format(folder=folder))
        script.chmod(0o755)
        (folder / "calls").touch()
        # Above every pid that Linux gives, so that no process of this machine is meant.
        recorded = re.sub(r"MainPID=[1-9]\d*", "MainPID=4194999", RECORDED)
        for block in recorded.replace("\n\nId=spoof", "").split("\n\n"):
            for line in block.splitlines():
                if line.startswith("Id="):
                    (folder / "units" / line[3:]).write_text(block + "\n")

    @property
    def calls(self) -> list[str]:
        """The command lines so far."""
        return (self.folder / "calls").read_text().splitlines()

    def change(self, name: str, **properties: str) -> None:
        """Let a unit have other properties from now on."""
        path = self.folder / "units" / name
        lines = path.read_text().splitlines()
        kept = [line for line in lines if line.partition("=")[0] not in properties]
        path.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in properties.items())]) + "\n")

    def say(self, what: str, words: str = "") -> None:
        """Hang, be dead with words on stderr, or refuse a name."""
        (self.folder / what).write_text(words)


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    made = Systemctl(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(unit_manager, "_sockets", lambda runtime: [str(tmp_path / "bus")])
    monkeypatch.setattr(unit_manager, "unit_folders", lambda runtime: [str(tmp_path / "files")])
    monkeypatch.setattr(unit_files, "LOCAL", (str(tmp_path),))
    monkeypatch.setattr(unit_show, "BOOTED", str(tmp_path))
    return made


@pytest.fixture
def section() -> Iterator[UnitSection]:
    made = UnitSection()
    yield made
    made.close()


def configured(section: UnitSection, *names: str) -> UnitSection:
    section.configure({"units": list(names)})
    return section


def pump(section: UnitSection, now: float) -> None:
    readable, _, _ = select.select(section.fds(), [], [], 0)
    for fd in readable:
        section.ready(fd, now)


def wait(section: UnitSection, now: float, true: Callable[[], bool], what: str) -> None:
    """Serve the section's descriptors at one moment of its clock until something is true."""

    def look() -> bool:
        pump(section, now)
        return true()

    until_sync(look, 10, what)


def is_idle(section: UnitSection) -> bool:
    """Whether no child of the section runs."""
    return not any(manager._reader.is_busy or manager._inspector.fds() for manager in section._managers())


def read(section: UnitSection, now: float) -> list[Unit]:
    """One tick and all that it starts, up to the end; the rows then."""
    section.tick(now)
    wait(section, now, lambda: is_idle(section), "the reading's end")
    return rows(section)


def has_read(section: UnitSection, systemctl: Systemctl, calls: int) -> bool:
    return len(systemctl.calls) == calls and is_idle(section)


def rows(section: UnitSection) -> list[Unit]:
    return msgspec.convert(json.loads(json.dumps(section.value)), list[Unit])


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
    section.tick(unit_show.DEADLINE + 0.1)
    (row,) = rows(section)
    assert row.load == Missing("hung", "systemctl: no answer within 5 s")
    (systemctl.folder / "hang").unlink()
    (row,) = read(section, 60.0)
    assert row.load == "loaded"


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


# ---- when to read


def test_without_signals_units_are_polled_every_two_seconds_and_a_note_says_so(
    systemctl: Systemctl, section: UnitSection
) -> None:
    read(configured(section, RUN), 0.0)
    assert section.note.startswith("no signals from systemd (")
    assert section.note.endswith("units are read every 2 s")
    for tick in range(1, 11):
        read(section, float(tick))
    assert len(systemctl.calls) == 6


@pytest.fixture
def systemd(systemctl: Systemctl) -> Iterator[Systemd]:
    with session_bus(systemctl.folder) as path:
        made = Systemd(path)
        yield made
        made.close()


def go_live(section: UnitSection, systemd: Systemd) -> float:
    """Read, subscribe, and read what may have changed before; the section's clock then."""

    def look() -> bool:
        pump(section, 0.0)
        systemd.serve()
        return systemd.subscribers == len(section._managers()) and is_idle(section) and not section.note

    section.tick(0.0)
    until_sync(look, 10, "the subscription")
    for now in (1.0, 2.0, 3.0, 4.0, 5.0):
        read(section, now)
    return 5.0


def test_while_signals_come_units_are_read_every_thirty_seconds_only(
    systemctl: Systemctl, systemd: Systemd, section: UnitSection
) -> None:
    now = go_live(configured(section, RUN), systemd)
    calls = len(systemctl.calls)
    for tick in range(1, 25):
        read(section, now + tick)
    assert len(systemctl.calls) == calls
    read(section, now + 31)
    assert len(systemctl.calls) == calls + 1


def test_a_signal_has_the_units_read_at_once(
    systemctl: Systemctl, systemd: Systemd, section: UnitSection
) -> None:
    now = go_live(configured(section, RUN), systemd)
    systemctl.change(RUN, ActiveState="failed", SubState="failed", MainPID="0")
    systemd.changed(escape_path(RUN))
    wait(section, now + 0.5, lambda: rows(section)[0].active == "failed", "the new state")


def test_a_storm_of_signals_shares_readings_and_the_last_state_is_read(
    systemctl: Systemctl, systemd: Systemd, section: UnitSection
) -> None:
    now = go_live(configured(section, RUN), systemd)
    calls = len(systemctl.calls)
    for number in range(50):
        systemctl.change(RUN, TasksCurrent=str(number))
        systemd.changed(escape_path(RUN))
        wait(section, now + 0.3 + number * 0.01, lambda: is_idle(section), "a quiet moment")
    systemctl.change(RUN, TasksCurrent="4711")
    systemd.changed(escape_path(RUN))
    wait(section, now + 0.85, lambda: section._managers()[0]._is_due, "the last signal")
    assert len(systemctl.calls) - calls == 2
    (row,) = read(section, now + 1.25)
    assert row.tasks == 4711
    assert len(systemctl.calls) - calls <= 4


def test_a_unit_in_a_restart_loop_asks_for_one_reading_a_second(
    systemctl: Systemctl, systemd: Systemd, section: UnitSection
) -> None:
    systemctl.change(RUN, ActiveState="activating", SubState="auto-restart")
    now = go_live(configured(section, RUN, STOPPED), systemd)
    assert rows(section)[0].is_looping
    calls = len(systemctl.calls)
    for tenth in range(40):
        systemd.changed(escape_path(RUN))
        wait(section, now + 0.05 + tenth / 10, lambda: is_idle(section), "a quiet moment")
    assert 3 <= len(systemctl.calls) - calls <= 5
    systemctl.change(STOPPED, ActiveState="active")
    systemd.changed(escape_path(STOPPED))
    wait(section, now + 5.1, lambda: rows(section)[1].active == "active", "another unit's change")


def test_a_reload_and_a_changed_unit_file_have_the_units_read(
    systemctl: Systemctl, systemd: Systemd, section: UnitSection
) -> None:
    now = go_live(configured(section, RUN), systemd)
    calls = len(systemctl.calls)
    for member in ("Reloading", "UnitFilesChanged"):
        now, calls = now + 2, calls + 1
        systemd.signal("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", member, "x")
        wait(section, now, partial(has_read, section, systemctl, calls), "the reading")
    (systemctl.folder / "files").mkdir()
    read(section, now + 10)
    assert len(systemctl.calls) == calls + 1


def test_a_loaded_unit_that_a_glob_names_is_read_and_others_are_not(
    systemctl: Systemctl, systemd: Systemd, section: UnitSection
) -> None:
    now = go_live(configured(section, "*sglang*", RUN), systemd)
    calls = len(systemctl.calls)
    manager = "org.freedesktop.systemd1.Manager"
    for name in (RUN, "other.service", "run-r1234.scope"):
        systemd.signal("/org/freedesktop/systemd1", manager, "UnitNew", name)
    systemd.signal("/org/freedesktop/systemd1", manager, "UnitNew", "sglang-new.service")
    wait(section, now + 2, partial(has_read, section, systemctl, calls + 1), "the reading")


def test_when_the_bus_is_lost_units_are_polled_until_it_is_back(
    systemctl: Systemctl, section: UnitSection
) -> None:
    with session_bus(systemctl.folder) as path:
        systemd = Systemd(path)
        now = go_live(configured(section, RUN), systemd)
        systemd.close()
    wait(section, now, lambda: bool(section.note), "the loss")
    calls = len(systemctl.calls)
    for tick in range(1, 5):
        read(section, now + tick)
    assert len(systemctl.calls) >= calls + 2
    (systemctl.folder / "bus").unlink(missing_ok=True)
    with session_bus(systemctl.folder) as path:
        systemd = Systemd(path)
        section.tick(now + 100)

        def is_back() -> bool:
            pump(section, now + 100)
            systemd.serve()
            return not section.note

        until_sync(is_back, 10, "the new subscription")
        systemd.close()


def test_one_failed_reading_takes_nothing_away(systemctl: Systemctl, section: UnitSection) -> None:
    before = read(configured(section, RUN, "*sglang*"), 0.0)
    systemctl.say("dead", "Failed to get properties: Message recipient disconnected from message bus\n")
    assert read(section, 3.0) == before
    (row,) = read(section, 4.0)
    assert isinstance(row.load, Missing)
    (systemctl.folder / "dead").unlink()
    assert [row.load for row in read(section, 7.0)] == ["loaded"]


def test_a_systemd_that_executes_itself_anew_is_asked_for_signals_again(
    systemctl: Systemctl, section: UnitSection
) -> None:
    with session_bus(systemctl.folder) as path:
        systemd = Systemd(path)
        now = go_live(configured(section, RUN), systemd)
        systemd.close()
        wait(section, now, lambda: bool(section.note), "the loss of the name's owner")
        systemd = Systemd(path)
        clock = itertools.count(now + 10)

        def is_back() -> bool:
            section.tick(next(clock))
            pump(section, next(clock))
            systemd.serve()
            return not section.note

        until_sync(is_back, 10, "the new subscription")
        systemd.close()


def test_a_unit_that_stays_up_stops_looping_without_a_signal(
    systemctl: Systemctl, systemd: Systemd, section: UnitSection
) -> None:
    systemctl.change(RUN, NRestarts="3", ActiveEnterTimestampMonotonic="2000000")
    now = go_live(configured(section, RUN), systemd)
    assert rows(section)[0].is_looping
    assert read(section, now + 30)[0].is_looping
    assert read(section, 61.9)[0].is_looping
    assert not read(section, 62.1)[0].is_looping


def test_a_refresh_reads_all_anew(systemctl: Systemctl, systemd: Systemd, section: UnitSection) -> None:
    systemctl.say("refused/locked.service")
    now = go_live(configured(section, RUN, "locked.service"), systemd)
    (systemctl.folder / "refused" / "locked.service").unlink()
    assert isinstance(read(section, now + 1)[1].load, Missing)
    section.refresh()
    assert read(section, now + 2)[1].load == "not-found"
