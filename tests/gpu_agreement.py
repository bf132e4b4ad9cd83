"""Compares the agent's GPU reading on this machine with nvidia-smi's, field by field.

python3 tests/gpu_agreement.py [--load SECONDS] [--record DIR] [--costs] [--cpu SECONDS]

Needs a checkout, Python and nvidia-ml-py, nothing else. nvidia-smi is asked between two readings of ours;
each of its values must lie between ours, give or take what the field's own movement allows. Ends with 1 on
a disagreement, 2 when there is nothing to compare with.
"""

from __future__ import annotations

import argparse
import json
import re
import select
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dflash_console.agent.gpu import GpuSection  # noqa: E402 - the checkout is not installed on such a machine
from dflash_console.agent.gpu.codes import slowdown_names  # noqa: E402
from dflash_console.agent.gpu.kernel import normal_bus  # noqa: E402
from dflash_console.agent.gpu.smi import FIELDS as FALLBACK_FIELDS  # noqa: E402
from dflash_console.agent.gpu.smi import parse_processes  # noqa: E402

Row = dict[str, Any]
MEBIBYTE = 1 << 20

LOAD = """
import sys, time, torch
count, seconds = torch.cuda.device_count(), float(sys.argv[1])
pairs = [torch.rand(2, 8192, 8192, device=f"cuda:{index}", dtype=torch.bfloat16) for index in range(count)]
print("ready", flush=True)
until = time.monotonic() + seconds
while time.monotonic() < until:
    for pair in pairs:
        pair[0] @ pair[1]
    for index in range(count):
        torch.cuda.synchronize(index)
"""


class Field(NamedTuple):
    """How one of our fields is compared with one of nvidia-smi's."""

    ours: str
    theirs: str
    read: Callable[[str], Any]
    tolerance: float = 0.0
    """Absolute, in our unit; for what moves between two questions."""


def _mebibytes(text: str) -> int:
    return int(text) * MEBIBYTE


def _enabled(text: str) -> bool:
    return text == "Enabled"


def _yes(text: str) -> bool:
    return text == "Yes"


def _action(text: str) -> str:
    return text.lower().replace(" ", "_")


def _reasons(text: str) -> list[str]:
    return slowdown_names(int(text, 16))


FIELDS = (
    Field("index", "index", int),
    Field("uuid", "uuid", str),
    Field("bus", "pci.bus_id", normal_bus),
    Field("name", "name", str),
    Field("memory_total", "memory.total", _mebibytes, MEBIBYTE),
    Field("memory_used", "memory.used", _mebibytes, 64 * MEBIBYTE),
    Field("memory_reserved", "memory.reserved", _mebibytes, MEBIBYTE),
    Field("utilization", "utilization.gpu", int, 20),
    Field("temperature", "temperature.gpu", int, 3),
    Field("power", "power.draw", float, 60),
    Field("power_limit", "power.limit", float, 0.01),
    Field("power_limit_default", "power.default_limit", float, 0.01),
    Field("pcie_width", "pcie.link.width.current", int),
    Field("pcie_width_max", "pcie.link.width.max", int),
    Field("pcie_generation", "pcie.link.gen.gpucurrent", int),
    Field("pcie_generation_max", "pcie.link.gen.max", int),
    Field("ecc_corrected", "ecc.errors.corrected.volatile.total", int),
    Field("ecc_uncorrected", "ecc.errors.uncorrected.volatile.total", int),
    Field("remap_pending", "remapped_rows.pending", _yes),
    Field("remap_failed", "remapped_rows.failure", _yes),
    Field("recovery_action", "gpu_recovery_action", _action),
    Field("persistence", "persistence_mode", _enabled),
    Field("mig", "mig.mode.current", _enabled),
    Field("pstate", "pstate", lambda text: int(text[1:])),
    Field("slowdowns", "clocks_event_reasons.active", _reasons),
)


class Verdict(NamedTuple):
    """One line of the table."""

    subject: str
    field: str
    ours: object
    theirs: object
    agrees: bool | None
    """None when nvidia-smi does not know the field."""


def say(text: str = "") -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def ask(*words: str) -> str:
    """What nvidia-smi prints; its refusals too."""
    done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


def query(fields: list[str]) -> tuple[str, dict[str, dict[str, str]]]:
    """nvidia-smi's CSV, and its cells by UUID and field; fields that it refuses are left out."""
    while True:
        text = ask(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
        refused = re.search(r'Field "([^"]+)" is not a valid field', text)
        if not refused:
            break
        fields = [field for field in fields if field != refused.group(1)]
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(fields):
            row = dict(zip(fields, cells, strict=True))
            found[row["uuid"]] = row
    return text, found


class Reading:
    """The agent's own section, driven by hand."""

    def __init__(self) -> None:
        self._section = GpuSection()

    def report(self, anew: bool = True) -> Row:
        """The next report."""
        if anew:
            self._section.refresh()
        self._section.tick(time.monotonic())
        before = self._section.value
        while self._section.value is before:
            ready, _, _ = select.select(self._section.fds(), [], [], 60)
            if not ready:
                raise SystemExit("no report within 60 s")
            for fd in ready:
                self._section.ready(fd, time.monotonic())
        value = self._section.value
        assert isinstance(value, dict)
        return value

    @property
    def pid(self) -> int:
        return self._section.pid

    def close(self) -> None:
        self._section.close()


def is_missing(value: object) -> bool:
    return isinstance(value, dict) and "missing" in value


def agrees(field: Field, before: object, after: object, theirs: str) -> bool:
    """Whether a cell of nvidia-smi's lies between two readings of ours."""
    try:
        value = field.read(theirs)
    except ValueError:
        return is_missing(before) and is_missing(after)
    if is_missing(before) or is_missing(after):
        return False
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        low, high = sorted((float(before), float(after)))  # type: ignore[arg-type]
        return low - field.tolerance <= value <= high + field.tolerance
    return value in (before, after)


def compare_gpus(before: Row, after: Row, theirs: dict[str, dict[str, str]]) -> Iterator[Verdict]:
    """Every field of every GPU, and the GPUs themselves."""
    rows = {row["uuid"]: row for row in after["gpus"] if isinstance(row["uuid"], str)}
    olds = {row["uuid"]: row for row in before["gpus"] if isinstance(row["uuid"], str)}
    yield Verdict("all", "uuids", sorted(rows), sorted(theirs), sorted(rows) == sorted(theirs))
    for uuid in sorted(rows.keys() & theirs.keys() & olds.keys()):
        for field in FIELDS:
            cell = theirs[uuid].get(field.theirs)
            ours = rows[uuid][field.ours]
            verdict = None if cell is None else agrees(field, olds[uuid][field.ours], ours, cell)
            yield Verdict(f"GPU {rows[uuid]['index']}", field.ours, ours, cell, verdict)


def compare_processes(before: Row, after: Row, apps: str) -> Iterator[Verdict]:
    """The compute processes of every GPU with their memory."""
    theirs = parse_processes(apps)
    olds = {row["uuid"]: row["processes"] for row in before["gpus"]}
    for row in after["gpus"]:
        ours = {
            process["pid"]: process["memory"] for process in row["processes"] if process["kind"] == "compute"
        }
        old = {process["pid"]: process["memory"] for process in olds.get(row["uuid"], [])}
        listed = {process["pid"]: process["memory"] for process in theirs.get(row["uuid"], [])}
        yield Verdict(
            f"GPU {row['index']}", "pids", sorted(ours), sorted(listed), set(listed) in (set(ours), set(old))
        )
        for pid in sorted(ours.keys() & listed.keys()):
            mine, other = ours[pid], listed[pid]
            same = is_missing(mine) == is_missing(other)
            if same and not is_missing(mine):
                same = abs(mine - other) <= MEBIBYTE
            yield Verdict(f"GPU {row['index']}", f"memory of {pid}", mine, other, same)


def compare_host(after: Row, xml: str) -> Iterator[Verdict]:
    """Driver, CUDA and count by `nvidia-smi -q -x`."""
    tree = ElementTree.fromstring(xml)
    for ours, theirs in (("driver", "driver_version"), ("cuda", "cuda_version")):
        text = tree.findtext(theirs)
        yield Verdict("host", ours, after[ours], text, text == after[ours])
    count = tree.findtext("attached_gpus")
    yield Verdict("host", "GPUs listed", len(after["gpus"]), count, str(len(after["gpus"])) == count)
    say(
        f"source {after['source']}, library {after['library']}, kernel count {after['kernel_count']}, "
        f"passed through {after['passed_through']}, trouble {after['trouble']}"
    )


def short(value: object) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 44 else text[:41] + "..."


def print_table(verdicts: list[Verdict]) -> None:
    say(f"{'':8} {'field':24} {'ours':44} {'nvidia-smi':44} verdict")
    for verdict in verdicts:
        word = {True: "agrees", False: "DISAGREES", None: "not told"}[verdict.agrees]
        cells = f"{short(verdict.ours):44} {short(verdict.theirs):44}"
        say(f"{verdict.subject:8} {verdict.field:24} {cells} {word}")


def print_costs() -> None:
    """What each call costs on GPU 0, in microseconds: median of 200."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    fields = (230, 185, 186, 190, 4, 144, 145)
    calls: dict[str, Callable[[], object]] = {
        "DeviceGetCount": lambda: pynvml.nvmlDeviceGetCount(),
        "GetUtilizationRates": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle),
        "GetMemoryInfo_v2": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2),
        "GetTemperature": lambda: pynvml.nvmlDeviceGetTemperature(handle, 0),
        "GetTemperatureV": lambda: pynvml.nvmlDeviceGetTemperatureV(handle, 0),
        "GetPowerUsage": lambda: pynvml.nvmlDeviceGetPowerUsage(handle),
        "GetPowerManagementLimit": lambda: pynvml.nvmlDeviceGetPowerManagementLimit(handle),
        "ComputeRunningProcesses_v3": lambda: pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle),
        "GraphicsRunningProcesses_v3": lambda: pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(handle),
        "ClocksEventReasons": lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        "PerformanceState": lambda: pynvml.nvmlDeviceGetPerformanceState(handle),
        "CurrPcieLinkWidth": lambda: pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
        "CurrPcieLinkGeneration": lambda: pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        "TotalEccErrors": lambda: pynvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0),
        "RemappedRows": lambda: pynvml.nvmlDeviceGetRemappedRows(handle),
        "PersistenceMode": lambda: pynvml.nvmlDeviceGetPersistenceMode(handle),
        "MigMode": lambda: pynvml.nvmlDeviceGetMigMode(handle),
        "HandleByIndex": lambda: pynvml.nvmlDeviceGetHandleByIndex(0),
        "Name": lambda: pynvml.nvmlDeviceGetName(handle),
        "UUID": lambda: pynvml.nvmlDeviceGetUUID(handle),
        "PciInfo_v3": lambda: pynvml.nvmlDeviceGetPciInfo_v3(handle),
        "all fields": lambda: pynvml.nvmlDeviceGetFieldValues(handle, list(fields)),
    }
    for number in fields:
        calls[f"field {number}"] = lambda number=number: pynvml.nvmlDeviceGetFieldValues(handle, [number])  # type: ignore[misc]
    for name, function in calls.items():
        took = []
        try:
            for _ in range(200):
                began = time.perf_counter()
                function()
                took.append(time.perf_counter() - began)
        except pynvml.NVMLError as error:
            say(f"{name:30} error {error.value}")
            continue
        say(f"{name:30} {sorted(took)[100] * 1e6:8.1f} us, worst {max(took) * 1e6:8.1f}")
    values = pynvml.nvmlDeviceGetFieldValues(handle, list(fields))
    say(
        "fields (id, return, type, uint): "
        + str([(v.fieldId, v.nvmlReturn, v.valueType, v.value.uiVal) for v in values])
    )
    pynvml.nvmlShutdown()


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far, by the scheduler's nanoseconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) if found else 0


def print_cpu(reading: Reading, seconds: int) -> None:
    """CPU per second of the reader and of this process at one report a second."""
    parent, child = time.process_time(), cpu_of(reading.pid)
    for _ in range(seconds):
        began = time.monotonic()
        json.dumps(reading.report(anew=False))
        time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))
    parent, child = time.process_time() - parent, cpu_of(reading.pid) - child
    size = f"{resident(reading.pid) / 1024:.1f} MiB"
    say(f"over {seconds} s at 1 Hz: reader {child / seconds * 1000:.2f} ms/s and {size}")
    say(f"this process {parent / seconds * 1000:.2f} ms/s")


def start_load(seconds: float) -> subprocess.Popen[str] | None:
    """Matrix products on every GPU in a process of their own; None without torch."""
    load = subprocess.Popen([sys.executable, "-c", LOAD, str(seconds)], stdout=subprocess.PIPE, text=True)
    assert load.stdout is not None
    if load.stdout.readline().strip() == "ready":
        time.sleep(3)
        return load
    load.wait()
    say("no load: torch can't use a GPU here")
    return None


def record(folder: Path, outputs: dict[str, str], uuids: list[str]) -> None:
    """Writes the raw outputs; serial numbers are blanked and UUIDs replaced, the same way in every file."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in outputs.items():
        for index, uuid in enumerate(uuids):
            text = text.replace(uuid, f"GPU-00000000-0000-4000-8000-{index:012d}")
        text = re.sub(
            r"<(serial|chassis_serial_number|pdi|gpu_part_number|board_part_number)>[^<]+<", r"<\1>N/A<", text
        )
        (folder / name).write_text(text)


def kernel_texts() -> str:
    """What /proc/driver/nvidia says, and the PCI display devices, as JSON of path to text."""
    paths = [Path("/proc/driver/nvidia/version"), *Path("/proc/driver/nvidia/gpus").glob("*/information")]
    for device in Path("/sys/bus/pci/devices").glob("*"):
        if (device / "vendor").read_text().strip() == "0x10de":
            paths += [device / "vendor", device / "class"]
    return json.dumps({str(path): path.read_text() for path in paths if path.exists()}, indent=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--load", type=float, metavar="SECONDS", help="keep the GPUs busy meanwhile, through torch"
    )
    parser.add_argument("--record", type=Path, metavar="DIR", help="write all raw outputs there")
    parser.add_argument("--costs", action="store_true", help="time each NVML call")
    parser.add_argument("--cpu", type=int, metavar="SECONDS", help="measure CPU and memory of the reader")
    options = parser.parse_args()
    load = start_load(options.load) if options.load else None
    reading = Reading()
    try:
        before = reading.report()
        csv, theirs = query([field.theirs for field in FIELDS])
        after = reading.report()
        if not theirs:
            say(f"nvidia-smi told of no GPU: {csv.strip()[:300]}")
            return 2
        apps = ask("--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits")
        last = reading.report()
        xml = ask("-q", "-x")
        verdicts = [
            *compare_host(after, xml),
            *compare_gpus(before, after, theirs),
            *compare_processes(after, last, apps),
        ]
        print_table(verdicts)
        if options.record:
            outputs = {"report.json": json.dumps(after, indent=1), "query-gpu.csv": csv, "q-x.xml": xml}
            outputs |= {"compute-apps.csv": apps, "kernel.json": kernel_texts()}
            outputs["fallback.csv"] = query(list(FALLBACK_FIELDS))[0]
            record(options.record, outputs, sorted(theirs))
        if options.costs:
            print_costs()
        if options.cpu:
            print_cpu(reading, options.cpu)
    finally:
        reading.close()
        if load is not None:
            load.kill()
            load.wait()
    failed = [verdict for verdict in verdicts if verdict.agrees is False]
    say(f"{len(verdicts) - len(failed)} agree or are not told, {len(failed)} disagree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
