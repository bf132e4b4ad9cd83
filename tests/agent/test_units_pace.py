"""Units are read when something changed, and seldom else; signals come over a real dbus-daemon."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from dflash_console.agent.units import UnitSection
from dflash_console.agent.units.pace import Pace
from dflash_console.agent.units.text import escape_path
from dflash_console.model import Missing
from tests.agent.bus_peers import Systemd, session_bus
from tests.agent.driver import PATIENCE
from tests.agent.systemctl import (
    RUN,
    STOPPED,
    Systemctl,
    configured,
    go_live,
    has_read,
    is_idle,
    pump,
    read,
    rows,
    wait,
)
from tests.waiting import until_sync


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    return Systemctl(tmp_path, monkeypatch)


@pytest.fixture
def section() -> Iterator[UnitSection]:
    made = UnitSection()
    yield made
    made.close()


@pytest.fixture
def systemd(systemctl: Systemctl) -> Iterator[Systemd]:
    with session_bus(systemctl.folder) as path:
        made = Systemd(path)
        yield made
        made.close()


def test_without_signals_units_are_polled_every_two_seconds_and_a_note_says_so(
    systemctl: Systemctl, section: UnitSection
) -> None:
    read(configured(section, RUN), 0.0)
    assert section.note.startswith("no signals from systemd (")
    assert section.note.endswith("units are read every 2 s")
    for tick in range(1, 11):
        read(section, float(tick))
    assert len(systemctl.calls) == 6


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
    wait(section, now + 0.85, lambda: section._managers()[0]._pace.is_due, "the last signal")
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
    (manager,) = section._managers()
    systemd.changed(escape_path(RUN))
    wait(section, now + 0.1, partial(has_read, section, systemctl, calls + 1), "the first reading")
    systemd.changed(escape_path(RUN))
    wait(section, now + 0.2, lambda: manager._pace.is_due_lazily, "the second signal")
    for moment in (0.3, 1.0):
        read(section, now + moment)
    assert len(systemctl.calls) == calls + 1
    read(section, now + 1.2)
    assert len(systemctl.calls) == calls + 2
    systemctl.change(STOPPED, ActiveState="active")
    systemd.changed(escape_path(STOPPED))
    wait(section, now + 1.3, lambda: rows(section)[1].active == "active", "another unit's change")


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

        until_sync(is_back, PATIENCE, "the new subscription")
        systemd.close()


def test_a_systemd_that_is_silent_for_a_moment_takes_nothing_away(
    systemctl: Systemctl, section: UnitSection
) -> None:
    before = read(configured(section, RUN, "*sglang*"), 0.0)
    systemctl.say("dead", "Failed to get properties: Message recipient disconnected from message bus\n")
    assert read(section, 3.0) == before
    assert read(section, 4.0) == before
    (row,) = read(section, 5.0)
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
        # So slow that no peer on a busy machine is late by this clock.
        clock = itertools.count(now + 10, 0.1)

        def is_back() -> bool:
            moment = next(clock)
            section.tick(moment)
            pump(section, moment)
            systemd.serve()
            return not section.note

        until_sync(is_back, PATIENCE, "the new subscription")
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


# ---- the rate by itself


def test_two_readings_may_follow_each_other_and_a_third_waits() -> None:
    pace = Pace()
    started = []
    for hundredth in range(300):
        pace.ask()
        if pace.may_start(hundredth / 100):
            pace.start(hundredth / 100)
            started.append(hundredth)
    gaps = [later - earlier for earlier, later in zip(started, started[2:], strict=False)]
    assert all(gap >= 90 for gap in gaps)
    assert len(started) == 8


def test_nothing_is_read_that_nobody_asked_for() -> None:
    pace = Pace()
    pace.start(0.0)
    pace.tick(29.0, is_calm=True)
    assert not pace.may_start(29.0)
    pace.tick(29.0, is_calm=False)
    assert pace.may_start(29.0)


def test_installed_units_are_looked_for_at_first_when_asked_and_at_the_slow_pace() -> None:
    pace = Pace()
    assert pace.start(0.0)
    assert not pace.start(2.0)
    pace.ask(scan=True)
    assert pace.start(4.0)
    assert not pace.start(33.0)
    assert pace.start(34.0)
