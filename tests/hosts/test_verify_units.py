"""A package is proved as real units see it: by real systemd, users, sandboxes and restarts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dflash_console.verdict import Check, PartAnswer
from tests.agent.environments import SPEC
from tests.hosts.fleet import Fleet
from tests.hosts.host import Host
from tests.hosts.story import add_unit
from tests.hosts.venvs import lay_venv, site_packages
from tests.hosts.watching import Watching, config_file, watching

VENV = "/opt/proved"
SITE = site_packages(VENV)
SERVE = "import time\nprint('up', flush=True)\ntime.sleep(100000)\n"
UNIT = """\
[Service]
ExecStart={venv}/bin/python -m sglang.serve
"""


@pytest.fixture
def host(hosts: Fleet) -> Host:
    """A host with an environment of its own, whose package can be started."""
    host = hosts["ct129"]
    host.run("systemctl stop sglang-proof.service", check=False)
    lay_venv(host, VENV)
    host.run(f"rm -rf {SITE}/sglang; mkdir -p {SITE}/sglang/srt/speculative")
    host.write(
        f"{SITE}/sglang/__init__.py", "import os\nprint('user', os.getuid(), os.environ.get('FROM_FILE'))\n"
    )
    host.write(f"{SITE}/sglang/serve.py", SERVE)
    for name in ("dflash_worker", "dflash_info", "dflash_utils"):
        host.write(f"{SITE}/sglang/srt/speculative/{name}.py", "x = 1\n")
    return host


@pytest.fixture
def config(tmp_path: Path, hosts: Fleet) -> Path:
    return config_file(tmp_path, hosts, {"ct129": {}})


async def ask(watch: Watching, part: str, *units: str) -> dict[str, Check]:
    await watch.until_link("ct129", "up")
    fields = {
        "part": part,
        "venv": VENV,
        "limit": 60.0,
        "units": list(units),
        "is_package_venv": True,
        **SPEC,
    }
    raw = await watch.fleet.request("ct129", "verify", 90.0, **fields)
    return {check.name: check for check in msgspec.json.decode(raw, type=PartAnswer).checks}


async def service(watch: Watching, name: str = "sglang-proof.service") -> Check:
    return (await ask(watch, "service", name))[f"service {name}"]


async def test_a_unit_is_asked_as_its_user_in_its_folder_and_environment(host: Host, config: Path) -> None:
    host.write("/etc/proof.env", "# of the service\nFROM_FILE='yes, it is'\nAPI_KEY=hunter2\n")
    more = (
        "User=daemon\nWorkingDirectory=/var/tmp\nEnvironmentFile=-/nowhere\nEnvironmentFile=/etc/proof.env\n"
    )
    add_unit(host, "sglang-proof.service", UNIT.format(venv=VENV) + more)
    async with watching(config) as watch:
        for command in ("true", "systemctl start sglang-proof.service"):
            host.run(command)
            check = await service(watch)
            assert check.state == "pass", check
            assert check.detail.startswith(f"same origin: {SITE}/sglang/__init__.py")
            assert "user 1 yes, it is" in check.evidence
            assert "as daemon in /var/tmp" in check.evidence
            assert not any("hunter2" in line for line in check.evidence)
        host.run("mkdir -p /var/tmp/sglang && echo x=1 > /var/tmp/sglang/__init__.py")
        shadowed = await service(watch)
        assert shadowed.state == "fail"
        assert f"imports /var/tmp/sglang/__init__.py, not {SITE}/sglang/__init__.py" in shadowed.detail
        host.run("rm -r /var/tmp/sglang")


async def test_a_sandbox_is_entered_and_what_it_hides_is_told(host: Host, config: Path) -> None:
    more = "PrivateTmp=yes\nProtectHome=yes\nBindPaths=/opt/hidden:/opt/proved/lib\n"
    host.run("cp -a /opt/proved/lib /opt/hidden")
    add_unit(host, "sglang-proof.service", UNIT.format(venv=VENV) + more)
    host.run("systemctl start sglang-proof.service")
    async with watching(config) as watch:
        check = await service(watch)
        assert check.state == "pass", check
        host.run(
            f"rm /opt/hidden/{SITE.removeprefix('/opt/proved/lib/')}/sglang/srt/speculative/dflash_info.py"
        )
        hidden = await service(watch)
        assert (hidden.state, hidden.detail) == ("fail", "as root: missing: dflash_info")


async def test_a_service_older_than_its_package_needs_a_restart(host: Host, config: Path) -> None:
    add_unit(host, "sglang-proof.service", UNIT.format(venv=VENV))
    host.run("systemctl start sglang-proof.service")
    async with watching(config) as watch:
        assert (await service(watch)).state == "pass"
        host.run(
            f"sleep 1.2; cp -a {SITE}/sglang {SITE}/next; rm -r {SITE}/sglang; mv {SITE}/next {SITE}/sglang"
        )
        old = await service(watch)
        assert old.state == "fail"
        assert old.detail.startswith("running the old package, restart needed: started ")
        assert ", tree changed " in old.detail
        host.run("systemctl restart sglang-proof.service")
        assert (await service(watch)).state == "pass"


async def test_a_unit_of_another_environment_fails_and_names_both(host: Host, config: Path) -> None:
    async with watching(config) as watch:
        add_unit(host, "sglang-proof.service", UNIT.format(venv="/root/ml-env"))
        check = await service(watch)
        assert (check.state, check.detail) == ("fail", f"starts /root/ml-env, not this one ({VENV})")
        files = await ask(watch, "files")
        assert {files[name].state for name in ("python", "origin", "modules")} == {"pass"}
