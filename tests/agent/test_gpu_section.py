"""The GPU section over the real pynvml and the compiled stand-in: each state of a card or driver, told for
what it is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_console.model import Gpu, GpuProcess, Missing
from tests.agent.driver import SPEC, boot
from tests.agent.environments import pythons
from tests.agent.gpu_agent import GpuAgent, reason
from tests.nvml import ENVIRONMENT, StandinGpu, State, build

GIBIBYTE = 1 << 30
LOST = 15
RESET_REQUIRED = 16
UNKNOWN = 999


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml")).parent


WELL = (StandinGpu(), StandinGpu(name="NVIDIA RTX PRO 6000 Blackwell, odd name"))


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state", WELL)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[tuple[GpuAgent, State]]:
    state = State(tmp_path_factory.mktemp("shared") / "state", WELL)
    with GpuAgent(state, library) as agent:
        yield agent, state


@pytest.fixture
def driver(shared: tuple[GpuAgent, State]) -> State:
    """What the driver under `agent` answers; two idle cards at each test's start."""
    agent, state = shared
    state.gpus, state.errors = WELL, {}
    state.write()
    agent.agent.ask("refresh")
    names = [gpu.name for gpu in WELL]
    agent.report(lambda report: report.trouble is None and [gpu.name for gpu in report.gpus] == names)
    agent.report(lambda report: all(gpu.health == "ok" and gpu.memory_used == 0 for gpu in report.gpus))
    return state


@pytest.fixture
def agent(shared: tuple[GpuAgent, State], driver: State) -> GpuAgent:
    """One agent for all tests that only look at what it tells."""
    return shared[0]


def test_an_idle_card_has_a_value_in_every_cell(agent: GpuAgent) -> None:
    report = agent.report()
    gpu = report.gpus[0]
    assert (report.source, report.driver, report.library, report.cuda) == (
        "nvml",
        "580.95.05",
        "580.95.05",
        "13.0",
    )
    assert (report.trouble, report.passed_through, reason(report.kernel_count)) == (None, 0, "unsupported")
    assert report.read_at is not None
    assert gpu.good_at is not None
    assert gpu == Gpu(
        index=0,
        uuid="GPU-00000000-0000-4000-8000-000000000000",
        bus="0000:01:00.0",
        name="NVIDIA RTX A6000",
        utilization=0,
        memory_used=0,
        memory_total=49140 << 20,
        temperature=31,
        power=16.0,
        power_limit=300.0,
        health="ok",
        processes=[],
        memory_reserved=638 << 20,
        power_limit_default=300.0,
        slowdowns=[],
        pcie_width=16,
        pcie_width_max=16,
        pcie_generation=1,
        pcie_generation_max=4,
        ecc_corrected=0,
        ecc_uncorrected=0,
        remap_pending=False,
        remap_failed=False,
        recovery_action="none",
        persistence=True,
        mig=False,
        pstate=8,
        good_at=gpu.good_at,
    )
    assert report.gpus[1].name == "NVIDIA RTX PRO 6000 Blackwell, odd name"


def test_a_change_shows_on_the_next_reading(agent: GpuAgent, driver: State) -> None:
    agent.report()
    driver.set(1, utilization=97, temperature=71, power=288.5, memory_used=40 * GIBIBYTE)
    seen = agent.gpu(1, lambda gpu: gpu.utilization == 97)
    assert (seen.temperature, seen.power, seen.memory_used) == (71, 288.5, 40 * GIBIBYTE)


def test_a_process_is_told_with_user_command_venv_and_start(agent: GpuAgent, driver: State) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()", "--api-key", "hush"], stdin=subprocess.PIPE
    ) as process:
        driver.set(0, memory_used=GIBIBYTE, processes=((process.pid, GIBIBYTE),))
        found = agent.gpu(0, lambda gpu: gpu.processes).processes
        process.communicate(b"\n")
    assert isinstance(found, list)
    assert (found[0].pid, found[0].memory, found[0].kind) == (process.pid, GIBIBYTE, "compute")
    assert (found[0].user, found[0].venv) == ("root" if os.getuid() == 0 else found[0].user, sys.prefix)
    assert isinstance(found[0].started, float)
    assert isinstance(found[0].command, str)
    assert "hush" not in found[0].command


def test_a_process_that_is_not_in_this_namespace_is_kept_and_said_to_be_elsewhere(
    agent: GpuAgent, driver: State
) -> None:
    elsewhere = 4_000_000
    driver.set(0, memory_used=GIBIBYTE, processes=((elsewhere, GIBIBYTE), (elsewhere, -1, "graphics")))
    found = agent.gpu(0, lambda gpu: gpu.processes).processes
    assert found == [
        GpuProcess(pid=elsewhere, memory=GIBIBYTE, command=Missing("not_found", "not visible here"))
    ]


def test_memory_in_use_without_any_process_is_told_as_hidden(agent: GpuAgent, driver: State) -> None:
    driver.set(0, memory_used=30 * GIBIBYTE)
    assert agent.gpu(0, lambda gpu: gpu.memory_used).hidden_memory == 30 * GIBIBYTE
    driver.set(0, memory_used=200 << 20)
    assert agent.gpu(0, lambda gpu: gpu.memory_used == 200 << 20).hidden_memory == 0


def test_a_list_of_processes_with_impossible_members_is_called_unreliable(
    agent: GpuAgent, driver: State
) -> None:
    driver.set(0, processes=((4_294_967_040, GIBIBYTE),))
    found = agent.gpu(0, lambda gpu: reason(gpu.processes)).processes
    assert found == Missing("error", "process list unreliable: pid 4294967040")


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (3, "unsupported"),
        (13, "unsupported"),
        (25, "unsupported"),
        (26, "unsupported"),
        (4, "permission"),
        (17, "permission"),
        (15, "lost"),
        (16, "reset_required"),
        (18, "mismatch"),
        (9, "not_found"),
        (6, "not_found"),
        (28, "not_found"),
        (10, "error"),
        (999, "error"),
        (12345, "error"),
    ],
)
def test_an_error_is_classified_by_its_number_and_costs_only_its_own_cell(
    agent: GpuAgent, driver: State, number: int, expected: str
) -> None:
    driver.set(0, errors={"GetPowerUsage": number})
    gpu = agent.gpu(0, lambda gpu: reason(gpu.power))
    assert reason(gpu.power) == expected
    assert (gpu.utilization, gpu.temperature) == (0, 31)
    assert f"({number})" in getattr(gpu.power, "detail", "")
    driver.set(0, errors={})
    assert agent.gpu(0, lambda gpu: gpu.power == 16.0).health == "ok"


@pytest.mark.parametrize(("number", "health"), [(LOST, "lost"), (RESET_REQUIRED, "reset_required")])
def test_a_card_that_fails_keeps_its_row_and_its_identity(
    agent: GpuAgent, driver: State, number: int, health: str
) -> None:
    well = agent.report().gpus[1]
    driver.set(1, errors={"*": number})
    gpu = agent.gpu(1, lambda gpu: gpu.health == health)
    assert (gpu.uuid, gpu.bus, gpu.name, gpu.memory_total) == (
        well.uuid,
        well.bus,
        well.name,
        well.memory_total,
    )
    assert [reason(cell) for cell in (gpu.utilization, gpu.memory_used, gpu.power, gpu.processes)] == [
        health
    ] * 4
    assert gpu.good_at is not None
    assert f"({number})" in gpu.health_detail
    driver.set(1, errors={})
    assert agent.gpu(1, lambda gpu: gpu.health == "ok").utilization == 0


def test_a_card_without_a_handle_is_lost_and_keeps_its_name(agent: GpuAgent, driver: State) -> None:
    well = agent.report().gpus[1]
    driver.set(1, errors={"GetHandleByIndex": UNKNOWN, "*": UNKNOWN})
    agent.agent.ask("refresh")
    gpu = agent.gpu(1, lambda gpu: gpu.health == "lost")
    assert (gpu.uuid, gpu.name, gpu.memory_total) == (well.uuid, well.name, well.memory_total)
    assert "unknown error (999)" in gpu.health_detail


def test_a_card_without_a_handle_from_the_start_has_a_row_by_its_index(state: State, library: Path) -> None:
    state.set(1, errors={"GetHandleByIndex": UNKNOWN})
    with GpuAgent(state, library) as agent:
        gpus = agent.report().gpus
    assert [(gpu.index, gpu.health) for gpu in gpus] == [(0, "ok"), (1, "lost")]
    assert (reason(gpus[1].uuid), gpus[1].good_at) == ("error", None)


def test_a_card_that_the_driver_lists_no_more_keeps_its_row(agent: GpuAgent, driver: State) -> None:
    names = [gpu.name for gpu in agent.report().gpus]
    driver.gpus = driver.gpus[:1]
    driver.write()
    gpu = agent.gpu(1, lambda gpu: gpu.health == "lost")
    assert gpu.name == names[1]
    assert "no longer listed" in gpu.health_detail


def test_half_a_card_is_not_a_whole_one(agent: GpuAgent, driver: State) -> None:
    """open-gpu-kernel-modules issue 1200: after a firmware failure only the temperature still reads."""
    driver.set(0, errors={"GetUtilizationRates": UNKNOWN, "GetPowerUsage": UNKNOWN})
    gpu = agent.gpu(0, lambda gpu: gpu.health == "attention")
    assert gpu.health_detail.startswith("half dead: utilization and power: unknown error (999)")


def test_what_the_driver_asks_for_is_told_in_its_words(agent: GpuAgent, driver: State) -> None:
    agent.report()
    driver.set(0, lines=("field 230 uint 4",), remap=(0, 1, 1, 0), ecc=(3, 2))
    agent.agent.ask("refresh")
    gpu = agent.gpu(0, lambda gpu: gpu.health == "attention")
    assert gpu.recovery_action == "drain_and_reset"
    assert gpu.health_detail.split("; ") == [
        "recovery action: Drain and Reset",
        "2 uncorrected ECC errors since the driver was loaded",
        "a row remap is pending until the next reset",
    ]


@pytest.mark.parametrize("line", ["field 230 ushort 1", "field 230 ulonglong 1", "field 230 int 1"])
def test_a_field_is_read_by_its_own_type(agent: GpuAgent, driver: State, line: str) -> None:
    agent.report()
    driver.set(0, lines=(line,))
    agent.agent.ask("refresh")
    assert agent.gpu(0, lambda gpu: gpu.health == "attention").recovery_action == "reset"


def test_a_field_of_which_only_its_own_return_code_fails_is_missing(state: State, library: Path) -> None:
    state.set(0, lines=("field 230 error 3",))
    state.set(1, lines=("field 230 uint 42",))
    with GpuAgent(state, library) as agent:
        gpus = agent.report().gpus
    assert reason(gpus[0].recovery_action) == "unsupported"
    assert (gpus[1].recovery_action, gpus[1].health) == ("action 42", "attention")


def test_absurd_numbers_are_not_shown_as_values(agent: GpuAgent, driver: State) -> None:
    driver.set(
        0, utilization=4_294_967_295, temperature=2_147_483_647, memory_used=1 << 60, power=4_000_000.0
    )
    gpu = agent.gpu(0, lambda gpu: reason(gpu.utilization))
    assert [reason(cell) for cell in (gpu.temperature, gpu.memory_used, gpu.power)] == ["error"] * 3
    assert gpu.health == "unreadable"


def test_in_mig_mode_the_utilization_is_undefined_and_not_zero(agent: GpuAgent, driver: State) -> None:
    agent.report()
    driver.set(
        0,
        mig=True,
        memory_used=GIBIBYTE,
        processes=((1, GIBIBYTE // 2, "compute", 3), (1, 1024, "compute", 4)),
    )
    gpu = agent.gpu(0, lambda gpu: gpu.mig is True)
    assert gpu.utilization == Missing("unsupported", "MIG: not defined")
    assert (gpu.memory_used, gpu.health) == (GIBIBYTE, "ok")
    assert isinstance(gpu.processes, list)
    assert [(process.pid, process.memory) for process in gpu.processes] == [(1, GIBIBYTE // 2 + 1024)]


def test_a_machine_of_unified_memory_is_not_shown_with_none(agent: GpuAgent, driver: State) -> None:
    """GB10: memory is not supported and the rest is; nothing is inferred from it."""
    driver.set(
        0, name="NVIDIA GB10", errors={"GetMemoryInfo": 3, "GetMemoryInfo_v2": 3}, processes=((1, GIBIBYTE),)
    )
    gpu = agent.gpu(0, lambda gpu: reason(gpu.memory_used))
    assert (reason(gpu.memory_used), gpu.health, gpu.hidden_memory) == ("unsupported", "ok", 0)
    assert isinstance(gpu.processes, list)


def test_a_board_without_telemetry_is_not_broken(state: State, library: Path) -> None:
    """Jetson: NVML counts it and supports nothing."""
    state.gpus = (StandinGpu(name="Orin (nvgpu)", errors={"*": 3}),)
    with GpuAgent(state, library) as agent:
        gpu = agent.report().gpus[0]
    assert (gpu.health, reason(gpu.temperature), reason(gpu.processes)) == (
        "ok",
        "unsupported",
        "unsupported",
    )


def test_an_older_driver_is_read_by_older_calls(state: State, tmp_path: Path) -> None:
    state.set(0, utilization=55, memory_used=GIBIBYTE, processes=((1, GIBIBYTE),), reasons=0x44)
    with GpuAgent(state, build(tmp_path / "old", is_old=True).parent) as agent:
        gpu = agent.report().gpus[0]
    assert (gpu.health, gpu.utilization, gpu.temperature) == ("ok", 55, 31)
    assert gpu.memory_used == GIBIBYTE + (638 << 20)
    assert gpu.memory_reserved == Missing("unsupported", "counted as used")
    assert gpu.slowdowns == ["sw_power_cap", "hw_thermal_slowdown"]
    assert isinstance(gpu.processes, list)
    assert gpu.processes[0].pid == 1


@pytest.mark.parametrize(
    ("number", "expected", "words"),
    [
        (18, "mismatch", "running jobs keep working"),
        (9, "not_found", "the NVIDIA driver is not loaded"),
        (17, "permission", "device cgroup"),
        (999, "error", "unknown error"),
    ],
)
def test_a_driver_that_does_not_answer_is_told_and_tried_again(
    state: State, library: Path, number: int, expected: str, words: str
) -> None:
    state.errors = {"InitWithFlags": number}
    state.library = "570.124"
    with GpuAgent(state, library) as agent:
        report = agent.report(lambda report: report.trouble)
        assert reason(report.trouble) == expected
        assert words in getattr(report.trouble, "detail", "")
        assert (report.source, report.gpus) == ("none", [])
        assert (report.library == "570.124") == (number == 18)
        state.errors = {}
        state.write()
        assert len(agent.report(lambda report: report.trouble is None).gpus) == 2


def test_rows_outlive_a_driver_that_stops_answering(agent: GpuAgent, driver: State) -> None:
    agent.report()
    driver.errors = {"DeviceGetCount_v2": UNKNOWN, "InitWithFlags": 18}
    driver.write()
    report = agent.report(lambda report: reason(report.trouble) == "mismatch")
    assert [(gpu.health, gpu.name, reason(gpu.utilization)) for gpu in report.gpus] == [
        ("unreadable", gpu.name, "mismatch") for gpu in driver.gpus
    ]


def test_text_that_is_not_utf_8_costs_no_value(agent: GpuAgent, driver: State) -> None:
    driver.path.write_bytes(driver.text().encode().replace(b"RTX A6000", b"RTX \xff6000"))
    agent.agent.ask("refresh")
    gpu = agent.gpu(0, lambda gpu: gpu.name != "NVIDIA RTX A6000")
    assert (gpu.name, gpu.utilization) == ("NVIDIA RTX �6000", 0)


def test_a_machine_without_any_nvidia_part_does_not_look_broken(tmp_path: Path) -> None:
    with GpuAgent(None, None, root=tmp_path) as agent:
        report = agent.report()
    assert (report.source, report.gpus, report.trouble, report.kernel_count) == ("none", [], None, 0)
    assert report.driver == Missing("not_found", "no NVIDIA driver is loaded")


@pytest.mark.parametrize("minor", ["oldest", "newest"])
def test_the_shipped_reader_runs_on_every_python(driver: State, library: Path, minor: str) -> None:
    by_age = sorted(pythons().items(), key=lambda item: int(item[0].partition(".")[2]))
    version, python = by_age[0 if minor == "oldest" else -1]
    environment = {**os.environ, ENVIRONMENT: str(driver.path), "LD_LIBRARY_PATH": str(library)}
    agent = boot(python, env=environment)
    try:
        agent.answer("watch", **SPEC)
        report = agent.section("gpu")
    finally:
        agent.close()
    assert [gpu.health for gpu in report.gpus] == ["ok", "ok"], version
    assert report.gpus[0].processes == []
