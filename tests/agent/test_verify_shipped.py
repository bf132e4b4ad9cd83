"""A verification by the agent as it is shipped, on any Python, with its sections at work beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from dflash_console.agent.jobs import PLACES
from dflash_console.verdict import PartAnswer
from tests.agent.driver import SPEC as WATCH
from tests.agent.driver import Agent, boot
from tests.agent.environments import SPEC, make_venv, pythons
from tests.agent.test_verify_find_spec import package


def ask(agent: Agent, venv: Path, part: str) -> PartAnswer:
    answer = agent.answer("verify", part=part, venv=str(venv), limit=30.0, units=[], **SPEC)
    assert answer.error is None
    return msgspec.json.decode(answer.ok, type=PartAnswer)


@pytest.mark.parametrize("minor", list(pythons()))
def test_the_shipped_agent_verifies(tmp_path: Path, minor: str) -> None:
    venv = tmp_path / "venv"
    package(make_venv(venv))
    agent = boot(pythons()[minor])
    try:
        agent.ask("watch", **WATCH)
        states = {
            check.name: check.state
            for part in ("files", "find_spec")
            for check in ask(agent, venv, part).checks
        }
        assert {states[name] for name in ("python", "origin", "modules", "find_spec")} == {"pass"}
        assert ask(agent, venv, "service").checks == ()
        told = ask(agent, venv, "files").facts.fingerprint
        answer = agent.answer("fingerprint", venv=str(venv), package="sglang")
        assert msgspec.json.decode(answer.ok) == {"fingerprint": told}
        wrong = agent.answer("verify", part="nonsense", venv=str(venv))
        assert "no part of a verification: 'nonsense'" in str(wrong.error)
        assert "KeyError" in str(agent.answer("verify", part="files").error)
    finally:
        agent.close()


def test_the_files_are_told_while_as_many_imports_hang_as_may_run(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    package(make_venv(venv), "import time\ntime.sleep(1000)")
    agent = boot(sys.executable)
    try:
        for _ in range(PLACES):
            agent.ask("verify", part="find_spec", venv=str(venv), limit=1000.0, units=[], **SPEC)
        states = {check.name: check.state for check in ask(agent, venv, "files").checks}
        assert (states["origin"], states["modules"]) == ("pass", "pass")
    finally:
        agent.close()
