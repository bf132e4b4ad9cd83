"""The commands that change hosts, over operations that do what the test says."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from dflash_console.cli import compare, copy, main, rollback
from dflash_console.cli.ends import End, Place
from dflash_console.copies import Consent, CopyPlan, Side, TargetPlan, TargetRun
from dflash_console.operations.planning import Planned
from tests.cli import plans

__all__ = ["CONFIG", "Acting", "typing"]

CONFIG = """
[hosts.ct129]
role = "source"
[hosts.ct200]
role = "target"
[hosts.ct201]
role = "target"
[hosts.kpro6]
"""

Changed = Callable[[TargetRun], None]
Work = Callable[[TargetPlan, Changed], Awaitable[None]]


async def finish(target: TargetPlan, changed: Changed) -> None:
    """What a copy does that goes well."""
    changed(plans.run(target.side, "sending", files=1, all_files=3, bytes=100, all_bytes=300))
    changed(plans.run(target.side))


class _Planned:
    """As planning.Planned."""

    def __init__(self, early: CopyPlan, late: CopyPlan) -> None:
        self.plan = early
        self._late = late

    async def whole(self) -> CopyPlan:
        """The late one."""
        self.plan = self._late
        return self.plan


class Acting:
    """What the operations answer, and what they were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.config = folder / "config.toml"
        self.config.write_text(CONFIG)
        self.plan = plans.plan()
        self.early: CopyPlan | None = None
        """The plan before the source is verified, where that comes later."""
        self.work: Work = finish
        self.places: dict[str, Place | str] = {}
        self.planning: Callable[[], Awaitable[None]] | None = None
        self.carried: list[tuple[Side, Consent]] = []
        self.backups: list[str] = []
        for module in (compare, copy, rollback):
            monkeypatch.setattr(module, "with_fleet", self._with_fleet)
            monkeypatch.setattr(module, "places", self._places)
        monkeypatch.setattr(copy, "planning", self._plans)
        monkeypatch.setattr(copy, "copy", self._copy)
        monkeypatch.setattr(rollback, "plan_roll_back", self._plan_roll_back)
        monkeypatch.setattr(rollback, "roll_back", self._roll_back)

    def __call__(self, *words: str) -> int:
        """Runs the program; gives back its exit code."""
        return main(["--config", str(self.config), *words])

    async def _with_fleet(self, config: object, names: object, do: Any) -> Any:
        return await do(None)

    async def _places(self, fleet: object, config: object, ends: Sequence[End]) -> list[Any]:
        def place(end: End) -> Place | str:
            return self.places.get(end.host, Side(end.host, end.venv or "/root/venv_sglang"))

        return [place(end) for end in ends]

    @asynccontextmanager
    async def _plans(
        self, fleet: object, config: object, source: Side, targets: Sequence[Side], told: Any
    ) -> AsyncIterator[Planned]:
        told("looking")
        if self.planning is not None:
            await self.planning()
        yield cast(Planned, _Planned(self.early or self.plan, self.plan))

    async def _copy(
        self,
        fleet: object,
        config: object,
        plan: CopyPlan,
        consent: Consent,
        changed: Changed,
        *,
        whole: Callable[[], Awaitable[CopyPlan]],
        **_: object,
    ) -> tuple[TargetRun, ...]:
        if plan.is_proving:
            await whole()
        async with asyncio.TaskGroup() as tasks:
            for target in plan.targets:
                self.carried.append((target.side, consent))
                tasks.create_task(self._work(target, changed))
        return ()

    async def _work(self, target: TargetPlan, changed: Changed) -> None:
        await self.work(target, changed)

    async def _plan_roll_back(self, fleet: object, config: object, side: Side, backup: str) -> TargetPlan:
        return self.plan.targets[0]

    async def _roll_back(
        self,
        fleet: object,
        config: object,
        side: Side,
        backup: str,
        consent: Consent,
        changed: Changed,
        **_: object,
    ) -> TargetRun:
        self.carried.append((side, consent))
        self.backups.append(backup)
        await self.work(self.plan.targets[0], changed)
        return TargetRun(side)


@contextmanager
def typing(monkeypatch: pytest.MonkeyPatch, *answers: str, early: str = "") -> Iterator[list[str]]:
    """Stdin and stderr are a terminal, where each question gets the next answer; gives all that was shown there.

    `early` is typed before any question.
    """
    master, slave = os.openpty()
    os.write(master, early.encode())
    shown: list[str] = [""]

    def answer() -> None:
        left = list(answers)
        while data := _read(master):
            shown[0] += data
            if re.search(r"(\[y/N\]|type its name:) $", shown[0]) and left:
                os.write(master, left.pop(0).encode())

    typist = threading.Thread(target=answer)
    with (
        os.fdopen(slave, "r", closefd=False) as stdin,
        os.fdopen(slave, "w", closefd=False, buffering=1) as stderr,
    ):
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stderr", stderr)
        typist.start()
        try:
            yield shown
        finally:
            monkeypatch.undo()
            os.close(slave)
            typist.join(10)
            os.close(master)


def _read(master: int) -> str:
    try:
        return os.read(master, 65536).decode()
    except OSError:  # all have left the terminal
        return ""
