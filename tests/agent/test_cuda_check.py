"""The program that judges a machine's GPUs as they are, hidden and held: over stand-ins, and on a real card where
there is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cuda import ENVIRONMENT, build
from tests.nvml import write_smi

PROGRAM = Path(__file__).parents[1] / "cuda_check.py"
UUID = "GPU-00000000-0000-4000-8000-00000000000a"


def run(environment: dict[str, str]) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment,
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


@pytest.mark.skipif(
    not Path("/proc/driver/nvidia/version").exists(), reason="no NVIDIA driver on this machine"
)
@pytest.mark.timeout(400)
def test_on_a_real_card_every_answer_is_the_expected_one() -> None:
    code, found = run(dict(os.environ))
    assert code == 0, json.dumps(found, indent=1)


def standin(tmp_path: Path, *lines: str) -> dict[str, str]:
    state = tmp_path / "state"
    state.write_text("\n".join([f"gpu {UUID} NVIDIA RTX A6000", *lines]) + "\n")
    build(tmp_path / "library")
    answers = {"query-gpu": (0, f"0, {UUID}, Default, 580.95.05\n"), "compute-apps": (0, "")}
    write_smi(tmp_path / "bin", answers)
    return {
        **os.environ,
        ENVIRONMENT: str(state),
        "LD_LIBRARY_PATH": str(tmp_path / "library"),
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    }


def test_a_healthy_card_passes_and_a_hidden_or_held_one_has_its_reason(tmp_path: Path) -> None:
    code, found = run(standin(tmp_path))
    assert code == 0, found
    told = {name: scenario["as_expected"] for name, scenario in found["scenarios"].items()}
    assert told.pop("node closed") in (None, True)
    assert told == dict.fromkeys(
        [
            "as they are",
            "in use",
            "hidden from the login",
            "not seen by CUDA",
            "held, as the driver tells it",
        ],
        True,
    )


def test_a_card_that_is_not_healthy_is_told_by_the_exit_code(tmp_path: Path) -> None:
    code, found = run(standin(tmp_path, "error cuDevicePrimaryCtxRetain 719"))
    assert code == 1
    assert found["scenarios"]["as they are"]["as_expected"] is False


def test_without_a_card_there_is_nothing_to_ask(tmp_path: Path) -> None:
    code, found = run({**os.environ, "PATH": str(tmp_path)})
    assert (code, found["ok"]) == (2, None)
