"""What befalls a host ends in the right link state, leaves the other hosts alone, and passes by itself."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.hosts.fleet import Fleet
from tests.hosts.host import Host
from tests.hosts.watching import config_file, watching

OTHERS = ("ct129", "kpro6")
BARE: dict[str, dict[str, object]] = {name: {} for name in ("ct129", "ct200", "kpro6")}


@pytest.fixture
def config(tmp_path: Path, hosts: Fleet) -> Path:
    return config_file(tmp_path, hosts, BARE)


async def test_a_frozen_host_turns_stale_then_unreachable_and_comes_back(hosts: Fleet, config: Path) -> None:
    async with watching(config) as watch:
        await watch.until_whole(*BARE)
        async with watch.undisturbed(*OTHERS):
            hosts["ct200"].freeze()
            await watch.until_link("ct200", "stale")
            detail = await watch.until_link("ct200", "unreachable")
            assert "no answer" in detail
            last = watch.view("ct200")
            assert last.snapshot is not None, "the last good picture stays"
            hosts["ct200"].thaw()
            await watch.until_link("ct200", "up")
            await watch.until_sampled("ct200")
        await watch.until(lambda: len(hosts["ct200"].agents()) == 1, "one agent is left on ct200")


async def test_a_host_that_is_powered_off_and_on_comes_back_as_another_boot(
    hosts: Fleet, config: Path
) -> None:
    async with watching(config) as watch:
        await watch.until_whole(*BARE)
        before = watch.view("ct200").snapshot
        assert before is not None
        async with watch.undisturbed(*OTHERS):
            hosts["ct200"].power_off()
            await watch.until_link("ct200", "unreachable")
            assert watch.view("ct200").snapshot is not None
            await asyncio.to_thread(hosts["ct200"].boot)
            await watch.until_link("ct200", "up")
            await watch.until(lambda: watch.view("ct200").rebooted_at, "the new boot id is noticed")
        after = watch.view("ct200").snapshot
        assert after is not None
        assert after.host.boot_id != before.host.boot_id


async def test_a_killed_sshd_costs_a_reconnect(hosts: Fleet, config: Path) -> None:
    async with watching(config) as watch:
        await watch.until_whole(*BARE)
        async with watch.undisturbed(*OTHERS):
            hosts["ct200"].stop_sshd()
            await watch.until_link("ct200", "unreachable")
            await watch.until(lambda: hosts["ct200"].agents() == [], "the agent ends with its link")
            hosts["ct200"].start_sshd()
            await watch.until_link("ct200", "up")
            await watch.until_sampled("ct200")


async def test_a_killed_agent_is_started_again(hosts: Fleet, config: Path) -> None:
    async with watching(config) as watch:
        await watch.until_whole(*BARE)
        async with watch.undisturbed(*OTHERS):
            (agent,) = hosts["ct200"].agents()
            os.kill(agent.pid, 9)
            detail = await watch.until_link("ct200", "agent_failed")
            assert detail
            await watch.until_link("ct200", "up")
            await watch.until_sampled("ct200")
        (second,) = hosts["ct200"].agents()
        assert second.pid != agent.pid


async def test_a_changed_host_key_is_never_taken_and_passes_once_it_is_known(
    hosts: Fleet, config: Path
) -> None:
    async with watching(config) as watch:
        await watch.until_whole(*BARE)
        async with watch.undisturbed(*OTHERS):
            hosts["ct200"].new_host_key()
            hosts["ct200"].kill_sshd()
            changed = await watch.until_link("ct200", "host_key_changed")
            assert "SHA256:" in changed
            assert hosts["ct200"].agents() == []
            hosts.trust()
            await watch.until_link("ct200", "up")


async def test_an_unknown_host_key_is_another_state_with_another_text(hosts: Fleet, config: Path) -> None:
    hosts.trust(but=["ct200"])
    async with watching(config) as watch:
        unknown = await watch.until_link("ct200", "host_key_unknown")
        assert "SHA256:" in unknown
        await watch.until_whole(*OTHERS)
        async with watch.undisturbed(*OTHERS):
            hosts.trust()
            await watch.until_link("ct200", "up")


async def test_a_host_that_lets_nobody_in_is_refused_not_unreachable(hosts: Fleet, config: Path) -> None:
    hosts["ct200"].write("/root/.ssh/authorized_keys", "", 0o600)
    async with watching(config) as watch:
        await watch.until_link("ct200", "refused")
        await watch.until_whole(*OTHERS)
        hosts["ct200"].restore()
        await watch.until_link("ct200", "up")


NOISE = "x" * 20_000 + r"\n\033[31mWelcome\033[0m \001\377 no newline at the end"
RC_FILES = {
    "bash": ("/root/.bashrc", "printf '{noise}'; printf '{noise}' >&2\n"),
    "dash": ("/root/.profile", "printf '{noise}'\n"),
    "fish": ("/root/.config/fish/config.fish", "printf '{noise}'; printf '{noise}' >&2\n"),
    "tcsh": ("/root/.tcshrc", "printf '{noise}'\n"),
    "zsh": ("/root/.zshenv", "printf '{noise}'; printf '{noise}' >&2\n"),
    "ksh": ("/root/.profile", "printf '{noise}'\n"),
}


@pytest.mark.parametrize("shell", RC_FILES)
async def test_any_login_shell_with_a_noisy_rc_file_will_do(hosts: Fleet, config: Path, shell: str) -> None:
    host = hosts["ct200"]
    accounts = (host.root / "etc/passwd").read_text()
    path = host.run(f"command -v {shell}").strip()
    root, _, others = accounts.partition("\n")
    host.write("/etc/passwd", f"{root.rpartition(':')[0]}:{path}\n{others}")
    file, text = RC_FILES[shell]
    host.write(file, text.format(noise=NOISE))
    async with watching(config) as watch:
        await watch.until_link("ct200", "up")
        await watch.until_whole("ct200")


def hide_pythons(host: Host) -> None:
    """Takes every Python off the usual places of a host."""
    for folder in ("/usr/bin", "/usr/local/bin"):
        for file in sorted((host.root / folder.lstrip("/")).glob("python*")):
            if not file.is_dir() and not file.name.endswith(".put-away"):
                host.put_away(f"{folder}/{file.name}")


async def test_a_host_without_a_python_says_what_it_has_and_comes_back(hosts: Fleet, config: Path) -> None:
    host = hosts["ct200"]
    hide_pythons(host)
    host.write("/usr/bin/python3", '#!/bin/sh\ncase "$1" in -V) echo Python 3.7.3;; esac\nexit 1\n', 0o755)
    async with watching(config) as watch:
        detail = await watch.until_link("ct200", "no_python")
        assert "3.7.3" in detail
        await watch.until_whole(*OTHERS)
        async with watch.undisturbed(*OTHERS):
            host.restore()
            await watch.until_link("ct200", "up")


def old_python() -> str:
    """The oldest Python from 3.8 up that is installed here, as a path that hosts see too."""
    base = Path(os.environ.get("PYENV_ROOT", "/root/.pyenv")) / "versions"
    found = sorted(
        (int(path.parent.parent.name.split(".")[1]), str(path))
        for path in base.glob("3.*/bin/python3")
        if int(path.parent.parent.name.split(".")[1]) >= 8
    )
    return found[0][1] if found else "/usr/bin/python3"


async def test_python_3_8_is_enough(hosts: Fleet, config: Path) -> None:
    python = old_python()
    host = hosts["ct200"]
    version = host.run(
        f"{python} -c 'import platform; print(platform.python_version())'", check=False
    ).strip()
    if not version.startswith("3.8.") and os.environ.get("DFLASH_REQUIRE_HOSTS") != "1":
        pytest.skip(f"no Python 3.8 here that hosts see (the oldest is {version or 'none'})")
    if python != "/usr/bin/python3":
        hide_pythons(host)
        host.write("/usr/local/bin/python3", f'#!/bin/sh\nexec {python} "$@"\n', 0o755)
    async with watching(config) as watch:
        await watch.until_whole(*BARE)
        snapshot = watch.view("ct200").snapshot
        assert snapshot is not None
        assert snapshot.host.python == version
        assert len(watch.report("ct200").gpus) == 8
