"""Whatever a limit leaves out is said, one beyond each limit and not at it; the configured come before the found."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from dflash_console import bounds
from dflash_console.agent import paths as paths_module
from dflash_console.agent import procs, slot
from dflash_console.agent.gpu import calls, processes, rows, smi
from dflash_console.agent.gpu.codes import INSUFFICIENT_SIZE, Fault
from dflash_console.agent.gpu.processes import MOST_PROCESSES, keep_biggest
from dflash_console.agent.gpu.rows import MOST_ROWS, Rows
from dflash_console.agent.gpu.smi import FIELDS, Smi, parse_gpus, parse_processes
from dflash_console.agent.paths import PathSection
from dflash_console.agent.redact import LIMIT, redact, redact_text
from dflash_console.agent.section import shortened
from dflash_console.agent.units import UnitSection
from dflash_console.agent.units import inspector as unit_inspect
from dflash_console.agent.units import manager as unit_manager
from dflash_console.agent.units import section as unit_section
from dflash_console.agent.units import show as unit_show
from dflash_console.agent.units.bus import Bus
from dflash_console.agent.units.inspector import _running_interpreter, inspect_unit
from dflash_console.agent.units.text import describe_unit, refusal
from dflash_console.agent.venvs import VenvSection
from dflash_console.agent.venvs import search as venv_search
from dflash_console.agent.venvs import section as venvs
from dflash_console.agent.venvs.distributions import Distributions
from dflash_console.agent.venvs.look import Look
from dflash_console.model import Gpu
from tests.agent.environments import make_venv
from tests.agent.gpu_agent import GpuAgent
from tests.agent.systemctl import RUN, STOPPED, Systemctl, configured, read
from tests.agent.test_gpu_rows import good
from tests.agent.test_gpu_smi import cells
from tests.agent.test_units_inspect import Server, block, server, venv
from tests.agent.venv_loop import Loop, home, loop
from tests.nvml import StandinGpu, State, build, write_smi
from tests.waiting import until_sync

__all__ = ["home", "loop", "server", "venv"]


def test_no_section_sends_more_than_the_console_takes() -> None:
    assert MOST_ROWS <= bounds.MOST_GPUS
    assert MOST_PROCESSES <= bounds.MOST_PROCESSES
    assert venvs.ITEMS_LIMIT <= bounds.MOST_ITEMS
    assert paths_module.ITEMS_LIMIT <= bounds.MOST_ITEMS
    of_both_managers = 2 * unit_show.FOUND_LIMIT
    assert unit_section.NAMES_LIMIT + of_both_managers <= bounds.MOST_ITEMS


# ---- GPUs


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml")).parent


@pytest.mark.parametrize(
    ("count", "note"), [(MOST_ROWS, ""), (MOST_ROWS + 1, f"1 more GPUs not shown (limit {MOST_ROWS})")]
)
def test_gpus_beyond_the_limit_are_counted_in_a_note(
    tmp_path: Path, library: Path, count: int, note: str
) -> None:
    with GpuAgent(State(tmp_path / "state", (StandinGpu(),) * count), library) as agent:
        report = agent.report()
        assert len(report.gpus) == MOST_ROWS
        assert {gpu.health for gpu in report.gpus} == {"ok"}
        if note:
            assert agent.agent.note().text == note


def test_of_too_many_processes_those_with_the_most_memory_are_shown(tmp_path: Path, library: Path) -> None:
    memory = [(pid * 7919) % 4096 for pid in range(1, MOST_PROCESSES + 4)]
    listed = tuple((100_000 + pid, size << 20) for pid, size in enumerate(memory))
    gpus = (StandinGpu(processes=listed[:MOST_PROCESSES]), StandinGpu(processes=listed))
    with GpuAgent(State(tmp_path / "state", gpus), library) as agent:
        report = agent.report()
        note = agent.agent.note()
    assert [len(shown(gpu)) for gpu in report.gpus] == [MOST_PROCESSES, MOST_PROCESSES]
    kept = sorted(memory, reverse=True)[:MOST_PROCESSES]
    assert sorted((size for _, size in shown(report.gpus[1])), reverse=True) == [size << 20 for size in kept]
    assert shown(report.gpus[1]) == sorted(shown(report.gpus[1]))
    assert (note.section, note.text) == ("gpu", f"GPU 1: 3 more processes not shown (limit {MOST_PROCESSES})")


def shown(gpu: Gpu) -> list[tuple[int, int]]:
    assert isinstance(gpu.processes, list)
    return [(process.pid, process.memory) for process in gpu.processes if isinstance(process.memory, int)]


def test_a_process_whose_memory_is_unknown_counts_as_the_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MOST_PROCESSES", 2)
    found: list[dict[str, Any]] = [
        {"pid": 3, "memory": {"missing": "unsupported"}},
        {"pid": 2, "memory": 0},
        {"pid": 1, "memory": 5},
    ]
    row = {"index": 0, "processes": found}
    assert keep_biggest([row, {"index": 1, "processes": {"missing": "error"}}]) == [
        "GPU 0: 1 more processes not shown (limit 2)"
    ]
    assert row["processes"] == [found[2], found[1]]


def test_a_list_of_processes_that_no_driver_can_have_is_an_error() -> None:
    asked = []

    def endless(handle: object, count: Any, room: object) -> int:
        asked.append(count._obj.value)
        count._obj.value = calls.MOST_LISTED + 1
        return INSUFFICIENT_SIZE

    def stubborn(handle: object, count: Any, room: object) -> int:
        asked.append(count._obj.value)
        return INSUFFICIENT_SIZE

    for function, times in ((endless, 1), (stubborn, calls.TRIES)):
        asked.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pynvml, "_nvmlGetFunctionPointer", lambda name, answer=function: answer)
            told = calls.call(calls.ProcessList("nvmlDeviceGetComputeRunningProcesses_v3"), None)
        assert isinstance(told, Fault)
        assert len(asked) == times


def test_a_driver_that_names_its_gpus_anew_each_time_fills_no_memory() -> None:
    kept = Rows()
    for number in range(2 * rows.MOST_GOOD):
        kept.keep([{**good(0), "uuid": f"GPU-{number}", "bus": f"0000:{number:02x}:00.0"}], [], None)
    assert len(kept._good) == rows.MOST_GOOD
    assert len(kept.all_without_values(None, {"missing": "hung", "detail": "x"})) == MOST_ROWS


def test_what_nvidia_smi_prints_without_end_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smi, "OUTPUT_LIMIT", 1 << 16)
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec yes\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    found, driver, trouble = Smi(str(tmp_path / "nvidia-smi")).read([])
    assert (found, driver) == ([], None)
    assert trouble == {"missing": "error", "detail": "nvidia-smi: more than 65536 bytes of output"}


@pytest.mark.parametrize("is_stuck", [False, True])
def test_an_nvidia_smi_that_is_slow_to_go_is_waited_for_and_one_that_stays_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stuck: bool
) -> None:
    """No signal reaches it: one ends a little later by its closed pipe, the other one does not mind that."""
    monkeypatch.setattr(smi, "OUTPUT_LIMIT", 1 << 16)
    monkeypatch.setattr(smi, "GOING", 0.05 if is_stuck else 30.0)
    text = "trap '' PIPE; while :; do echo y; done 2>/dev/null" if is_stuck else "exec yes"
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{text}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    reader = Smi(str(tmp_path / "nvidia-smi"))
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "kill", lambda *_: None)
            patch.setattr(os, "killpg", lambda *_: None)
            _, _, trouble = reader.read([])
        assert trouble == {"missing": "error", "detail": "nvidia-smi: more than 65536 bytes of output"}
        assert reader._child.is_alive or not is_stuck
    finally:
        reader._child.kill()


@pytest.mark.parametrize("odd", ["²", "9" * 5000, "-1", "1e3", "٣", "10000"])
def test_numbers_that_no_console_takes_are_no_numbers(odd: str) -> None:
    assert parse_gpus(cells(index=odd) + "\n", FIELDS, 1.0)[0] == []
    (row,), _ = parse_gpus(cells(pstate=f"P{odd}") + "\n", FIELDS, 1.0)
    assert row["pstate"] == {"missing": "unsupported", "detail": ""}
    listed = parse_processes(f"GPU-0, 7, {odd}\nGPU-0, {odd}, 1\n")["GPU-0"]
    assert listed[0]["pid"] == 7
    assert all(process["pid"] in (7, 10000) for process in listed)


def test_gpus_beyond_the_limit_of_nvidia_smi_are_counted_in_a_note(tmp_path: Path) -> None:
    lines = "".join(cells(index=str(number), uuid=f"GPU-{number}") + "\n" for number in range(MOST_ROWS + 2))
    write_smi(tmp_path / "bin", {"compute-apps": (0, ""), "query-gpu": (0, lines)})
    with GpuAgent(None, None, programs=tmp_path / "bin", root=tmp_path) as agent:
        assert len(agent.report().gpus) == MOST_ROWS
        assert agent.agent.note().text == f"2 more GPUs not shown (limit {MOST_ROWS})"


# ---- environments


def test_environments_that_were_found_and_are_not_shown_are_counted_in_a_note(
    loop: Loop, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venv_search, "VENVS_LIMIT", 2)
    for name in "abc":
        make_venv(home / name)
    make_venv(tmp_path / "config")
    loop.configure(tmp_path / "config", home / "c")
    found = loop.first()
    assert [(os.path.basename(row.path), row.source) for row in found] == [
        ("config", "config"),
        ("c", "config"),
        ("a", "found"),
        ("b", "found"),
    ]
    assert loop.section.note == "1 more venvs not shown (limit 2): name them in the config"
    (home / "b" / "pyvenv.cfg").unlink()
    loop.section.refresh()
    loop.until(lambda rows: not loop.section.note, "that none is left out")


def test_of_too_many_environments_the_configs_come_first_then_the_units(
    loop: Loop, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venvs, "ITEMS_LIMIT", 3)
    for folder in (home / "found", tmp_path / "unit", tmp_path / "one", tmp_path / "two"):
        make_venv(folder)
    loop.configure(tmp_path / "one", tmp_path / "two")
    loop.section.add_interpreters([str(tmp_path / "unit")])
    assert [row.source for row in loop.first()] == ["config", "config", "unit"]
    assert loop.section.note == "1 more venvs not shown (limit 3)"
    loop.section.add_interpreters([])
    loop.until(lambda rows: [row.source for row in rows] == ["config", "config", "found"], "the found one")
    assert loop.section.note == ""


@pytest.mark.parametrize("ending", ["hangs", "dies"])
def test_a_search_that_hangs_or_dies_is_said(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(venvs, "STALL", 4.0)

    def spoilt(channel: object) -> None:
        if ending == "dies":
            raise MemoryError("no memory")
        os.read(os.pipe()[0], 1)

    monkeypatch.setattr(venvs, "search", spoilt)
    loop.configure()
    assert loop.first() == []
    assert (
        loop.section.note
        == {
            "hangs": "the search for venvs hung for 4 s: name them in the config",
            "dies": "the search for venvs failed (MemoryError: no memory): name them in the config",
        }[ending]
    )


# ---- units


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    made = Systemctl(tmp_path, monkeypatch)
    # Only the notes of limits are looked for.
    monkeypatch.setattr(Bus, "is_live", True, raising=False)
    monkeypatch.setattr(Bus, "tick", lambda *_: None)
    monkeypatch.setattr(Bus, "__init__", lambda *_: None)
    for name in ("fds", "ready"):
        monkeypatch.setattr(Bus, name, lambda *_: [])
    for name in ("watch", "close"):
        monkeypatch.setattr(Bus, name, lambda *_, **__: None)
    return made


@pytest.fixture
def section() -> Iterator[UnitSection]:
    made = UnitSection()
    yield made
    made.close()


def install(systemctl: Systemctl, *names: str) -> None:
    (systemctl.folder / "files").mkdir(exist_ok=True)
    template = (systemctl.folder / "units" / STOPPED).read_text()
    for name in names:
        (systemctl.folder / "files" / name).touch()
        (systemctl.folder / "units" / name).write_text(template.replace(STOPPED, name))


def test_units_that_globs_find_beyond_the_limit_are_counted_in_a_note(
    systemctl: Systemctl, section: UnitSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_manager, "FOUND_LIMIT", 3)
    monkeypatch.setattr(unit_show, "FOUND_LIMIT", 3)
    install(systemctl, "g-1.service", "g-2.service", "g-3.service")
    found = read(configured(section, "g-*", RUN), 0.0)
    assert [row.name for row in found] == ["g-1.service", "g-2.service", "g-3.service", RUN]
    assert section.note == ""
    install(systemctl, "g-0.service", "g-4.service")
    found = read(configured(section, "g-*", RUN, "g-4.service"), 10.0)
    assert [row.name for row in found] == ["g-0.service", "g-1.service", "g-2.service", RUN, "g-4.service"]
    assert section.note == "1 more units not shown (limit 3): name them in the config"
    # Also between two looks at the files.
    assert [row.name for row in read(section, 20.0)] == [row.name for row in found]
    assert section.note == "1 more units not shown (limit 3): name them in the config"


def test_loaded_units_beyond_the_limit_are_left_out_too(
    systemctl: Systemctl, section: UnitSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_manager, "FOUND_LIMIT", 2)
    names = [f"g-{number}.service" for number in range(5)]
    install(systemctl, *names)
    (systemctl.folder / "files").rename(systemctl.folder / "no-files")
    script = systemctl.folder / "bin" / "systemctl"
    # As systemctl does: a glob stands for the loaded units that match.
    loaded = " ".join(f"units/{name}" for name in names)
    script.write_text(
        script.read_text().replace(
            "*'*'*) continue", f"*'*'*) for u in {loaded}; do cat $u; echo; done; continue"
        )
    )
    assert [row.name for row in read(configured(section, "g-*"), 0.0)] == names[:2]
    assert section.note == "3 more units not shown (limit 2): name them in the config"


def test_configured_units_beyond_the_limit_are_counted_in_a_note(
    systemctl: Systemctl, section: UnitSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_section, "NAMES_LIMIT", 2)
    assert [row.name for row in read(configured(section, RUN, STOPPED, RUN), 0.0)] == [RUN, STOPPED]
    assert section.note == ""
    found = read(configured(section, RUN, STOPPED, "a.service", "user:b.service"), 10.0)
    assert [row.name for row in found] == [RUN, STOPPED]
    assert section.note == "2 more units not shown (limit 2)"


def test_a_unit_with_more_processes_than_are_looked_at_does_not_say_that_nothing_listens(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / "x.service"
    group.mkdir()
    monkeypatch.setattr(unit_inspect, "CGROUP_ROOTS", (str(tmp_path),))
    unit = block(f"/x --port {server.port}", pid=os.getpid(), ControlGroup="/x.service")
    (group / "cgroup.procs").write_text("0\n1\n")
    assert inspect_unit(unit)["listening"] is False
    (group / "cgroup.procs").write_text(f"0\n1\n{server.pid}\n")
    assert inspect_unit(unit)["listening"] is True
    monkeypatch.setattr(unit_inspect, "PROCESS_LIMIT", 2)
    assert inspect_unit(unit)["listening"] is None


@pytest.mark.parametrize("limit", ["TABLE_LIMIT", "DESCRIPTOR_LIMIT"])
def test_a_table_that_was_not_read_to_its_end_leaves_listening_open(
    server: Server, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(unit_inspect, limit, 1)
    assert inspect_unit(block(f"/x --port {server.port}", pid=server.pid))["listening"] is None


def test_a_command_line_that_was_read_in_part_names_no_port(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = block("/opt/v/bin/sglang serve", pid=server.pid)
    assert inspect_unit(unit)["port"] == 30000
    monkeypatch.setattr(procs, "COMMAND_LIMIT", 40)
    monkeypatch.setattr(procs, "_cache", {})
    told = inspect_unit(unit)
    assert told["port"] == {"missing": "error", "detail": "the command line is too long to be read whole"}
    assert told["listening"] is None


# ---- paths


def test_paths_beyond_the_limit_are_counted_in_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths_module, "ITEMS_LIMIT", 2)
    section = PathSection()

    def look() -> object:
        section.tick(0.0)
        for fd in section.fds():
            section.ready(fd, 0.0)
        return section.value

    try:
        section.configure({"paths": ["/a", "/b", "/c", "/a"]})
        assert section.note == "", "a note without a value would have that sent"
        value = until_sync(look, 30, "a value")
        assert [row["path"] for row in value] == ["/a", "/b"]  # type: ignore[attr-defined]
        assert section.note == "1 more paths not shown (limit 2)"
        section.configure({"paths": ["/a", "/b", "/a"]})
        assert section.note == ""
    finally:
        section.close()


# ---- text


def test_text_that_was_cut_ends_with_an_ellipsis() -> None:
    assert (shortened("abcd", 4), shortened("abcde", 4)) == ("abcd", "abc…")
    words = "x " * 2000
    assert redact(words.split()) == redact_text(words) == words[: LIMIT - 1] + "…"
    long = "x" * 5000
    assert refusal("@" + long).endswith("x…")
    unit = {"Id": "x", "Description": long, "LoadState": "error", "LoadError": f'name "{long}"'}
    told = describe_unit(unit, monotonic=0.0, epoch=0.0)
    assert told["description"] == told["problem"] == "x" * 399 + "…"


def test_what_metadata_says_at_length_ends_with_an_ellipsis(tmp_path: Path) -> None:
    folder = tmp_path / "sglang-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Version: {'9' * 500}\n")
    (folder / "direct_url.json").write_text(f'{{"url": "https://host/{"x" * 5000}"}}')
    found = Distributions([str(tmp_path)], Look())
    assert found.version("sglang") == "9" * 99 + "…"
    direct = found.direct_url("sglang")
    assert direct is not None
    assert (len(direct[0]), direct[0][-1]) == (1000, "…")


# ---- faults and processes


def test_when_no_more_faults_of_a_section_are_told_that_is_said() -> None:
    section = slot.Slot("venvs", VenvSection)

    def fail(number: int) -> None:
        with section.guard(0.0):
            raise ValueError(f"fault {number}")

    for number in range(slot.FAULTS_LIMIT):
        fail(number)
    assert len(section.faults) == slot.FAULTS_LIMIT
    assert not any(slot.MORE_FAULTS in text for text in section.faults)
    for number in (1, 1000, 1001, 1002):
        fail(number)
    assert len(section.faults) == slot.FAULTS_LIMIT + 1
    assert section.faults[-1].startswith("ValueError: fault 1000 (")
    assert section.faults[-1].endswith(slot.MORE_FAULTS)


@pytest.mark.parametrize(("more", "copies"), [(0, 1), (0, 40), (1, 1)])
def test_folders_of_a_path_that_are_not_looked_at_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, copies: int
) -> None:
    monkeypatch.setattr(procs, "SEARCH_LIMIT", 8)
    make_venv(tmp_path / "venv")
    others = [f"/nowhere/{number}/bin" for number in range(7 + more)]
    path = ":".join([*others * copies, "relative/bin", "/nowhere/else", f"{tmp_path}/venv/bin"])
    program = tmp_path / "venv/bin/python"
    with subprocess.Popen(
        ["python", "-c", "import time; time.sleep(1000)"], executable=program, env={"PATH": path}
    ) as process:
        try:
            facts = until_sync(lambda: _python(process.pid), 30, "it runs as python")
        finally:
            process.kill()
    assert facts is not None
    assert (facts["venv"], facts["unsearched"]) == ((None, 1) if more else (f"{tmp_path}/venv", 0))
    enricher = processes.Enricher(lambda pid: facts, started=lambda pid: 1)
    enricher.add([{"index": 0, "processes": [{"pid": 7}]}], 0.0)
    told = "process 7: its environment is not known, 1 more folders on its PATH not looked at"
    assert enricher.notes == ([told] if more else [])
    first, _ = _running_interpreter(facts)
    assert isinstance(first, dict) == bool(more)


def _python(pid: int) -> dict[str, Any] | None:
    facts = procs.read_process(pid)
    return facts if facts is not None and facts["argv"][:1] == ["python"] else None
