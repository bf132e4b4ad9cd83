"""Reading the GPUs through nvidia-smi, for hosts where NVML can't be loaded. What it prints is parsed by
pure functions.

CSV only: the table's header and the fields' names change between drivers, and its cells are cut off.
"""

from __future__ import annotations

import os
import re
import select
import time

from ..child import Child
from ..section import missing, shortened
from . import health
from .codes import LOST, NO_PERMISSION, NOT_FOUND, NOT_SUPPORTED, RESET_REQUIRED, UNKNOWN, Fault, fault
from .kernel import normal_bus
from .rows import bare_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    Row = dict[str, Any]

__all__ = ["FIELDS", "Smi", "find_smi", "parse_gpus", "parse_processes", "refused_field"]

FIELDS: tuple[str, ...] = (
    "index",
    "uuid",
    "pci.bus_id",
    "name",
    "driver_version",
    "utilization.gpu",
    "memory.total",
    "memory.used",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "pstate",
    "persistence_mode",
    "mig.mode.current",
    "ecc.errors.corrected.volatile.total",
    "ecc.errors.uncorrected.volatile.total",
    "gpu_recovery_action",
)
PROCESS_FIELDS = "gpu_uuid,pid,used_memory"
"""Without process_name: it is not quoted and may hold commas, and /proc knows better."""

FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib", "/opt/bin")
MEBIBYTE = 1 << 20
MOST_INDEX = 9999
MOST_BYTES = 1 << 62
MOST_PID = (1 << 32) - 1
OUTPUT_LIMIT = 8 << 20
GOING = 2.0
"""Seconds in which a killed nvidia-smi ends, unless the driver holds it."""
DEADLINE = 90.0
"""Seconds for one nvidia-smi: longer than the watcher waits until it calls the driver hung."""

SENTINELS = {
    "n/a": NOT_SUPPORTED,
    "not supported": NOT_SUPPORTED,
    "-": NOT_SUPPORTED,
    "": NOT_SUPPORTED,
    "insufficient permissions": NO_PERMISSION,
    "not found": NOT_FOUND,
    "gpu is lost": LOST,
    "gpu requires reset": RESET_REQUIRED,
    "unknown error": UNKNOWN,
    "err!": UNKNOWN,
}
REFUSED = re.compile(r'Field "([^"]+)" is not a valid field')


def refused_field(output: str) -> str | None:
    """The field that this nvidia-smi does not know; one such field makes it refuse the whole query."""
    found = REFUSED.search(output)
    return found.group(1) if found else None


def _cell(text: str) -> Any:
    """The cell's text, or the Fault that its sentinel stands for."""
    number = SENTINELS.get(text.strip().strip("[]").strip().lower())
    return text.strip() if number is None else fault(number)


def _cells(line: str, fields: tuple[str, ...]) -> dict[str, Any] | None:
    """The cells of a line by field; None for another kind of line. Nothing is quoted: commas beyond the
    fields' number belong to the name."""
    parts = [part.strip() for part in line.split(",")]
    excess = len(parts) - len(fields)
    index = _number(parts[0])
    if excess < 0 or index is None or index > MOST_INDEX:
        return None
    at = fields.index("name") if "name" in fields else 0
    parts[at : at + excess + 1] = [", ".join(parts[at : at + excess + 1])]
    return dict(zip(fields, map(_cell, parts)))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


class _Cells:
    """Takes values out of a line's cells and keeps the faults for the verdict."""

    def __init__(self, cells: dict[str, Any]) -> None:
        self._cells = cells
        self.faults: dict[str, Fault] = {}

    def text(self, field: str, name: str) -> Any:
        answer = self._cells.get(field, fault(NOT_SUPPORTED))
        if isinstance(answer, Fault):
            self.faults[name] = answer
            return answer.missing
        return answer

    def number(self, field: str, name: str, most: float, scale: int = 1) -> Any:
        text = self.text(field, name)
        if isinstance(text, dict):
            return text
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if not 0 <= number <= most:
            odd = Fault(UNKNOWN, f"can't be read: {shortened(text, 40)}")
            self.faults[name] = odd
            return odd.missing
        return int(number * scale)

    def flag(self, field: str, yes: str) -> Any:
        text = self.text(field, field)
        return text if isinstance(text, dict) else text == yes


def parse_gpus(output: str, fields: tuple[str, ...], read_at: float) -> tuple[list[Row], str | None]:
    """The rows (model.Gpu's keys, processes not yet in) of `--query-gpu` with `csv,noheader,nounits`, and
    the driver's version. Lines that are no rows (errors, also between good rows) are left out."""
    rows = []
    driver = None
    for line in output.splitlines():
        cells = _cells(line, fields)
        if cells is None:
            continue
        rows.append(_row(cells, read_at))
        if isinstance(cells.get("driver_version"), str):
            driver = cells["driver_version"]
    return rows, driver


def _row(cells: dict[str, Any], read_at: float) -> Row:
    take = _Cells(cells)
    bus = take.text("pci.bus_id", "bus")
    power = take.number("power.draw", "power", 10_000, 1000)
    limit = take.number("power.limit", "power limit", 10_000, 1000)
    pstate = take.text("pstate", "pstate")
    level = _number(pstate[1:]) if isinstance(pstate, str) else None
    action = take.text("gpu_recovery_action", "recovery action")
    mig = take.flag("mig.mode.current", "Enabled")
    row = {
        "index": int(cells["index"]),
        "uuid": take.text("uuid", "uuid"),
        "bus": normal_bus(bus) if isinstance(bus, str) else bus,
        "name": take.text("name", "name"),
        "utilization": take.number("utilization.gpu", "utilization", 100),
        "memory_used": take.number("memory.used", "memory", 1 << 30, MEBIBYTE),
        "memory_total": take.number("memory.total", "memory", 1 << 30, MEBIBYTE),
        "memory_reserved": missing("unsupported", "not told by nvidia-smi"),
        "temperature": take.number("temperature.gpu", "temperature", 200),
        "power": power / 1000 if isinstance(power, int) else power,
        "power_limit": limit / 1000 if isinstance(limit, int) else limit,
        "processes": missing("not_found", "not told by nvidia-smi"),
        "hidden_memory": 0,
        "pstate": missing("unsupported") if level is None or level > 15 else level,
        "persistence": take.flag("persistence_mode", "Enabled"),
        "mig": mig,
        "ecc_corrected": take.number("ecc.errors.corrected.volatile.total", "ECC", 1 << 62),
        "ecc_uncorrected": take.number("ecc.errors.uncorrected.volatile.total", "ECC", 1 << 62),
        "recovery_action": action.lower().replace(" ", "_") if isinstance(action, str) else action,
    }
    if mig is True and isinstance(row["utilization"], dict):
        row["utilization"] = missing("unsupported", "MIG: not defined")
    row["health"], row["health_detail"] = health.judge(take.faults, row)
    row["good_at"] = read_at if any(name not in take.faults for name in health.VITAL) else None
    return row


def parse_processes(output: str) -> dict[str, list[Row]]:
    """GPU UUID -> processes, of `--query-compute-apps=gpu_uuid,pid,used_memory` with
    `csv,noheader,nounits`."""
    found: dict[str, list[Row]] = {}
    for line in output.splitlines():
        parts = [part.strip() for part in line.split(",")]
        pid = _number(parts[1]) if len(parts) == 3 else None
        if pid is not None and pid <= MOST_PID:
            used = _number(parts[2])
            memory: Any = missing("unsupported", "not available")
            if used is not None and used * MEBIBYTE <= MOST_BYTES:
                memory = used * MEBIBYTE
            found.setdefault(parts[0], []).append({"pid": pid, "memory": memory, "kind": "compute"})
    return found


def find_smi() -> str | None:
    """The path of nvidia-smi; None where there is none."""
    for folder in [*os.environ.get("PATH", "").split(":"), *FOLDERS]:
        path = os.path.join(folder, "nvidia-smi")
        if folder.startswith("/") and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


class Smi:
    """Runs nvidia-smi and waits for it: only the reader's child may."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fields = FIELDS
        self._child = Child()

    def read(self, buses: Iterable[str]) -> tuple[list[Row], str | None, dict[str, str] | None]:
        """Rows, driver version, and what keeps nvidia-smi from telling. One lost GPU can make it tell
        nothing of any: then each of `buses` (the kernel's) is asked for by itself."""
        if self._child.is_alive:
            return [], None, missing("hung", f"nvidia-smi (pid {self._child.pid}) can't be killed")
        output, errors = self._query([])
        read_at = round(time.time(), 3)
        rows, driver = parse_gpus(output, self._fields, read_at)
        trouble = None
        if not rows:
            complaint = _first_line(output + "\n" + errors)
            rows, driver = self._read_each(buses, read_at)
            if not driver:
                rows, trouble = [], missing("error", f"nvidia-smi: {complaint}")
        listed, _ = self._run([f"--query-compute-apps={PROCESS_FIELDS}", "--format=csv,noheader,nounits"])
        processes = parse_processes(listed)
        for row in rows:
            if row["good_at"] is not None and isinstance(row["uuid"], str):
                row["processes"] = processes.get(row["uuid"], [])
        return rows, driver, trouble

    def _read_each(self, buses: Iterable[str], read_at: float) -> tuple[list[Row], str | None]:
        rows: list[Row] = []
        driver = None
        for index, bus in enumerate(buses):
            output, errors = self._query(["-i", bus])
            found, version = parse_gpus(output, self._fields, read_at)
            driver = version or driver
            complaint = _first_line(output + "\n" + errors)
            detail = f"nvidia-smi: {complaint}"
            rows += found or [{**bare_row(index, missing("lost", detail), "lost", detail), "bus": bus}]
        return rows, driver

    def _query(self, choice: list[str]) -> tuple[str, str]:
        while True:
            query = f"--query-gpu={','.join(self._fields)}"
            output, errors = self._run([query, "--format=csv,noheader,nounits", *choice])
            refused = refused_field(output + errors)
            if refused not in self._fields:
                return output, errors
            self._fields = tuple(field for field in self._fields if field != refused)

    def _run(self, words: list[str]) -> tuple[str, str]:
        child, output = self._child, b""
        until = time.monotonic() + GOING
        # One that was ended takes a moment to be gone on a busy machine.
        while child.is_alive:
            if time.monotonic() >= until:
                return "", f"the one before it (pid {child.pid}) can't be killed"
            time.sleep(0.01)
        until = time.monotonic() + DEADLINE
        child.start([self._path, *words])
        while True:
            ready, _, _ = select.select(child.fds(), [], [], max(0.0, until - time.monotonic()))
            data = child.read() if ready else None
            if data is None:
                break
            output += data
            if len(output) > OUTPUT_LIMIT:
                child.kill()
                return "", f"more than {OUTPUT_LIMIT} bytes of output"
        if not ready:
            child.kill()
            return "", f"no answer within {DEADLINE:.0f} s"
        return output.decode("utf-8", "replace"), child.errors


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return shortened(lines[0], 200) if lines else "it printed nothing"
