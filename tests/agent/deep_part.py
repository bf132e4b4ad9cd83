"""Runs a part of a deep verification as the agent does: in a child, its answer decoded by the console's model."""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from dflash_console.agent.child import Child
from dflash_console.agent.deep import work_of
from dflash_console.verdict import Check, PartAnswer
from tests.agent.driver import PATIENCE
from tests.waiting import until_sync

__all__ = ["DRIVER", "MODULES", "answer", "checks", "one"]

MODULES = [
    ["sglang.srt.speculative.dflash_worker", "sglang.srt.speculative.dflash_worker_v2"],
    ["sglang.srt.speculative.dflash_info"],
    ["sglang.srt.speculative.dflash_utils"],
]
DRIVER = {"version": "580.95.05", "cuda": "13.0"}


def answer(
    part: str, venv: Path, variables: Mapping[str, str] = MappingProxyType({}), **fields: object
) -> PartAnswer:
    """What a part answers; `variables` are in the child's environment."""
    message: dict[str, object] = {
        "venv": str(venv),
        "package": "sglang",
        "modules": MODULES,
        "limit": PATIENCE,
    }
    message.update(fields)

    def work(channel: object) -> None:
        os.environ.update(variables)
        work_of(part)(channel, message)  # type: ignore[arg-type]

    child = Child()
    child.start(work)
    values: list[object] = []
    try:
        while (found := child.receive()) is not None:
            values += found
            select.select(child.fds(), [], [], 1.0)
        until_sync(lambda: not child.is_alive, PATIENCE, "the child ends")
    finally:
        child.kill()
    assert child.status == 0, child.errors
    (value,) = values
    return msgspec.convert(value, PartAnswer)


def checks(
    part: str, venv: Path, variables: Mapping[str, str] = MappingProxyType({}), **fields: object
) -> dict[str, Check]:
    """A part's checks by name."""
    return {check.name: check for check in answer(part, venv, variables, **fields).checks}


def one(
    part: str, name: str, venv: Path, variables: Mapping[str, str] = MappingProxyType({}), **fields: object
) -> Check:
    """One check of a part."""
    return checks(part, venv, variables, **fields)[name]
