"""`dflash-console status` over real hosts: the contract that scripts rely on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fleet import Fleet
from tests.hosts.gpus import driver
from tests.hosts.venvs import site_packages
from tests.hosts.watching import config_file

TABLES: dict[str, dict[str, object]] = {
    "ct129": {
        "role": "source",
        "venvs": ["/root/ml-env"],
        "units": ["sglang-dflash.service", "dflash-absent.service"],
        "paths": ["/dev/shm/Qwen3.6-27B", "/root"],
    },
    "ct200": {"role": "target", "venvs": ["/root/venv_sglang", "/root/venv", "/root/ml-env"]},
    "kpro6": {},
}


def status(config: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    """Runs the command; gives back its exit code, its JSON and its stderr."""
    done = subprocess.run(
        [Path(sys.executable).with_name("dflash-console"), "--config", config, "status", "--json", *words],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.stdout.strip(), f"exit {done.returncode}, nothing on stdout: {done.stderr}"
    return done.returncode, json.loads(done.stdout), done.stderr


def row(rows: list[dict[str, Any]], value: object, key: str = "name") -> dict[str, Any]:
    """The row with that value."""
    (found,) = [each for each in rows if each[key] == value]
    return found


@pytest.fixture
def config(tmp_path: Path, hosts: Fleet) -> Path:
    return config_file(tmp_path, hosts, TABLES)


def test_a_healthy_fleet_is_told_whole(config: Path) -> None:
    code, answer, _ = status(config)
    assert [host["name"] for host in answer["hosts"]] == list(TABLES)
    assert {host["link"]["state"] for host in answer["hosts"]} == {"up"}
    assert code in (0, 1)
    ct129, ct200, kpro6 = answer["hosts"]
    assert (ct129["hostname"], ct200["hostname"]) == ("ct129", "ct200")
    assert len({host["boot_id"] for host in answer["hosts"]}) == 3
    assert [len(host["gpus"]) for host in answer["hosts"]] == [2, 8, 8]

    gpu = ct129["gpus"][1]
    assert gpu["name"] == "NVIDIA RTX A6000"
    assert (gpu["index"], gpu["health"], gpu["memory_total"], gpu["power_limit"]) == (
        1,
        "ok",
        49140 << 20,
        300,
    )

    package = row(ct129["venvs"], "/root/ml-env", "path")["package"]
    assert package["origin"] == f"{site_packages('/root/ml-env')}/sglang/__init__.py"
    assert package["modules"]["sglang.srt.speculative.dflash_worker"].endswith("/dflash_worker.py")
    pypi = row(ct200["venvs"], "/root/venv_sglang", "path")["package"]
    assert (pypi["version"], pypi["nested"]) == ("0.5.9", False)
    assert set(pypi["modules"].values()) == {None}
    assert row(ct200["venvs"], "/root/ml-env", "path")["python"]["missing"] == "not_found"
    assert row(kpro6["venvs"], "/root/venv_new", "path")["package"]["version"] == "0.5.23"

    assert row(ct129["units"], "dflash-absent.service")["load"] == "not-found"
    assert row(ct129["units"], "sglang-dflash.service")["active"] == "inactive"
    absent, home = ct129["paths"]
    assert absent["kind"]["missing"] == "not_found"
    assert home["kind"] == "folder"


def test_a_lost_gpu_is_a_critical_finding_and_exit_code_1(config: Path, hosts: Fleet) -> None:
    driver(hosts["ct129"]).set(1, errors={"*": 15})
    code, answer, _ = status(config, "ct129")
    (ct129,) = answer["hosts"]
    assert code == 1
    assert ct129["gpus"][1]["health"] == "lost"
    assert any(finding["level"] == "critical" for finding in ct129["findings"])


def test_a_host_that_hangs_costs_the_others_nothing_and_exit_code_3(config: Path, hosts: Fleet) -> None:
    hosts["ct200"].freeze()
    code, answer, _ = status(config)
    hosts["ct200"].thaw()
    states = {host["name"]: host["link"]["state"] for host in answer["hosts"]}
    assert code == 3
    assert states["ct129"] == states["kpro6"] == "up"
    assert states["ct200"] != "up"


def test_a_changed_and_an_unknown_host_key_are_two_states(config: Path, hosts: Fleet) -> None:
    hosts["ct200"].new_host_key()
    code, changed, _ = status(config, "ct200")
    assert code == 3
    hosts.trust(but=["ct200"])
    code, unknown, _ = status(config, "ct200")
    assert code == 3
    states = [answer["hosts"][0]["link"]["state"] for answer in (changed, unknown)]
    assert states == ["host_key_changed", "host_key_unknown"]
