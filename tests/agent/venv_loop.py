"""Drives the section `venvs` as the agent's main loop does, in a home of the test's own."""

from __future__ import annotations

import json
import os
import select
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dflash_console import model
from dflash_console.agent.venvs import VenvSection
from dflash_console.agent.venvs import look as look_module
from dflash_console.agent.venvs import reading as venv_look
from dflash_console.agent.venvs import search as venv_search
from dflash_console.agent.venvs import section as venvs
from dflash_console.model import Package, Venv
from tests.agent.environments import SPEC
from tests.wheels import wheel

__all__ = ["Loop", "home", "loop", "origins", "package", "put", "settle"]


class Loop:
    """Drives one section as the agent's main loop does, with a clock that a test can put forward."""

    def __init__(self, *paths: Path | str) -> None:
        self.section = VenvSection()
        self.ahead = 0.0
        self.configure(*paths)

    def configure(self, *paths: Path | str, **spec: Any) -> None:
        self.section.configure({**SPEC, "venvs": [str(path) for path in paths], **spec})

    @property
    def now(self) -> float:
        return time.monotonic() + self.ahead

    def turn(self) -> None:
        self.section.tick(self.now)
        ready, _, _ = select.select(self.section.fds(), [], [], 0.01)
        for fd in ready:
            if fd in self.section.fds():
                self.section.ready(fd, self.now)

    def until(self, look: Callable[[list[Venv]], object], what: str, timeout: float = 30.0) -> list[Venv]:
        """Turns until the look at the value is true."""
        deadline = time.monotonic() + timeout
        rows: list[Venv] = []
        while time.monotonic() < deadline:
            self.turn()
            if self.section.value is not None:
                text = json.dumps(self.section.value)
                rows = msgspec.json.decode(text, type=list[Venv], dec_hook=model.decode_cell)
                if look(rows):
                    return rows
        raise AssertionError(f"not within {timeout:.0f} s: {what}; last: {rows}")

    def first(self) -> list[Venv]:
        return self.until(lambda rows: True, "a first value")

    def soon(self) -> None:
        """Puts the clock forward to the next check."""
        self.ahead += venvs.CHECK


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own, and no other usual place."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(
        venv_look, "find_venvs", lambda remote, home: venv_search.find_venvs(remote, home, [])
    )
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.section.close()


def package(row: Venv) -> Package:
    assert isinstance(row.package, Package), row.package
    return row.package


def origins(row: Venv) -> list[object]:
    return list(package(row).modules.values())


def put(version: str, site: Path) -> None:
    """Copies a tree as an operator does: staged beside it, then renamed."""
    shutil.copytree(wheel(version) / "sglang", site.parent / "stage", copy_function=os.link)
    if (site / "sglang").exists():
        (site / "sglang").rename(site.parent / "old")
        shutil.rmtree(site.parent / "old")
    (site.parent / "stage").rename(site / "sglang")


def settle(loop: Loop) -> None:
    """Until nothing that was looked at is so young that one more look is due anyway."""
    for _ in range(20):
        until = time.monotonic() + look_module.YOUNG / 1e9
        while time.monotonic() < until or loop.section.fds():
            loop.turn()
        if not any(known.is_young for known in loop.section._known.values()):
            return
        loop.soon()
    raise AssertionError("the files keep changing")
