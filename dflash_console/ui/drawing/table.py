"""The fleet as a table, one line a host, for fleets that are too large for panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dflash_console.findings.picture import is_same_path
from dflash_console.model import Gpu, Missing, Package, Unit
from dflash_console.ui.drawing.copying import copying_words
from dflash_console.ui.drawing.gauges import level
from dflash_console.ui.drawing.line import Line, Row, columns
from dflash_console.ui.drawing.panel import FINDING_MARKS, MARKED
from dflash_console.ui.drawing.unread import is_reading
from dflash_console.ui.drawing.verdict_lines import host_words
from dflash_console.ui.drawing.words import LINK_MARKS, LINK_WORDS, memory_pair, span, unit_state
from dflash_console.ui.scene import HostScene, Moment

__all__ = ["TablePlan", "draw_row", "draw_titles", "plan_table"]

_GPU_CELLS = 8


class TablePlan(NamedTuple):
    """Cells of each column; 0 for one that is left out. What remains goes to the last one, the words."""

    name: int
    hostname: int
    role: int
    version: int
    service: int


def plan_table(hosts: Sequence[HostScene], width: int) -> TablePlan:
    """Columns for these hosts; the wider ones are left out first when there is no room."""
    name = min(20, max([4, *(columns(host.name[:20]) for host in hosts)]))
    hostnames = [host.view.snapshot.host.hostname[:20] for host in hosts if host.view.snapshot is not None]
    hostname = min(20, max([8, *map(columns, hostnames)]))
    if width >= 120:
        return TablePlan(name, hostname, 7, 10, 14)
    if width >= 96:
        return TablePlan(name, 0, 7, 10, 14)
    return TablePlan(name, 0, 7 if width >= 74 else 0, 0, 14 if width >= 90 else 0)


def draw_titles(plan: TablePlan, width: int) -> Line:
    """The line above the table."""
    row = Row(width).add("    ").field("HOST", plan.name, "label")
    for title, cells in (("HOSTNAME", plan.hostname), ("ROLE", plan.role)):
        if cells:
            row.add("  ").field(title, cells, "label")
    row.add("  ").field("GPUS", _GPU_CELLS, "label").add("  USE", "label").add("      MEMORY", "label")
    row.add("  HOT", "label")
    for title, cells in (("SGLANG", plan.version), ("SERVICE", plan.service)):
        if cells:
            row.add("  ").field(title, cells, "label")
    return row.add("  STATE", "label").line()


def draw_row(host: HostScene, plan: TablePlan, width: int, moment: Moment, is_selected: bool) -> Line:
    """A host in one line."""
    view = host.view
    mark, ink = LINK_MARKS[view.link.state]
    row = Row(width).add("▸" if is_selected else " ", "title_on")
    row.add(MARKED if host.is_marked else " ", "accent").add(f"{mark} ", ink)
    is_fresh = view.link.state == "up"
    row.field(view.config.name, plan.name, "title_on" if is_selected else "title" if is_fresh else "dim")
    snapshot = view.snapshot
    if plan.hostname:
        row.add("  ").field(snapshot.host.hostname if snapshot else "—", plan.hostname, "dim")
    if plan.role:
        role = "TARGET" if view.config.production and view.config.role == "target" else view.config.role
        row.add("  ").field(role, plan.role, "dim")
    row.add("  ")
    gpus = snapshot.gpu.gpus if snapshot else []
    _gpu_cells(row, gpus)
    if plan.version:
        row.add("  ").field(_version(host), plan.version, "text" if is_fresh else "dim")
    if plan.service:
        _service_cell(row, snapshot.units if snapshot else [], plan.service)
    _state_words(row.add("  "), host, moment)
    return row.line()


def _gpu_cells(row: Row, gpus: Sequence[Gpu]) -> None:
    """One block a GPU, then mean use, memory of all and the hottest."""
    shown = gpus[:_GPU_CELLS] if len(gpus) <= _GPU_CELLS else gpus[: _GPU_CELLS - 1]
    for gpu in shown:
        if gpu.health not in ("ok", "attention"):
            row.add("✗", "alarm")
        elif isinstance(gpu.utilization, int):
            row.add(level(gpu.utilization), "history" if gpu.utilization else "track")
        else:
            row.add("—", "dim")
    if len(gpus) > len(shown):
        row.add("+", "dim")
    row.add(" " * (_GPU_CELLS - min(len(gpus), _GPU_CELLS)))
    uses = [gpu.utilization for gpu in gpus if isinstance(gpu.utilization, int)]
    row.field(f"{sum(uses) // len(uses)}%" if uses else "—", 5, "strong" if any(uses) else "dim", "right")
    used = sum(gpu.memory_used for gpu in gpus if isinstance(gpu.memory_used, int))
    total = sum(gpu.memory_total for gpu in gpus if isinstance(gpu.memory_total, int))
    shown_used, shown_total = memory_pair(used, total) if total else ("—", "")
    row.field(shown_used, 7, "text", "right").field(shown_total, 5, "dim")
    heats = [gpu.temperature for gpu in gpus if isinstance(gpu.temperature, int)]
    row.field(f"{max(heats)}°" if heats else "—", 5, "text" if heats else "dim", "right")


def _version(host: HostScene) -> str:
    snapshot = host.view.snapshot
    venvs = snapshot.venvs if snapshot is not None else []
    wanted = host.view.config.package_venv
    home = snapshot.host.home if snapshot is not None else ""
    packages = [
        venv.package
        for venv in venvs
        if isinstance(venv.package, Package) and (wanted is None or is_same_path(wanted, venv.path, home))
    ]
    if not packages:
        return "—"
    version = packages[0].version
    return version if not isinstance(version, Missing) else "—"


def _service_cell(row: Row, units: Sequence[Unit], cells: int) -> None:
    """The unit that is worst off."""
    row.add("  ")
    if not units:
        row.field("—", cells, "dim")
        return
    rank = {"alarm": 0, "bad": 1, "warn": 2, "ok": 3}
    mark, ink, word = min((unit_state(unit) for unit in units), key=lambda state: rank.get(state[1], 4))
    row.field(f"{mark} {word}", cells, ink)


def _state_words(row: Row, host: HostScene, moment: Moment) -> None:
    view = host.view
    if (copied := copying_words(host.goings)) is not None:
        row.extend([copied]).add("  ")
    if (proved := host_words(host.verdicts)) is not None:
        row.extend([proved]).add("  ")
    if view.link.state != "up":
        _, ink = LINK_MARKS[view.link.state]
        row.add(LINK_WORDS[view.link.state], ink)
        if view.heard is not None:
            row.add(f" {span(moment.mono - view.heard)}", "dim")
        row.add(f"  {' '.join(view.link.detail.split())}", "dim")
    elif host.findings:
        worst = host.findings[0]
        mark, ink = FINDING_MARKS[worst.level]
        row.add(f"{mark} ", ink).add(f"+{len(host.findings) - 1} " if len(host.findings) > 1 else "", "dim")
        row.add(worst.text, ink)
    elif is_reading(view):
        row.add("reading", "dim")
    elif proved is None or proved[1] == "ok":
        row.add("ok", "ok")
