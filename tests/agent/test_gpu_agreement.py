"""The program that compares our reading with nvidia-smi's: on a real card where there is one, and over
stand-ins so that it works when it gets there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nvml import ENVIRONMENT, StandinGpu, State, build, write_smi

PROGRAM = Path(__file__).parents[1] / "gpu_agreement.py"
UUID = "GPU-00000000-0000-4000-8000-000000000000"
XML = (
    "<nvidia_smi_log><driver_version>580.95.05</driver_version><cuda_version>13.0</cuda_version>"
    "<attached_gpus>1</attached_gpus></nvidia_smi_log>"
)
LINE = (
    "0, {uuid}, 00000000:01:00.0, NVIDIA RTX A6000, 49140, 1024, 638, 52, {temperature}, 16.00, 300.00, "
    "300.00, 16, 16, 1, 4, 0, 0, No, No, None, Enabled, Disabled, P8, 0x0000000000000001\n"
)


@pytest.mark.skipif(
    not Path("/proc/driver/nvidia/version").exists(), reason="no NVIDIA driver on this machine"
)
def test_on_a_real_card_every_field_agrees_with_nvidia_smi() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr


def compare(tmp_path: Path, temperature: int) -> subprocess.CompletedProcess[str]:
    build(tmp_path)
    process = (os.getpid(), 1 << 30)
    card = StandinGpu(utilization=50, memory_used=1 << 30, processes=(process,))
    state = State(tmp_path / "state", (card,))
    state.write()
    programs = tmp_path / "bin"
    answers = {
        "compute-apps": (0, f"{UUID}, {os.getpid()}, 1024\n"),
        "-q -x": (0, XML),
        "query-gpu": (0, LINE.format(uuid=UUID, temperature=temperature)),
    }
    write_smi(programs, answers)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(tmp_path),
        ENVIRONMENT: str(state.path),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    command = [sys.executable, str(PROGRAM), "--record", str(tmp_path / "recorded"), "--costs"]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, timeout=100, cwd=tmp_path
    )


def test_agreement_is_told_and_recorded(tmp_path: Path) -> None:
    done = compare(tmp_path, temperature=32)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DISAGREES" not in done.stdout
    recorded = {path.name for path in (tmp_path / "recorded").iterdir()}
    assert {"report.json", "query-gpu.csv", "q-x.xml", "compute-apps.csv", "kernel.json"} <= recorded


def test_a_field_that_differs_is_told_by_name_and_by_the_exit_code(tmp_path: Path) -> None:
    done = compare(tmp_path, temperature=90)
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if "DISAGREES" in line]
    assert line.split()[:5] == ["GPU", "0", "temperature", "31", "90"]
