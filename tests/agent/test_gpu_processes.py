"""The driver's lists of processes, merged and told by /proc."""

from __future__ import annotations

from typing import Any

from dflash_console.agent.gpu.processes import Enricher, hidden_memory, merged

NOT_AVAILABLE = (1 << 64) - 1
NO_INSTANCE = (1 << 32) - 1
UNKNOWN = {"missing": "unsupported", "detail": "not available"}
TOLD: dict[str, Any] = {
    "pid": 10,
    "user": "root",
    "command": "python -m sglang.launch_server",
    "started": 1000.0,
    "venv": "/root/venv",
    "unit": "sglang.service",
    "exe": "/usr/bin/python3",
    "argv": ["python", "--api-key", "secret"],
}


def test_a_process_in_both_lists_is_one_with_the_larger_figure() -> None:
    listed = [("compute", [(20, 5, NO_INSTANCE), (10, 7, NO_INSTANCE)]), ("graphics", [(20, 9, NO_INSTANCE)])]
    assert merged(listed, 100) == [
        {"pid": 10, "memory": 7, "kind": "compute"},
        {"pid": 20, "memory": 9, "kind": "compute"},
    ]


def test_the_parts_of_a_process_on_mig_instances_add_up() -> None:
    assert merged([("compute", [(10, 7, 1), (10, 5, 2)])], 100) == [
        {"pid": 10, "memory": 12, "kind": "compute"}
    ]


def test_memory_that_is_not_available_is_no_number() -> None:
    listed = [("compute", [(10, NOT_AVAILABLE, 0), (11, NOT_AVAILABLE, 1), (11, 5, 2)])]
    assert merged(listed, 100) == [
        {"pid": 10, "memory": UNKNOWN, "kind": "compute"},
        {"pid": 11, "memory": 5, "kind": "compute"},
    ]


def test_a_shifted_list_is_unreliable_as_a_whole() -> None:
    """Drivers 535.43 to 535.86 (gpustat issue 161)."""
    for record in ((0, 5, 0), (1 << 23, 5, 0), (10, 101, 0)):
        found = merged([("compute", [(11, 1, 0), record])], 100)
        assert isinstance(found, dict)
        assert found["missing"] == "error"
        assert "unreliable" in found["detail"]


def test_memory_without_a_process_is_hidden_only_when_it_is_more_than_an_idle_card_s() -> None:
    assert hidden_memory(4 << 30, 638 << 20, []) == 4 << 30
    assert hidden_memory(100 << 20, 638 << 20, []) == 0
    assert hidden_memory(700 << 20, {"missing": "unsupported"}, []) == 0
    assert hidden_memory(4 << 30, 638 << 20, [{"pid": 1}]) == 0
    assert hidden_memory(4 << 30, 638 << 20, {"missing": "permission"}) == 0


def row(*pids: int) -> dict[str, Any]:
    return {"processes": [{"pid": pid, "memory": 1, "kind": "compute"} for pid in pids]}


def test_a_process_is_looked_up_once_for_all_gpus_and_its_secrets_stay() -> None:
    looked = []

    def look(pid: int) -> dict[str, Any]:
        looked.append(pid)
        return TOLD

    enricher = Enricher(look, started=lambda pid: 1)
    rows = [row(10), row(10, 11), {"processes": UNKNOWN}]
    enricher.add(rows, 0.0)
    enricher.add([row(10), row(11)], 5.0)
    assert looked == [10, 11]
    found = rows[1]["processes"][0]
    assert (found["user"], found["unit"], found["venv"]) == ("root", "sglang.service", "/root/venv")
    assert "argv" not in found


def test_a_pid_that_became_another_process_is_looked_up_anew() -> None:
    starts = iter([1, 2])
    names = iter(["old", "new"])
    enricher = Enricher(lambda pid: {**TOLD, "command": next(names)}, started=lambda pid: next(starts))
    enricher.add([row(10)], 0.0)
    later = row(10)
    enricher.add([later], 5.0)
    assert later["processes"][0]["command"] == "new"
