"""nvidia-smi's texts, parsed; those of broken cards as public reports have them, in the order of the
fallback's fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dflash_console.agent.gpu.smi import FIELDS, parse_gpus, parse_processes, refused_field
from dflash_console.model import GpuReport
from tests.agent.gpu_agent import reason

DATA = Path(__file__).parents[1] / "data" / "gpu"
RECORDED = sorted(folder.parent for folder in DATA.glob("*/report.json"))
GOOD = (
    "0, GPU-0, 00000000:C9:00.0, NVIDIA RTX A6000, 580.95.05, 52, 49140, 1024, 64, 288.50, 300.00, P2, "
    "Enabled, [N/A], [N/A], [N/A], None"
)


def cells(**changes: str) -> str:
    """The good line with other cells, by field; dots as underscores."""
    row = dict(zip(FIELDS, GOOD.split(", "), strict=True))
    row.update({key.replace("__", "."): value for key, value in changes.items()})
    return ", ".join(row.values())


def parsed(*lines: str) -> list[dict[str, Any]]:
    return parse_gpus("\n".join(lines) + "\n", FIELDS, 100.0)[0]


def test_a_line_of_a_healthy_card_gives_its_values_in_our_units() -> None:
    rows, driver = parse_gpus(GOOD + "\n", FIELDS, 100.0)
    row = rows[0]
    assert driver == "580.95.05"
    assert (row["index"], row["uuid"], row["bus"], row["name"]) == (
        0,
        "GPU-0",
        "0000:c9:00.0",
        "NVIDIA RTX A6000",
    )
    assert (row["utilization"], row["temperature"], row["power"], row["power_limit"]) == (
        52,
        64,
        288.5,
        300.0,
    )
    assert (row["memory_used"], row["memory_total"]) == (1 << 30, 49140 << 20)
    assert (row["pstate"], row["persistence"], row["recovery_action"]) == (2, True, "none")
    assert (reason(row["mig"]), row["mig"]) == (
        None,
        {"missing": "unsupported", "detail": "not supported (3)"},
    )
    assert (row["health"], row["good_at"]) == ("ok", 100.0)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("[N/A]", "unsupported"),
        ("N/A", "unsupported"),
        ("[Not Supported]", "unsupported"),
        ("Not Supported", "unsupported"),
        ("-", "unsupported"),
        ("[Unknown Error]", "error"),
        ("ERR!", "error"),
        ("[Insufficient Permissions]", "permission"),
        ("[Not Found]", "not_found"),
        ("[GPU is lost]", "lost"),
        ("[GPU requires reset]", "reset_required"),
        ("9223372036854775794", "error"),
        ("soon", "error"),
    ],
)
def test_a_sentinel_is_a_reason_and_never_a_zero(cell: str, expected: str) -> None:
    row = parsed(cells(temperature__gpu=cell))[0]
    assert row["temperature"]["missing"] == expected
    assert row["utilization"] == 52


def test_a_lost_card_keeps_its_row_between_its_neighbours() -> None:
    """Cells as in shine-cluster issue 171: identity reads, every measured cell is lost."""
    lost = "[GPU is lost]"
    line = cells(
        index="1",
        utilization__gpu=lost,
        memory__total=lost,
        memory__used=lost,
        temperature__gpu=lost,
        power__draw=lost,
        pstate=lost,
    )
    rows = parsed(GOOD, line, cells(index="2"))
    assert [(row["index"], row["health"]) for row in rows] == [(0, "ok"), (1, "lost"), (2, "ok")]
    assert (rows[1]["name"], rows[1]["good_at"]) == ("NVIDIA RTX A6000", None)


def test_a_card_that_requires_a_reset_is_not_usable_though_its_memory_reads() -> None:
    need = "[GPU requires reset]"
    row = parsed(cells(utilization__gpu=need, temperature__gpu=need, pstate=need))[0]
    assert (row["health"], row["memory_used"]) == ("reset_required", 1 << 30)


def test_an_error_cell_and_a_recovery_action_ask_for_attention() -> None:
    """nvidia_gpu_exporter issue 393: one ERR! cell, the others plausible, and `GPU Recovery Action:
    Reset`."""
    row = parsed(cells(power__draw="ERR!", gpu_recovery_action="Reset"))[0]
    assert (row["health"], row["recovery_action"]) == ("attention", "reset")
    assert row["health_detail"] == "power: unknown error (999); recovery action: GPU Reset"


def test_a_name_with_commas_does_not_shift_the_cells() -> None:
    row = parsed(cells(name="NVIDIA Odd, 2nd, Edition"))[0]
    assert (row["name"], row["utilization"], row["memory_total"]) == (
        "NVIDIA Odd, 2nd, Edition",
        52,
        49140 << 20,
    )


@pytest.mark.parametrize(
    "line",
    [
        "Unable to determine the device handle for GPU0000:A1:00.0: Unknown Error",
        "Unable to determine the device handle for GPU 0000:0B:00.0: GPU is lost.  Reboot the system",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "Failed to initialize NVML: Driver/library version mismatch",
        "No devices were found",
        "WARNING: infoROM is corrupted at gpu 0000:01:00.0",
        "",
    ],
)
def test_a_line_that_is_no_row_is_left_out(line: str) -> None:
    assert [row["index"] for row in parsed(GOOD, line, cells(index="1"))] == [0, 1]


def test_mig_mode_says_why_there_is_no_utilization() -> None:
    row = parsed(cells(mig__mode__current="Enabled", utilization__gpu="[N/A]"))[0]
    assert row["utilization"] == {"missing": "unsupported", "detail": "MIG: not defined"}
    assert row["health"] == "ok"


def test_processes_are_listed_by_gpu() -> None:
    text = "GPU-0, 4242, 1024\nGPU-1, 4243, [N/A]\nGPU-0, 17, 1\nnonsense\n"
    found = parse_processes(text)
    assert [(process["pid"], process["memory"]) for process in found["GPU-0"]] == [
        (4242, 1 << 30),
        (17, 1 << 20),
    ]
    assert found["GPU-1"][0]["memory"]["missing"] == "unsupported"


def test_the_refused_field_is_found_in_the_complaint() -> None:
    complaint = 'Field "gpu_recovery_action" is not a valid field to query.\n'
    assert refused_field(complaint) == "gpu_recovery_action"
    assert refused_field(GOOD) is None


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_a_recorded_card_reads_the_same_by_nvml_and_by_the_fallback(folder: Path) -> None:
    report = msgspec.json.decode((folder / "report.json").read_bytes(), type=GpuReport)
    rows, driver = parse_gpus((folder / "fallback.csv").read_text(), FIELDS, 100.0)
    assert (report.source, driver) == ("nvml", report.driver)
    assert len(rows) == len(report.gpus)
    for row, gpu in zip(rows, report.gpus, strict=True):
        assert (row["uuid"], row["bus"], row["name"]) == (gpu.uuid, gpu.bus, gpu.name)
        assert (row["power_limit"], row["persistence"]) == (gpu.power_limit, gpu.persistence)
        assert abs(row["memory_total"] - gpu.memory_total) < 1 << 20
        assert row["recovery_action"] == gpu.recovery_action
        assert gpu.health == "ok"


def test_a_recorded_report_is_whole() -> None:
    for folder in RECORDED:
        report = json.loads((folder / "report.json").read_text())
        assert all("missing" not in str(gpu["uuid"]) for gpu in report["gpus"])
