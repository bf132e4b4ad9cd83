"""No process of ours stays on a host, however the console or the network ends."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.hosts.fleet import Fleet
from tests.hosts.watching import PACE, config_file, watching
from tests.waiting import until_sync

BARE: dict[str, dict[str, object]] = {name: {} for name in ("ct129", "ct200", "kpro6")}


@pytest.fixture
def config(tmp_path: Path, hosts: Fleet) -> Path:
    return config_file(tmp_path, hosts, BARE)


def nobody_is_left(hosts: Fleet) -> bool:
    """Fails with the guests that are still on a host."""
    guests = {host.name: host.guests() for host in hosts if host.guests()}
    assert not guests, f"still there: {guests}"
    return True


async def test_after_the_console_ended(hosts: Fleet, config: Path) -> None:
    async with watching(config) as watch:
        await watch.until_whole(*BARE)
        assert all(host.agents() for host in hosts)
    until_sync(lambda: nobody_is_left(hosts), 60, "no process is left on any host")


def test_after_the_console_was_killed(hosts: Fleet, config: Path) -> None:
    ours, terminal = pty.openpty()
    command = [str(Path(sys.executable).with_name("dflash-console")), "--config", str(config)]
    console = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    )
    os.close(terminal)
    try:
        os.set_blocking(ours, False)
        until_sync(
            lambda: drained(ours) and all(host.agents() for host in hosts), 60, "an agent on each host"
        )
    finally:
        console.send_signal(signal.SIGKILL)
        console.wait()
        os.close(ours)
    until_sync(lambda: nobody_is_left(hosts), 60, "no process is left on any host")


def drained(terminal: int) -> bool:
    """Reads what the console painted, so that it never waits for the terminal."""
    try:
        while os.read(terminal, 1 << 16):
            pass
    except BlockingIOError:
        pass
    return True


async def test_after_the_network_was_cut(hosts: Fleet, config: Path, figures: list[str]) -> None:
    host = hosts["ct200"]
    async with watching(config) as watch:
        await watch.until_whole(*BARE)
        async with watch.undisturbed("ct129", "kpro6"):
            assert host.agents()
            host.cut()
            cut_at = time.monotonic()
            await watch.until_link("ct200", "stale")
            await watch.until_link("ct200", "unreachable")
            await watch.until(lambda: not host.agents(), "the agent misses its heartbeats and ends")
            figures.append(f"agent gone {time.monotonic() - cut_at:.0f} s after its network was cut")
            host.mend()
            await watch.until_link("ct200", "up")
            await watch.until_sampled("ct200")
    until_sync(lambda: nobody_is_left(hosts), 60, "no process is left on any host")


async def test_after_the_network_was_cut_in_a_boot(hosts: Fleet, config: Path, figures: list[str]) -> None:
    host = hosts["ct200"]
    host.write("/root/.bashrc", "sleep 1\n")
    async with watching(config) as watch:
        await watch.until(host.agents, "the login shell works on its login file")
        host.cut()
        cut_at = time.monotonic()
        await watch.until(lambda: not host.agents(), "the boot that nobody goes on with ends")
        figures.append(f"boot gone {time.monotonic() - cut_at:.0f} s after its network was cut")
        assert watch.links["ct200"][-1] != "agent_failed", "a lost network is no login that hangs"
        host.mend()
        await watch.until_link("ct200", "up")
        await watch.until_whole(*BARE)
    until_sync(lambda: nobody_is_left(hosts), 60, "no process is left on any host")


async def test_after_a_python_hung(hosts: Fleet, tmp_path: Path) -> None:
    python = "/root/hanging-python"
    hosts["ct200"].write(python, "#!/bin/sh\nsleep 1000\nexit 3\n", 0o755)
    config = config_file(tmp_path, hosts, {**BARE, "ct200": {"python": python}})
    async with watching(config, replace(PACE, opening=5.0)) as watch:
        await watch.until_whole("ct129", "kpro6")
        async with watch.undisturbed("ct129", "kpro6"):
            detail = await watch.until_link("ct200", "agent_failed")
            assert f"`{python}` did not start the agent in 5 s" in detail
    # sshd refuses to end what root started: the boot has to end itself.
    assert any(python in command for command in hosts["ct200"].guests())
    until_sync(lambda: nobody_is_left(hosts), 60, "no process is left on any host")
