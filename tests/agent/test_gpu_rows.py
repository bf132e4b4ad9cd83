"""Rows of GPUs outlive what befalls the GPUs."""

from __future__ import annotations

from typing import Any

from dflash_console.agent.gpu.kernel import KernelGpu
from dflash_console.agent.gpu.rows import Rows, bare_row, identified

LOST = {"missing": "lost", "detail": "GPU is lost (15)"}
MISMATCH = {"missing": "mismatch", "detail": "driver/library version mismatch (18)"}


def good(index: int, bus: int | None = None) -> dict[str, Any]:
    place = index if bus is None else bus
    return {
        **bare_row(index, LOST, "ok", ""),
        "uuid": f"GPU-{place}",
        "bus": f"0000:0{place}:00.0",
        "name": "NVIDIA RTX A6000",
        "memory_total": 1 << 35,
        "utilization": 50,
        "good_at": 100.0,
    }


def pci(place: int, driver: str | None = "nvidia", uuid: str | None = None) -> KernelGpu:
    return KernelGpu(f"0000:0{place}:00.0", driver, uuid, None)


def shown(rows: list[dict[str, Any]]) -> list[tuple[int, object, str]]:
    return [(row["index"], row["uuid"], row["health"]) for row in rows]


def test_a_gpu_that_fails_by_its_index_is_the_one_that_was_there() -> None:
    rows = Rows()
    rows.keep([good(0), good(1)], [], None)
    kept = rows.keep([good(0), bare_row(1, LOST, "lost", "GPU is lost (15)")], [], None)
    assert shown(kept) == [(0, "GPU-0", "ok"), (1, "GPU-1", "lost")]
    assert (kept[1]["memory_total"], kept[1]["good_at"], kept[1]["utilization"]) == (1 << 35, 100.0, LOST)


def test_a_failing_index_does_not_take_the_name_of_a_gpu_that_moved_to_another() -> None:
    rows = Rows()
    rows.keep([good(0), good(1)], [], None)
    kept = rows.keep([good(0, bus=1), bare_row(1, LOST, "lost", "")], [], None)
    assert shown(kept)[0] == (0, "GPU-1", "ok")
    assert shown(kept)[1] == (1, LOST, "lost")
    assert shown(kept)[2] == (2, "GPU-0", "lost")


def test_an_unlisted_gpu_stays_with_an_index_of_its_own() -> None:
    rows = Rows()
    rows.keep([good(0), good(1), good(2)], [], None)
    kept = rows.keep([good(0), good(1, bus=2)], [], None)
    assert shown(kept) == [(0, "GPU-0", "ok"), (1, "GPU-2", "ok"), (2, "GPU-1", "lost")]
    assert shown(rows.keep([good(0), good(1), good(2)], [], None)) == [
        (0, "GPU-0", "ok"),
        (1, "GPU-1", "ok"),
        (2, "GPU-2", "ok"),
    ]


def test_a_gpu_that_was_given_to_a_virtual_machine_leaves() -> None:
    rows = Rows()
    rows.keep([good(0), good(1)], [], None)
    assert shown(rows.keep([good(0)], ["0000:01:00.0"], None)) == [(0, "GPU-0", "ok")]


def test_the_kernel_s_list_and_the_last_rows_meet_by_the_bus() -> None:
    rows = Rows()
    rows.keep([good(0), good(1)], [], None)
    kept = rows.keep(identified([], [pci(0), pci(1)], MISMATCH), [], MISMATCH)
    assert shown(kept) == [(0, "GPU-0", "unreadable"), (1, "GPU-1", "unreadable")]
    assert [row["utilization"] for row in kept] == [MISMATCH, MISMATCH]


def test_a_gpu_without_handle_gets_its_bus_from_the_kernel_when_only_one_can_be_meant() -> None:
    rows = identified([good(0), bare_row(1, LOST, "lost", "")], [pci(0), pci(1, uuid="GPU-1")], None)
    assert shown(rows) == [(0, "GPU-0", "ok"), (1, "GPU-1", "lost")]
    assert rows[1]["bus"] == "0000:01:00.0"


def test_a_gpu_without_handle_gets_no_bus_when_several_can_be_meant() -> None:
    rows = identified([bare_row(0, LOST, "lost", "")], [pci(0), pci(1)], None)
    assert [row["bus"] for row in rows] == [LOST]


def test_a_gpu_on_the_bus_that_the_driver_does_not_list_has_a_row_with_the_next_index() -> None:
    rows = identified([good(0), good(1, bus=2)], [pci(0), pci(1), pci(2), pci(3, driver=None)], None)
    assert [(row["index"], row["bus"], row["health"]) for row in rows] == [
        (0, "0000:00:00.0", "ok"),
        (1, "0000:02:00.0", "ok"),
        (2, "0000:01:00.0", "lost"),
        (3, "0000:03:00.0", "unreadable"),
    ]
    assert rows[2]["health_detail"].startswith("on the PCI bus, not listed by the driver")
    assert rows[3]["health_detail"] == "no driver is bound to it"


def test_while_the_driver_hangs_every_row_stands_without_values() -> None:
    rows = Rows()
    rows.keep([good(0), good(1), bare_row(2, LOST, "lost", "")], [], None)
    why = {"missing": "hung", "detail": "no answer for 61 s on GPU 1"}
    hung = rows.all_without_values(1, why)
    assert [row["health"] for row in hung] == ["unreadable", "hung", "lost"]
    assert [row["utilization"] for row in hung] == [why, why, LOST]
    assert [row["health"] for row in rows.all_without_values(None, why)] == ["hung", "hung", "lost"]
