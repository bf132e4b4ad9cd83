"""What runs beside the screen, and in which order it is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from dflash_console.config import Config, ConsoleConfig, PackageConfig
from dflash_console.ui import run as run_module


class Part:
    """Stands for the fleet, the verdicts or the copies: runs until cancelled, which takes a while."""

    def __init__(self, name: str, told: list[str]) -> None:
        self.begun = asyncio.Event()
        self.is_running = name == "copies"
        self._name = name
        self._told = told

    async def run(self) -> None:
        """Runs until cancelled."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            # As the end of a verification does.
            for _ in range(5):
                await asyncio.sleep(0)
            self._told.append(self._name)


async def test_copies_get_to_their_end_before_what_they_need_is_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    parts = {name: Part(name, told) for name in ("fleet", "verdicts", "copies")}

    class App:
        """Stands for the screen: left as soon as all runs."""

        def __init__(self, *_: object, **__: object) -> None:
            self.first_frame: Callable[[], None] = lambda: None
            self.fail = self._fail
            self.verifying = self.copying = SimpleNamespace(stop=self._fail)
            self.return_code = 0

        def _fail(self, error: Exception) -> None:
            raise error

        async def run_async(self, *, mouse: bool) -> None:
            self.first_frame()
            for part in parts.values():
                await part.begun.wait()

    for name, part in zip(("Fleet", "Verdicts", "Copies"), parts.values(), strict=True):
        monkeypatch.setattr(run_module, name, lambda *_, part=part, **__: part)
    monkeypatch.setattr(run_module, "ConsoleApp", App)
    config = Config(ConsoleConfig(), PackageConfig(), {})
    assert await run_module._run(config, None, False, False, None) == 0
    assert told[0] == "copies"
    assert "is brought to its end" in capsys.readouterr().err
    assert sorted(told) == ["copies", "fleet", "verdicts"]
