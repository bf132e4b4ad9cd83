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
        made = Systemd(path, units=systemctl.folder / "units")
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


def test_the_signal_of_a_unit_has_its_state_read_at_once_and_over_the_bus(
    systemctl: Systemctl, systemd: Systemd, section: UnitSection
) -> None:
    now = go_live(configured(section, RUN, STOPPED), systemd)
    calls = len(systemctl.calls)
    before = rows(section)
    told = {
        "ActiveState": "failed",
        "SubState": "failed",
        "Result": "exit-code",
        "MainPID": "0",
        "NRestarts": "7",
        "ExecMainCode": "1",
        "ExecMainStatus": "203",
        "InvocationID": "00ff" * 8,
        "TasksCurrent": "[not set]",
        "NeedDaemonReload": "yes",
        "UnitFileState": "masked",
        "StateChangeTimestampMonotonic": "77000000",
    }
    systemctl.change(RUN, **told)
    systemd.changed(escape_path(RUN))
    wait(section, now + 0.5, lambda: rows(section)[0].active == "failed", "the new state")
    assert (systemd.asked, len(systemctl.calls)) == ([escape_path(RUN)], calls)
    over_the_bus = rows(section)
    assert over_the_bus[1] == before[1]
    section.refresh()
    assert read(section, now + 2) == over_the_bus, "systemctl says the same"


def test_a_unit_that_was_loaded_anew_or_is_refused_is_asked_of_systemctl(
    systemctl: Systemctl, systemd: Systemd, section: UnitSection
) -> None:
    now = go_live(configured(section, RUN, STOPPED, "nope.service"), systemd)
    calls = len(systemctl.calls)
    systemctl.change(RUN, FragmentPath="/etc/systemd/system/other.service", Description="Another one")
    systemd.changed(escape_path(RUN))
    wait(section, now + 1, lambda: rows(section)[0].description == "Another one", "the other unit")
    assert len(systemctl.calls) == calls + 1
    (systemctl.folder / "units" / STOPPED).unlink()
    systemd.changed(escape_path(STOPPED))
    wait(section, now + 3, lambda: rows(section)[1].load == "not-found", "what systemctl says")
    systemctl.change("nope.service", Id="nope.service", LoadState="loaded")
    systemd.changed(escape_path("nope.service"))
    wait(section, now + 5, lambda: rows(section)[2].load == "loaded", "the unit that came")


def test_a_systemd_that_does_not_answer_over_the_bus_is_asked_by_systemctl(
    systemctl: Systemctl, systemd: Systemd, section: UnitSection
) -> None:
    now = go_live(configured(section, RUN), systemd)
    systemd.is_silent = True
    systemctl.change(RUN, ActiveState="failed")
    systemd.changed(escape_path(RUN))
    wait(section, now + 1, lambda: systemd.asked == [escape_path(RUN)], "the question")
    assert rows(section)[0].active == "active"
    section.tick(now + 2.9)
    assert is_idle(section) is False
    assert read(section, now + 3.1)[0].active == "failed"


def test_a_storm_of_signals_shares_readings_and_the_last_state_is_read(
    systemctl: Systemctl, systemd: Systemd, section: UnitSection
) -> None:
    now = go_live(configured(section, RUN), systemd)
    calls = len(systemctl.calls)
    (manager,) = section._managers()

    def has_heard(count: int) -> bool:
        return manager._changes._counts.get(escape_path(RUN)) == count and is_idle(section)

    for number in range(1, 26):
        systemctl.change(RUN, TasksCurrent=str(number))
        systemd.changed(escape_path(RUN))
        wait(section, now + 0.3 + number * 0.01, partial(has_heard, number), "the signal")
    systemctl.change(RUN, TasksCurrent="4711")
    systemd.changed(escape_path(RUN))
    wait(section, now + 0.85, partial(has_heard, 26), "the last signal")
    assert len(systemd.asked) == 2
    (row,) = read(section, now + 1.25)
    assert row.tasks == 4711
    assert (len(systemd.asked), len(systemctl.calls)) == (3, calls)


def test_a_unit_that_signals_without_end_is_looked_at_once_a_second_and_not_listened_to(
    systemctl: Systemctl, systemd: Systemd, section: UnitSection
) -> None:
    now = go_live(configured(section, RUN, STOPPED), systemd)
    calls = len(systemctl.calls)
    (manager,) = section._managers()
    for _ in range(40):
        systemd.changed(escape_path(RUN))
    wait(section, now, lambda: manager._changes.muted == {escape_path(RUN)}, "that it is muted")
    wait(section, now, lambda: is_idle(section) and not manager._bus._pending, "the rules without it")
    for second in range(1, 6):
        systemctl.change(RUN, NRestarts=str(second), SubState="auto-restart")
        asked = len(systemd.asked)
        for _ in range(20):
            systemd.changed(escape_path(RUN))
        (looping, _) = read(section, now + second)
        assert (looping.restarts, looping.is_looping) == (second, True)
        assert read(section, now + second + 0.5)[0] == looping
        assert len(systemd.asked) == asked + 1
    systemctl.change(STOPPED, ActiveState="active")
    systemd.changed(escape_path(STOPPED))
    wait(section, now + 6.5, lambda: rows(section)[1].active == "active", "another unit's change")
    assert len(systemctl.calls) == calls


def test_a_unit_that_is_calm_again_is_listened_to_again_and_nothing_is_missed(
    systemctl: Systemctl, systemd: Systemd, section: UnitSection
) -> None:
    now = go_live(configured(section, RUN), systemd)
    (manager,) = section._managers()
    for _ in range(40):
        systemd.changed(escape_path(RUN))
    wait(section, now, lambda: bool(manager._changes.muted), "that it is muted")
    for second in range(1, 10):
        # What moves all the time is no unrest.
        systemctl.change(RUN, MemoryCurrent=str(second << 20))
        read(section, now + second)
        assert manager._changes.muted
    section.tick(now + 10)
    # The wish for its signals goes out before the question: between the two nothing can happen unheard.
    rule = next(rule for rule in manager._bus._sent_rules if rule.endswith(f"path='{escape_path(RUN)}'"))
    pending = [what for what, _ in manager._bus._pending.values()]
    assert (pending, bool(rule)) == (["AddMatch", escape_path(RUN)], True)
    read(section, now + 10)
    systemctl.change(RUN, ActiveState="failed")
    systemd.changed(escape_path(RUN))
    wait(section, now + 11, lambda: rows(section)[0].active == "failed", "its signal")


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
