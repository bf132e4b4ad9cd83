"""`verify` on this machine's own environments, and of hosts that can't be asked."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dflash_console.cli.reach import reached, with_fleet
from dflash_console.cli.status_text import Terminal
from dflash_console.cli.verify import cut_off, exit_code, verify_json
from dflash_console.cli.verify_text import MOST_EVIDENCE, progress, verify_text
from dflash_console.config import Config, HostConfig
from dflash_console.errors import BootHangs
from dflash_console.fleet import Fleet, HostView, Pace
from dflash_console.fleet.opening import AgentSession, Opener
from dflash_console.model import LinkStatus
from dflash_console.verdict import NEEDED, Check, Verdict
from tests.fleet.doubles import Agent, Network, config
from tests.fleet.virtual import run_virtual
from tests.importable import reach
from tests.wheels import lay


def run(folder: Path, tables: str, *words: str) -> subprocess.CompletedProcess[str]:
    file = folder / "config.toml"
    file.write_text(tables)
    return subprocess.run(
        [sys.executable, "-m", "dflash_console", "--config", str(file), "verify", *words],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "HOME": str(folder)},
    )


def results(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    rows = json.loads(done.stdout)["results"]
    return {row["venv"]: row for row in rows}


@pytest.fixture
def environments(tmp_path: Path) -> dict[str, Path]:
    """One with 0.5.9, which has no DFlash, and one that is ready."""
    found = {}
    for name, version in (("old", "0.5.9"), ("ready", "0.5.13.post1")):
        venv = found[name] = tmp_path / name
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        (site,) = venv.glob("lib/python3*/site-packages")
        lay(version, site)
        reach(site)
    return found


def here(*venvs: Path) -> str:
    return f"[hosts.here]\nlocal = true\nunits = []\nvenvs = {[str(venv) for venv in venvs]}\n"


def test_each_environment_has_a_verdict_with_its_evidence(
    tmp_path: Path, environments: dict[str, Path]
) -> None:
    old, ready = environments["old"], environments["ready"]
    done = run(tmp_path, here(old, ready), "--json")
    assert done.returncode == 1, done.stderr
    answers = results(done)
    assert list(answers) == [str(old), str(ready)]
    assert [answers[str(venv)]["ready"] for venv in (old, ready)] == [False, True]
    assert {check["state"] for check in answers[str(ready)]["checks"]} == {"pass"}
    modules = next(check for check in answers[str(old)]["checks"] if check["name"] == "modules")
    assert modules["state"] == "fail"
    assert "dflash_worker" in modules["detail"]
    assert any("dflash_worker" in line for line in modules["evidence"])
    assert f"here {ready}: ready" in done.stderr
    one = run(tmp_path, here(old, ready), "here", "--venv", str(ready))
    assert one.returncode == 0
    assert "✓ ready" in one.stdout
    assert str(old) not in one.stdout


def test_a_host_that_is_not_reached_is_exit_3_and_the_others_are_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    gone = f'[hosts.gone]\naddress = "127.0.0.1"\nport = {port}\n'
    done = run(tmp_path, here(tmp_path / "nothing") + gone, "--json")
    assert done.returncode == 3
    here_row, gone_row = json.loads(done.stdout)["results"]
    assert (here_row["host"], here_row["ready"], here_row["checks"][0]["state"]) == ("here", False, "fail")
    assert (gone_row["host"], gone_row["venv"], gone_row["ready"]) == ("gone", None, False)
    assert [(check["name"], check["state"]) for check in gone_row["checks"]] == [("link", "unknown")]


def test_a_host_that_is_not_in_the_config_is_exit_2(tmp_path: Path) -> None:
    done = run(tmp_path, here(tmp_path), "hera")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean here?" in done.stderr


@pytest.mark.parametrize("path", ["", "venv", "./venv"])
def test_a_path_that_could_be_anywhere_is_exit_2(tmp_path: Path, path: str) -> None:
    done = run(tmp_path, here(tmp_path), "--venv", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no whole path on the host" in done.stderr


def verdict(*checks: Check) -> Verdict:
    return Verdict("ct200", "/root/venv", (*(Check(name, "pass") for name in NEEDED), *checks))


def test_the_exit_code_puts_a_host_that_was_not_reached_before_one_that_is_not_ready() -> None:
    ready, failed = verdict(), verdict(Check("nested", "fail"))
    gone = Verdict("ct129", "", (Check("link", "unknown", "no route"),))
    assert exit_code([ready]) == 0
    assert exit_code([ready, failed]) == 1
    assert exit_code([failed, gone, ready]) == 3


def test_the_text_shows_the_first_lines_of_evidence_and_says_where_the_others_are() -> None:
    evidence = tuple(f"line {number}" for number in range(40))
    failed = verdict(Check("record", "fail", "40 changed", evidence))
    text = verify_text([failed], Terminal(80))
    assert f"line {MOST_EVIDENCE - 1}\n" in text
    assert f"line {MOST_EVIDENCE}\n" not in text
    assert f"{40 - MOST_EVIDENCE} more lines" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert json.loads(verify_json([failed]))["results"][0]["checks"][-1]["evidence"] == list(evidence)
    assert progress(failed) == "ct200 /root/venv: not ready (record)"


def test_a_single_line_of_evidence_is_not_left_out_for_a_line_that_says_so() -> None:
    evidence = tuple(f"line {number}" for number in range(MOST_EVIDENCE + 1))
    text = verify_text([verdict(Check("record", "fail", "changed", evidence))], Terminal(80))
    assert f"line {MOST_EVIDENCE}\n" in text
    assert "more line" not in text


def test_a_link_that_was_lost_on_the_way_is_exit_3_where_it_left_something_unknown() -> None:
    link = LinkStatus("unreachable", "no answer to `ping` in 5 s")
    whole, half = verdict(), verdict(Check("service", "unknown", "no answer"))
    assert exit_code([cut_off(whole, link)]) == 0
    assert exit_code([cut_off(half, link)]) == 3
    assert cut_off(half, link).checks[-1] == Check("link", "unknown", "no answer to `ping` in 5 s")


def test_the_line_of_a_host_that_was_not_reached_says_why() -> None:
    gone = Verdict("ct129", "", (Check("link", "unknown", "no route"),))
    assert progress(gone) == "ct129: not reached: no route"
    failed = cut_off(
        verdict(Check("service", "unknown", "?"), Check("record", "fail", "x")), LinkStatus("stale", "?")
    )
    assert progress(failed) == "ct200 /root/venv: not ready (record); the link was lost: ?"


@pytest.mark.parametrize("takes", [1.0, 12.0, 28.0])
def test_a_host_on_which_all_takes_many_times_as_long_is_reached(
    monkeypatch: pytest.MonkeyPatch, takes: float
) -> None:
    class Busy(Network):
        async def open(self, host: HostConfig) -> Agent:
            agent = await super().open(host)
            agent.tell_all()
            return agent

    def opener(_: Config, pace: Pace) -> Opener:
        async def open_session(host: HostConfig) -> AgentSession:
            await asyncio.sleep(min(takes, pace.opening))
            if takes > pace.opening:
                raise BootHangs(f"the agent did not start in {pace.opening:.0f} s")
            return await Busy().open(host)

        return open_session

    monkeypatch.setattr("dflash_console.fleet.fleet.link_opener", opener)

    async def story() -> LinkStatus:
        async def ask(fleet: Fleet) -> HostView:
            return await reached(fleet, "ct200", frozenset({"units"}))

        return (await with_fleet(config("ct200"), ["ct200"], ask)).link

    assert run_virtual(story()).state == "up"
