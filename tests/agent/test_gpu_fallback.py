"""A host whose NVML can't be loaded is read by nvidia-smi, and by NVML again as soon as that works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.agent.driver import PATIENCE, children_of, is_gone
from tests.agent.gpu_agent import GpuAgent, reason
from tests.agent.test_gpu_kernel import Tree
from tests.nvml import StandinGpu, State, build, write_smi
from tests.waiting import until_sync

LINE = (
    "{index}, GPU-{index}, 00000000:0{bus}:00.0, NVIDIA RTX A6000, 580.95.05, 52, 49140, 1024, 64, 288.50, "
    "300.00, P2, Enabled, [N/A], [N/A], [N/A]{action}\n"
)
REFUSED = 'Field "gpu_recovery_action" is not a valid field to query.\n'
HANDLE_LOST = "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error\n"


def line(index: int, action: str = ", None") -> str:
    return LINE.format(index=index, bus=index + 1, action=action)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    return tmp_path / "bin"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path / "root")
    for place in (1, 2):
        tree.device(f"0000:0{place}:00.0", driver=None)
    return tree


def test_without_nvml_the_values_come_from_nvidia_smi(programs: Path, tree: Tree) -> None:
    write_smi(
        programs,
        {"compute-apps": (0, f"GPU-1, {os.getpid()}, 1000\n"), "query-gpu": (0, line(0) + line(1))},
    )
    with GpuAgent(None, None, programs=programs, root=tree.root) as agent:
        report = agent.report()
    assert (report.source, report.driver, report.trouble, report.kernel_count) == (
        "nvidia-smi",
        "580.95.05",
        None,
        2,
    )
    assert [(gpu.index, gpu.utilization, gpu.health) for gpu in report.gpus] == [(0, 52, "ok"), (1, 52, "ok")]
    assert report.gpus[0].processes == []
    processes = report.gpus[1].processes
    assert isinstance(processes, list)
    assert (processes[0].pid, processes[0].memory) == (os.getpid(), 1000 << 20)
    assert isinstance(processes[0].command, str)


def test_an_older_nvidia_smi_is_asked_without_the_field_that_it_refuses(programs: Path, tree: Tree) -> None:
    write_smi(
        programs,
        {
            "gpu_recovery_action": (2, REFUSED),
            "compute-apps": (0, ""),
            "query-gpu": (0, line(0, "") + line(1, "")),
        },
    )
    with GpuAgent(None, None, programs=programs, root=tree.root) as agent:
        report = agent.report()
    assert [(gpu.utilization, reason(gpu.recovery_action)) for gpu in report.gpus] == [
        (52, "unsupported")
    ] * 2


def test_one_lost_card_does_not_hide_the_others(programs: Path, tree: Tree) -> None:
    """nvidia-smi then tells of no card at all, unless each is asked for by itself."""
    write_smi(
        programs,
        {
            "-i 0000:01:00.0": (0, line(0)),
            "-i 0000:02:00.0": (15, HANDLE_LOST),
            "compute-apps": (15, HANDLE_LOST),
            "query-gpu": (15, HANDLE_LOST),
        },
    )
    with GpuAgent(None, None, programs=programs, root=tree.root) as agent:
        gpus = agent.report().gpus
    assert [(gpu.bus, gpu.health) for gpu in gpus] == [("0000:01:00.0", "ok"), ("0000:02:00.0", "lost")]
    assert "Unknown Error" in gpus[1].health_detail


def test_a_driver_that_nvidia_smi_can_t_reach_is_told_in_its_words(programs: Path, tree: Tree) -> None:
    words = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    write_smi(programs, {"--query": (9, words + "\n")})
    with GpuAgent(None, None, programs=programs, root=tree.root) as agent:
        report = agent.report()
    assert (reason(report.trouble), getattr(report.trouble, "detail", "")) == (
        "error",
        f"nvidia-smi: {words}",
    )
    assert [(gpu.bus, gpu.health) for gpu in report.gpus] == [
        ("0000:01:00.0", "unreadable"),
        ("0000:02:00.0", "unreadable"),
    ]


def test_nvml_takes_over_as_soon_as_it_can_be_loaded(programs: Path, tmp_path: Path) -> None:
    write_smi(programs, {"compute-apps": (0, ""), "query-gpu": (0, line(0))})
    libraries = tmp_path / "lib"
    libraries.mkdir()
    state = State(tmp_path / "state", (StandinGpu(uuid="GPU-0"),))
    with GpuAgent(state, libraries, programs=programs, root=tmp_path) as agent:
        assert agent.report().source == "nvidia-smi"
        build(libraries)
        agent.agent.ask("refresh")
        report = agent.report(lambda report: report.source == "nvml")
    assert [(gpu.uuid, gpu.utilization) for gpu in report.gpus] == [("GPU-0", 0)]


def test_an_nvidia_smi_that_hangs_is_said_and_ends_with_the_agent(programs: Path, tmp_path: Path) -> None:
    programs.mkdir()
    (programs / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 1000\n")
    (programs / "nvidia-smi").chmod(0o755)
    with GpuAgent(None, None, programs=programs, root=tmp_path, hung_after=0.3) as agent:
        report = agent.report(lambda report: reason(report.trouble) == "hung")
        (stuck,) = children_of(agent.reader)
        assert f"pid {stuck}, state S" in getattr(report.trouble, "detail", "")
    until_sync(lambda: is_gone(stuck), PATIENCE, "nvidia-smi has ended")
