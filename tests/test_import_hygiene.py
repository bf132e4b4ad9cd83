"""What must not be imported where: the first frame, `status` and the agent pay only for what they use."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"textual", "rich", "asyncssh", "cryptography", "pynvml", "tomli_w"}


def imported_by(statement: str) -> set[str]:
    """The top-level modules that are there after a statement in a fresh interpreter."""
    script = f"{statement}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.parametrize(
    "statement",
    [
        "import dflash_console.model",
        "import dflash_console.config",
        "import dflash_console.link",
        "import dflash_console.fleet",
        "import dflash_console.findings",
        "import dflash_console.cli",
    ],
)
def test_no_room_but_the_ui_pays_for_the_screen_or_for_ssh(statement: str) -> None:
    assert imported_by(statement) & HEAVY == set()


def test_the_screen_does_not_pay_for_ssh() -> None:
    assert imported_by("import dflash_console.ui") & {"asyncssh", "cryptography", "pynvml"} == set()


def test_the_agent_pays_for_nothing_but_the_standard_library() -> None:
    ours = imported_by("import dflash_console.agent.main")
    plain = imported_by("pass")
    assert ours - plain - set(sys.stdlib_module_names) == {"dflash_console"}
    # Each costs an agent more memory or start-up time than its use is worth.
    assert (
        ours & {"asyncio", "typing", "dataclasses", "logging", "multiprocessing", "subprocess", "ssl"}
        == set()
    )
