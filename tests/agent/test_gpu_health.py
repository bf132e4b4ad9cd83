"""The verdict on a GPU, by a table."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_console.agent.gpu.codes import Fault, fault
from dflash_console.agent.gpu.health import judge

WELL: dict[str, Any] = {
    "recovery_action": "none",
    "ecc_uncorrected": 0,
    "remap_pending": False,
    "remap_failed": False,
}
NOT_TOLD = {"missing": "unsupported", "detail": ""}
EVERY_CALL = ("utilization", "memory", "temperature", "power", "processes")


def faults(number: int, *calls: str) -> dict[str, Fault]:
    return {call: fault(number) for call in calls}


@pytest.mark.parametrize(
    ("failed", "row", "health", "detail"),
    [
        pytest.param({}, WELL, "ok", "", id="nothing failed"),
        pytest.param({}, dict.fromkeys(WELL, NOT_TOLD), "ok", "", id="nothing is told"),
        pytest.param(faults(3, *EVERY_CALL), {}, "ok", "", id="nothing is supported"),
        pytest.param(faults(15, *EVERY_CALL), {}, "lost", "GPU is lost (15)", id="all calls lost"),
        pytest.param(faults(15, "power"), WELL, "lost", "GPU is lost (15)", id="one call lost"),
        pytest.param(
            faults(16, "temperature"), WELL, "reset_required", "(16)", id="one call asks for a reset"
        ),
        pytest.param(
            {**faults(16, "power"), **faults(15, "memory")}, {}, "lost", "(15)", id="lost is worse than reset"
        ),
        pytest.param(
            faults(999, "handle"), {}, "lost", "no device handle, unknown error (999)", id="handle 999"
        ),
        pytest.param(faults(6, "handle"), {}, "lost", "no device handle, not found (6)", id="handle 6"),
        pytest.param(faults(28, "handle"), {}, "lost", "(28)", id="handle 28"),
        pytest.param(faults(16, "handle"), {}, "reset_required", "(16)", id="handle 16"),
        pytest.param(faults(4, "handle"), {}, "unreadable", "insufficient permissions (4)", id="handle 4"),
        pytest.param(faults(17, "handle"), {}, "unreadable", "device cgroup", id="handle 17"),
        pytest.param(
            faults(4, *EVERY_CALL), {}, "unreadable", "insufficient permissions (4)", id="no permission"
        ),
        pytest.param(
            {**faults(3, "utilization", "memory", "power"), **faults(999, "temperature")},
            {},
            "unreadable",
            "temperature: unknown error (999)",
            id="nothing answers, one for a reason",
        ),
        pytest.param(faults(999, "utilization", "power"), WELL, "attention", "half dead", id="half dead"),
        pytest.param(faults(10, "power"), WELL, "attention", "power: timeout (10)", id="one call times out"),
        pytest.param(faults(999, "processes"), WELL, "ok", "", id="the list of processes fails"),
        pytest.param(
            {}, {**WELL, "recovery_action": "reset"}, "attention", "recovery action: GPU Reset", id="action"
        ),
        pytest.param(
            {},
            {**WELL, "recovery_action": "action 9"},
            "attention",
            "recovery action: action 9",
            id="new action",
        ),
        pytest.param(
            {}, {**WELL, "remap_failed": True}, "attention", "a row remap failed", id="remap failed"
        ),
        pytest.param(
            {}, {**WELL, "remap_pending": True}, "attention", "remap is pending", id="remap pending"
        ),
        pytest.param(
            {}, {**WELL, "ecc_uncorrected": 1}, "attention", "1 uncorrected ECC error since", id="ECC"
        ),
        pytest.param(
            faults(15, "power"),
            {**WELL, "recovery_action": "reboot"},
            "lost",
            "reboot or power-cycle the host; recovery action: Node Reboot",
            id="lost with an action",
        ),
    ],
)
def test_health_follows_from_the_error_numbers_and_what_the_driver_asks_for(
    failed: dict[str, Fault], row: dict[str, Any], health: str, detail: str
) -> None:
    found, words = judge(failed, row)
    assert found == health
    assert detail in words
    assert (words == "") == (health == "ok")
