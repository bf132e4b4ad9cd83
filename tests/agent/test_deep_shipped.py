"""A deep verification by the agent as it is shipped: the libraries arrive in its memory, the parts answer."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dflash_console.link.shipment import deep_modules
from dflash_console.verdict import PartAnswer
from tests.agent.deep_part import MODULES
from tests.agent.deep_venvs import healthy
from tests.agent.driver import boot
from tests.agent.environments import pythons


@pytest.mark.parametrize("minor", sorted(pythons()))
def test_the_parts_answer_once_the_libraries_are_there(tmp_path: Path, minor: str) -> None:
    healthy(tmp_path / "venv")
    agent = boot(pythons()[minor])
    try:
        fields = {"venv": str(tmp_path / "venv"), "package": "sglang", "modules": MODULES, "limit": 60}
        before = agent.answer("verify", part="pins", **fields)
        assert before.error is not None
        assert "packaging" in before.error
        assert agent.answer("ship", modules=deep_modules()).error is None
        assert agent.answer("ship", modules=deep_modules()).error is None
        for part, name in (
            ("pins", "requires"),
            ("abi", "python_abi"),
            ("import", f"import {MODULES[1][0]}"),
            ("cuda", "cuda"),
        ):
            answer = agent.answer("verify", part=part, **fields)
            assert answer.error is None, answer.error
            checks = {check.name: check for check in msgspec.json.decode(answer.ok, type=PartAnswer).checks}
            assert name in checks
    finally:
        agent.close()
    assert agent.ended() == 0
