"""The fleet's pure parts: rests, rings, merging, sharing."""

from __future__ import annotations

import pytest

from dflash_console.bounds import MOST_GPUS
from dflash_console.config import Config, ConsoleConfig, HostConfig, PackageConfig
from dflash_console.fleet import Fleet, HostView, Pace
from dflash_console.fleet.backoff import rest_before_try
from dflash_console.fleet.history import Rings
from dflash_console.fleet.merge import absorb, keep_rows, snapshot_of
from dflash_console.fleet.opening import watch_spec
from dflash_console.fleet.sharing import Sharing
from dflash_console.link.route import build, wish_of
from dflash_console.model import GpuReport, Missing, Sample
from tests import pictures
from tests.fleet.doubles import Network, config

GONE = Missing("lost", "GPU is lost")


@pytest.mark.parametrize(
    ("failures", "is_lasting", "bounds"),
    [
        (1, False, (0, 1)),
        (2, False, (0, 2)),
        (5, False, (0, 16)),
        (6, False, (0, 30)),
        (10**9, False, (0, 30)),
        (1, True, (60, 120)),
        (2, True, (60, 240)),
        (3, True, (60, 300)),
        (10**9, True, (60, 300)),
    ],
)
def test_a_rest_is_drawn_between_these_bounds(
    failures: int, is_lasting: bool, bounds: tuple[float, float]
) -> None:
    drawn: list[tuple[float, float]] = []

    def draw(low: float, high: float) -> float:
        drawn.append((low, high))
        return high

    rest = rest_before_try(failures, Pace(), is_lasting=is_lasting, draw=draw)
    assert drawn == [bounds]
    assert rest == bounds[1]


# ---- rings


def busy(value: int | Missing) -> GpuReport:
    return pictures.report(pictures.gpu(utilization=value))


def ring(rings: Rings) -> tuple[int | None, ...]:
    (cells,) = rings.cells.values()
    return cells


def test_a_ring_is_a_minute_long_from_the_first_sample_on() -> None:
    rings = Rings(1.0)
    rings.take(100.0, busy(7))
    assert ring(rings) == (None,) * 59 + (7,)


@pytest.mark.parametrize(("interval", "cells"), [(0.2, 240), (0.5, 120), (1.0, 60), (5.0, 12), (60.0, 1)])
def test_a_ring_has_a_cell_an_interval_and_a_bounded_number(interval: float, cells: int) -> None:
    rings = Rings(interval)
    rings.take(100.0, busy(7))
    assert len(ring(rings)) == cells


def test_samples_that_did_not_come_are_gaps() -> None:
    rings = Rings(1.0)
    rings.take(100.0, busy(1))
    rings.take(101.02, busy(2))
    rings.take(104.97, busy(3))
    assert ring(rings)[-6:] == (1, 2, None, None, None, 3)


def test_a_heap_of_late_samples_stands_where_it_belongs() -> None:
    rings = Rings(1.0)
    for second in range(10):
        rings.take(100.0 + second, busy(second))
    assert ring(rings)[-10:] == tuple(range(10))


def test_jitter_makes_no_gap() -> None:
    rings = Rings(1.0)
    for at in (0.02, 1.01, 1.99, 3.04, 3.97, 5.0):
        rings.take(100 + at, busy(50))
    assert ring(rings)[-6:] == (50,) * 6


def test_a_second_sample_of_the_same_interval_takes_the_first_ones_place() -> None:
    rings = Rings(1.0)
    for at in (0.0, 0.3, 1.3, 1.31, 2.3):
        rings.take(100 + at, busy(round(at * 10)))
    assert ring(rings)[-3:] == (3, 13, 23)


def test_a_clock_set_back_goes_on_and_one_set_forward_leaves_a_gap() -> None:
    rings = Rings(1.0)
    for at in (100.0, 101.0, 50.0, 51.0, 54.0, 9_000.0):
        rings.take(at, busy(9))
    assert ring(rings) == (None,) * 59 + (9,)
    rings = Rings(1.0)
    for at in (100.0, 101.0, 50.0, 51.0):
        rings.take(at, busy(9))
    assert ring(rings)[-5:] == (None, 9, 9, 9, 9)


def test_a_gpu_without_a_value_has_a_gap_there() -> None:
    rings = Rings(1.0)
    rings.take(100.0, busy(5))
    rings.take(101.0, pictures.report(pictures.lost()))
    rings.take(102.0, busy(6))
    assert ring(rings)[-3:] == (5, None, 6)


# ---- merging


def known(report: GpuReport) -> Sample:
    return Sample(1.0, host=pictures.host(), gpu=report)


def test_without_a_host_section_there_is_no_picture() -> None:
    assert snapshot_of(Sample(1.0, gpu=pictures.report())) is None


def test_the_pictures_time_is_the_newest_samples() -> None:
    merged = absorb(known(pictures.report()), Sample(2.5, paths=[pictures.path()]))
    picture = snapshot_of(merged)
    assert picture is not None
    assert picture.at == 2.5
    assert picture.paths == [pictures.path()]


def test_an_unchanged_report_is_passed_on_as_it_is() -> None:
    after = pictures.report()
    assert keep_rows(pictures.report(), after) is after


def test_a_gpu_that_a_fresh_agent_can_not_name_gets_the_name_that_was_on_its_bus() -> None:
    before = pictures.report(pictures.gpu(0), pictures.gpu(1))
    nameless = pictures.lost(1, uuid=GONE, name=GONE, good_at=None)
    row = keep_rows(before, pictures.report(pictures.gpu(0), nameless)).gpus[1]
    assert (row.uuid, row.name, row.health) == (pictures.gpu(1).uuid, pictures.gpu(1).name, "lost")
    assert row.good_at == pictures.gpu(1).good_at


def test_a_gpu_that_is_not_listed_any_more_keeps_a_row() -> None:
    before = pictures.report(pictures.gpu(0), pictures.gpu(1), pictures.gpu(2))
    moved_up = pictures.replace(pictures.gpu(2), index=1)
    after = keep_rows(before, pictures.report(pictures.gpu(0), moved_up, kernel_count=3))
    assert [(row.uuid, row.health) for row in after.gpus] == [
        (pictures.gpu(0).uuid, "ok"),
        (pictures.gpu(2).uuid, "ok"),
        (pictures.gpu(1).uuid, "lost"),
    ]
    assert after.gpus[2].utilization == Missing("lost", "the driver does not list it any more")
    again = keep_rows(after, pictures.report(pictures.gpu(0), moved_up, kernel_count=3))
    assert again == after
    assert keep_rows(after, before) is before, "and gives it up when the GPU is back"


def test_while_the_driver_is_down_the_rows_stay_with_its_reason() -> None:
    trouble = Missing("mismatch", "Driver/library version mismatch")
    after = keep_rows(
        pictures.report(), GpuReport(gpus=[], source="none", driver="580.95.05", trouble=trouble)
    )
    (row,) = after.gpus
    assert (row.health, row.utilization) == ("unreadable", trouble)


def test_a_gpu_that_was_given_to_a_virtual_machine_leaves() -> None:
    before = pictures.report(pictures.gpu(0), pictures.gpu(1))
    after = keep_rows(before, pictures.report(pictures.gpu(0), passed_through=1))
    assert [row.index for row in after.gpus] == [0]


def test_another_card_in_the_same_slot_takes_the_row() -> None:
    after = keep_rows(pictures.report(), pictures.report(pictures.gpu(uuid="GPU-new")))
    assert [row.uuid for row in after.gpus] == ["GPU-new"]


# ---- sharing


def test_ever_new_gpus_leave_no_more_rows_than_a_host_can_have() -> None:
    def fresh(turn: int) -> GpuReport:
        return pictures.report(
            *(
                pictures.gpu(
                    index, uuid=f"GPU-{turn}-{index}", bus=f"{turn:04x}:{index:02x}:00.0", good_at=float(turn)
                )
                for index in range(MOST_GPUS)
            )
        )

    merged = fresh(0)
    for turn in range(1, 50):
        merged = keep_rows(merged, fresh(turn))
        assert len(merged.gpus) <= 2 * MOST_GPUS
        assert len({gpu.index for gpu in merged.gpus}) == len(merged.gpus)
    gone = {gpu.uuid for gpu in merged.gpus if gpu.health == "lost"}
    assert gone == {f"GPU-48-{index}" for index in range(MOST_GPUS)}, "those that answered last stay"


def test_all_gpus_of_a_large_host_keep_their_rows() -> None:
    before = pictures.report(*(pictures.gpu(index, uuid=f"GPU-{index}") for index in range(MOST_GPUS)))
    merged = keep_rows(before, GpuReport([], "none", "580.95.05"))
    assert [gpu.uuid for gpu in merged.gpus] == [gpu.uuid for gpu in before.gpus]


def test_a_gpu_that_moved_is_no_second_one() -> None:
    first, second = pictures.gpu(0), pictures.gpu(1)
    before = pictures.report(first, second)
    after = pictures.report(pictures.replace(second, index=0), pictures.replace(first, index=1))
    assert keep_rows(before, after).gpus == after.gpus
    moved = pictures.report(pictures.gpu(0, bus="0000:77:00.0"), pictures.gpu(1))
    assert keep_rows(before, moved).gpus == moved.gpus


def test_sharing_names_the_others_in_the_configs_order() -> None:
    sharing = Sharing(["a", "b", "c"])
    assert sharing.show("c", frozenset({"x"})) == set()
    assert sharing.show("a", frozenset({"x", "y"})) == {"a", "c"}
    assert sharing.show("b", frozenset({"x"})) == {"a", "b", "c"}
    assert sharing.others("a") == {"x": ("b", "c")}
    assert sharing.others("b") == {"x": ("a", "c")}
    assert sharing.show("a", frozenset({"y"})) == {"a", "b", "c"}
    assert sharing.others("a") == {}
    assert sharing.others("c") == {"x": ("b",)}
    assert sharing.show("b", frozenset()) == {"b", "c"}
    assert sharing.show("c", frozenset()) == set()


# ---- what to watch


def test_the_agent_watches_what_the_config_says() -> None:
    whole = config("ct200", interval=2.0)
    host = pictures.replace(
        whole.hosts["ct200"], venvs=["/root/venv"], package_venv="/root/ml-env", paths=["/models"]
    )
    spec = watch_spec(whole, host)
    assert spec.interval == 2.0
    assert spec.venvs == ["/root/ml-env", "/root/venv"]
    assert spec.paths == ["/models"]
    assert spec.modules[0] == [
        "sglang.srt.speculative.dflash_worker",
        "sglang.srt.speculative.dflash_worker_v2",
    ]
    assert spec.distributions == [
        "sglang",
        "torch",
        "sglang-kernel",
        "sgl-kernel",
        "flashinfer-python",
        "transformers",
    ]
    assert watch_spec(whole, whole.hosts["ct200"]).venvs is None


def test_the_command_that_reaches_a_host_is_the_links_own() -> None:
    host = HostConfig("ct200", address="10.1.2.200", user="op", port=2222, jump="gate")
    whole = Config(ConsoleConfig(ssh_config="/etc/s"), PackageConfig(), {"ct200": host})
    (view,) = Fleet(whole, opener=Network().open).views()
    assert view.ssh_command == "ssh -F /etc/s -l op -p 2222 -J gate 10.1.2.200"
    assert view.ssh_command == build({}, wish_of(host), "/etc/s").command
    assert HostView(HostConfig("here", local=True), view.link, ssh_config="/etc/s").ssh_command == ""
