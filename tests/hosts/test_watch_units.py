"""What systemd says of a unit is what the console says, and a change is on the screen within two seconds."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from dflash_console.model import Unit
from tests.hosts.fleet import Fleet
from tests.hosts.story import SERVICE, add_unit
from tests.hosts.watching import Watching, config_file, watching

SERVER = "sglang-dflash.service"


@pytest.fixture
def config(tmp_path: Path, hosts: Fleet) -> Path:
    units = [SERVER, "dflash-absent.service", "dflash-*.service", "user:dflash-tune.service"]
    return config_file(tmp_path, hosts, {"ct129": {"units": units}})


async def test_a_service_that_is_started_and_stopped_is_followed(
    hosts: Fleet, config: Path, figures: list[str]
) -> None:
    host = hosts["ct129"]
    async with watching(config) as watch:
        await watch.until_whole("ct129")
        unit = watch.unit("ct129", SERVER)
        assert (unit.load, unit.active, unit.main_pid) == ("loaded", "inactive", None)

        host.run(f"systemctl start {SERVER}")
        pid = int(host.run(f"systemctl show --property=MainPID --value {SERVER}"))
        seen = await watch.seen("ct129", lambda: running(watch), "the service runs")
        figures.append(f"unit started: on the screen after {seen.samples} sample(s), {seen.seconds:.2f} s")
        assert seen.samples <= 2
        assert seen.value.main_pid == pid

        unit = await watch.until(lambda: listening(watch), "the service listens")
        assert (unit.port, unit.venv) == (30000, "/root/ml-env")
        assert unit.interpreter == "/root/ml-env/bin/python3"
        assert "not-for-the-screen" not in str(unit.command)
        assert unit.description == "SGLang with DFlash"

        host.run(f"systemctl kill --signal=KILL --kill-who=main {SERVER}")
        unit = await watch.until(lambda: restarted(watch, pid), "systemd has restarted it")
        assert unit.main_pid != pid

        host.run(f"systemctl stop {SERVER}")
        stopped = await watch.seen(
            "ct129", lambda: watch.unit("ct129", SERVER).active == "inactive", "it stopped"
        )
        figures.append(
            f"unit stopped: on the screen after {stopped.samples} sample(s), {stopped.seconds:.2f} s"
        )
        assert stopped.samples <= 2


def running(watch: Watching) -> Unit | None:
    unit = watch.unit("ct129", SERVER)
    return unit if (unit.active, unit.sub) == ("active", "running") else None


def listening(watch: Watching) -> Unit | None:
    unit = watch.unit("ct129", SERVER)
    return unit if unit.listening else None


def restarted(watch: Watching, pid: int) -> Unit | None:
    unit = watch.unit("ct129", SERVER)
    return unit if unit.restarts == 1 and unit.active == "active" and unit.main_pid != pid else None


async def test_a_unit_that_is_not_installed_is_not_a_stopped_one(hosts: Fleet, config: Path) -> None:
    async with watching(config) as watch:
        await watch.until_whole("ct129")
        assert watch.unit("ct129", "dflash-absent.service").load == "not-found"
        assert watch.unit("ct129", SERVER).load == "loaded"


async def test_a_failed_unit_tells_how_it_ended(hosts: Fleet, config: Path) -> None:
    host = hosts["ct129"]
    add_unit(host, "dflash-bad.service", "[Service]\nExecStart=/bin/sh -c 'exit 7'\n")
    async with watching(config) as watch:
        await watch.until_whole("ct129")
        host.run("systemctl start dflash-bad.service")
        await watch.until(lambda: watch.unit("ct129", "dflash-bad.service").active == "failed", "it failed")
        unit = watch.unit("ct129", "dflash-bad.service")
        assert (unit.result, unit.exit_status) == ("exit-code", "exited 7")


async def test_a_crash_loop_is_not_running(hosts: Fleet, config: Path) -> None:
    host = hosts["ct129"]
    loop = (
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=500ms\n"
    )
    add_unit(host, "dflash-loop.service", loop)
    host.run("systemctl start dflash-loop.service")
    try:
        async with watching(config) as watch:
            await watch.until_whole("ct129")
            unit = await watch.until(lambda: looping(watch), "the crash loop is called one")
            before = unit.restarts
            assert isinstance(before, int)
            assert unit.exit_status == "exited 1"
            await watch.until(lambda: more_restarts(watch, before), "its restarts are counted on")
    finally:
        host.run("systemctl stop dflash-loop.service")


def looping(watch: Watching) -> Unit | None:
    unit = watch.unit("ct129", "dflash-loop.service")
    return unit if unit.is_looping else None


def more_restarts(watch: Watching, before: int) -> bool:
    restarts = watch.unit("ct129", "dflash-loop.service").restarts
    return isinstance(restarts, int) and restarts > before


async def test_a_crash_loop_of_many_restarts_a_second_is_followed_and_its_end_is_seen(
    hosts: Fleet, config: Path, figures: list[str]
) -> None:
    host = hosts["ct129"]
    loop = (
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=50ms\n"
    )
    add_unit(host, "dflash-loop.service", loop)
    host.run("systemctl start dflash-loop.service")
    try:
        async with watching(config) as watch:
            await watch.until_whole("ct129")
            await watch.until(lambda: looping(watch), "the crash loop is called one")
            for _ in range(4):
                told = watch.unit("ct129", "dflash-loop.service").restarts
                assert isinstance(told, int)
                more = await watch.seen("ct129", partial(more_restarts, watch, told), "more restarts")
                assert more.samples <= 3
            host.run("systemctl stop dflash-loop.service")
            stopped = await watch.seen("ct129", lambda: not looping(watch), "it stopped")
            figures.append(
                f"crash loop stopped: on the screen after {stopped.samples} sample(s), {stopped.seconds:.2f} s"
            )
            assert stopped.samples <= 3
    finally:
        host.run("systemctl stop dflash-loop.service")


async def test_without_dbus_systemd_itself_tells_of_a_change(
    hosts: Fleet, config: Path, figures: list[str]
) -> None:
    host = hosts["ct129"]
    host.run("systemctl stop dbus.socket dbus.service")
    try:
        async with watching(config) as watch:
            await watch.until_whole("ct129")
            # Its own manager, a user's, is without a bus too.
            await watch.until(
                lambda: "units" not in watch.view("ct129").notes, "systemd's own socket is used"
            )
            host.run(f"systemctl start {SERVER}")
            seen = await watch.seen("ct129", lambda: running(watch), "the service runs")
            figures.append(
                f"unit started, no dbus: on the screen after {seen.samples} sample(s), {seen.seconds:.2f} s"
            )
            assert seen.samples <= 3
            host.run(f"systemctl stop {SERVER}")
    finally:
        host.run("systemctl start dbus.socket dbus.service")


async def test_a_masked_unit_is_told_as_masked(hosts: Fleet, config: Path) -> None:
    host = hosts["ct129"]
    host.run("systemctl mask --runtime dflash-closed.service")
    try:
        async with watching(config) as watch:
            await watch.until_whole("ct129")
            watch.fleet.refresh("ct129")
            await watch.until(
                lambda: watch.unit("ct129", "dflash-closed.service").load == "masked", "it is masked"
            )
    finally:
        host.run("systemctl unmask --runtime dflash-closed.service")


async def test_an_edited_unit_file_is_told_until_systemd_read_it(hosts: Fleet, config: Path) -> None:
    host = hosts["ct129"]
    host.run(f"systemctl start {SERVER}")
    try:
        async with watching(config) as watch:
            await watch.until_whole("ct129")
            assert not watch.unit("ct129", SERVER).needs_reload
            host.write(f"/etc/systemd/system/{SERVER}", SERVICE + "# edited\n")
            watch.fleet.refresh("ct129")
            await watch.until(lambda: watch.unit("ct129", SERVER).needs_reload, "the edit is told")
            host.run("systemctl daemon-reload")
            watch.fleet.refresh("ct129")
            await watch.until(lambda: not watch.unit("ct129", SERVER).needs_reload, "it passes")
    finally:
        host.run(f"systemctl stop {SERVER}")


async def test_a_unit_of_the_user_s_own_manager_is_asked_there(hosts: Fleet, config: Path) -> None:
    host = hosts["ct129"]
    host.write("/root/.config/systemd/user/dflash-tune.service", "[Service]\nExecStart=/bin/sleep infinity\n")
    host.ssh("systemctl --user daemon-reload; systemctl --user start dflash-tune.service")
    try:
        async with watching(config) as watch:
            await watch.until_whole("ct129")
            unit = watch.unit("ct129", "user:dflash-tune.service")
            assert (unit.active, unit.sub) == ("active", "running")
    finally:
        host.ssh("systemctl --user stop dflash-tune.service")


async def test_a_service_behind_a_shell_says_that_its_interpreter_is_hidden(
    hosts: Fleet, config: Path
) -> None:
    host = hosts["ct129"]
    add_unit(host, "dflash-shell.service", "[Service]\nExecStart=/bin/sh -c 'while :; do sleep 60; done'\n")
    host.run("systemctl start dflash-shell.service")
    try:
        async with watching(config) as watch:
            await watch.until_whole("ct129")
            unit = watch.unit("ct129", "dflash-shell.service")
            assert unit.active == "active"
            assert not isinstance(unit.interpreter, str)
            assert unit.venv is None
    finally:
        host.run("systemctl stop dflash-shell.service")
