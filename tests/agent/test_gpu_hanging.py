"""A driver that hangs, and a reader that dies: neither takes the agent along, and both are said. The
stand-in hangs as a driver does, in state D."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_console.agent.gpu import GpuSection
from dflash_console.model import GpuReport
from tests.agent.driver import PATIENCE, children_of, is_gone
from tests.agent.gpu_agent import GpuAgent, reason
from tests.nvml import StandinGpu, State, build
from tests.waiting import until_sync


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml")).parent


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state", (StandinGpu(), StandinGpu(utilization=40), StandinGpu(errors={"*": 15})))


@pytest.fixture
def agent(state: State, library: Path) -> Iterator[GpuAgent]:
    with GpuAgent(state, library, hung_after=1.0) as agent:
        agent.report()
        yield agent


def is_hung(report: GpuReport) -> bool:
    return reason(report.trouble) == "hung"


def test_while_an_answer_is_overdue_the_last_report_goes_on_with_its_old_time(
    agent: GpuAgent, state: State
) -> None:
    state.set(1, hangs=("GetTemperature",))
    reports = [agent.report()]
    while not is_hung(reports[-1]):
        reports.append(agent.report())
    waiting = [report for report in reports[:-1] if report == reports[-2]]
    assert len(waiting) > 3
    assert waiting[0].gpus[1].utilization == 40


def test_a_hung_driver_is_said_with_the_process_its_state_and_the_gpu(agent: GpuAgent, state: State) -> None:
    reader = agent.reader
    before = agent.report()
    state.set(1, hangs=("*",))
    report = agent.report(is_hung)
    detail = getattr(report.trouble, "detail", "")
    assert "on GPU 1" in detail
    assert f"pid {reader}, state D" in detail
    assert [gpu.health for gpu in report.gpus] == ["unreadable", "hung", "lost"]
    assert [gpu.name for gpu in report.gpus] == [gpu.name for gpu in before.gpus]
    assert [reason(gpu.utilization) for gpu in report.gpus] == ["hung", "hung", "lost"]
    assert report.gpus[0].health_detail == "not read: the driver hangs on GPU 1"
    assert report.read_at is not None
    assert before.read_at is not None
    assert before.read_at <= report.read_at


def test_no_second_reader_is_started_beside_one_that_hangs_and_it_goes_on_when_the_driver_does(
    agent: GpuAgent, state: State
) -> None:
    reader = agent.reader
    state.set(0, hangs=("*",))
    for _ in range(5):
        agent.report(is_hung)
        assert children_of(agent.pid) == [reader]
    state.set(0, hangs=(), utilization=7)
    report = agent.report(lambda report: report.trouble is None)
    assert (report.gpus[0].health, report.gpus[0].utilization, agent.reader) == ("ok", 7, reader)


def test_a_driver_that_hangs_from_the_start_is_said_too(state: State, library: Path) -> None:
    state.hangs = ("InitWithFlags",)
    with GpuAgent(state, library, hung_after=0.5) as agent:
        report = agent.report()
        assert reason(report.trouble) == "hung"
        assert "state D" in getattr(report.trouble, "detail", "")
        state.hangs = ()
        state.write()
        assert len(agent.report(lambda report: report.trouble is None).gpus) == 3


def test_a_gpu_that_takes_too_long_and_fails_is_left_alone_for_a_while(state: State, library: Path) -> None:
    state.set(1, lines=("hang GetTemperature 0.3", "error GetTemperature 10"))
    quick = "from dflash_console.agent.gpu import device\ndevice.SLUGGISH = 0.2"
    with GpuAgent(state, library, before=quick) as agent:
        gpu = agent.gpu(1, lambda gpu: gpu.health == "hung")
        assert "left alone for 60 s" in gpu.health_detail
        assert reason(gpu.utilization) == "hung"
        first = agent.report()
        later = agent.report(lambda report: report.read_at != first.read_at)
        assert later.gpus[0].health == "ok"


def test_a_reader_that_was_killed_is_said_and_started_again(agent: GpuAgent, state: State) -> None:
    dead = agent.reader
    os.kill(dead, signal.SIGKILL)
    report = agent.report(lambda report: report.trouble)
    assert report.trouble is not None
    assert report.trouble.detail == "the GPU reader was killed by SIGKILL; started again in 1 s"
    assert [gpu.utilization for gpu in report.gpus[:2]] == [0, 40]
    state.set(1, utilization=41)
    report = agent.report(lambda report: report.trouble is None and report.gpus[1].utilization == 41)
    assert agent.reader != dead


@pytest.mark.parametrize("hangs", [False, True])
def test_the_reader_ends_with_the_agent_however_that_ends(agent: GpuAgent, state: State, hangs: bool) -> None:
    reader = agent.reader
    if hangs:
        state.set(0, hangs=("*",))
        agent.report(is_hung)
    os.kill(agent.pid, signal.SIGKILL)
    agent.agent.ended()
    until_sync(lambda: is_gone(reader), PATIENCE, "the reader has ended")


def test_a_driver_that_takes_its_time_to_start_is_said_before_it_counts_as_hung(
    state: State, library: Path
) -> None:
    state.hangs = ("InitWithFlags",)
    soon = "from dflash_console.agent.gpu import section\nsection.PATIENCE = 0.2"
    with GpuAgent(state, library, before=soon) as agent:
        report = agent.report()
        assert (reason(report.trouble), report.gpus) == ("stale", [])
        state.hangs = ()
        state.write()
        agent.report(lambda report: report.trouble is None)


def test_a_machine_that_was_stopped_as_a_whole_is_not_taken_for_a_hung_driver(tmp_path: Path) -> None:
    section = GpuSection(hung_after=60.0, root=str(tmp_path))
    section.configure({"interval": 1.0})
    try:
        section.tick(1000.0)
        answer(section, 1000.1)
        report = section.value
        section.tick(1001.0)
        section.tick(5000.0)
        assert section.value is report
        for second in range(1, 60):
            section.tick(5000.0 + second)
        assert isinstance(section.value, dict)
        assert section.value["trouble"]["missing"] == "hung"
        answer(section, 5060.0)
        assert section.value["trouble"] is None
    finally:
        section.close()


def answer(section: GpuSection, now: float) -> None:
    """Lets the section take the next report."""
    before = section.value
    while section.value is before:
        ready, _, _ = select.select(section.fds(), [], [], PATIENCE)
        assert ready, "the reader has not answered"
        for fd in ready:
            section.ready(fd, now)


class Installed:
    """The library as a driver's package lays it: under its version, with a link by the name that programs
    load."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._built = build(folder / "built")

    def install(self, version: str) -> None:
        copy = self.folder / f"libnvidia-ml.so.{version}"
        copy.write_bytes(self._built.read_bytes())
        link = self.folder / "link"
        link.symlink_to(copy.name)
        link.replace(self.folder / "libnvidia-ml.so.1")


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    installed = Installed(tmp_path / "lib")
    installed.install("580.95.05")
    return installed


def test_a_library_that_was_upgraded_under_a_running_driver_is_told_while_the_values_go_on(
    state: State, installed: Installed
) -> None:
    """What starts now meets a mismatch; what runs, this reader too, works on."""
    with GpuAgent(state, installed.folder) as agent:
        assert agent.report().library == "580.95.05"
        installed.install("590.44.01")
        agent.agent.ask("refresh")
        report = agent.report(lambda report: report.library == "590.44.01")
    assert (report.driver, report.trouble, report.gpus[1].utilization) == ("580.95.05", None, 40)


def test_a_reader_whose_library_does_not_work_and_was_replaced_starts_anew(
    state: State, installed: Installed
) -> None:
    state.errors = {"InitWithFlags": 18}
    with GpuAgent(state, installed.folder) as agent:
        agent.report(lambda report: reason(report.trouble) == "mismatch")
        reader = agent.reader
        installed.install("590.44.01")
        agent.agent.ask("refresh")
        until_sync(lambda: children_of(agent.pid) not in ([], [reader]), PATIENCE, "another reader")
        state.errors = {}
        state.write()
        agent.agent.ask("refresh")
        assert agent.report(lambda report: report.trouble is None).gpus[1].utilization == 40
