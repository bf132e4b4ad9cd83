"""The GPU block: one line a GPU, in columns that are the same on every panel of a width."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from dflash_console.fleet import HostView
from dflash_console.model import Gpu, GpuProcess, GpuReport, Health, Missing, gpu_key
from dflash_console.ui.drawing.gauges import bar, history
from dflash_console.ui.drawing.line import Ink, Line, Piece, Row, columns, cut, flow
from dflash_console.ui.drawing.unread import lacking
from dflash_console.ui.drawing.words import (
    REASON_SHORT,
    REASON_WORDS,
    clock,
    last_part,
    memory_pair,
    missing_text,
    plural,
    size,
    span,
    unit_name,
)

__all__ = ["HEALTH_WORDS", "gpu_block", "is_idle", "model_names", "process_name", "users"]

HEALTH_WORDS: dict[Health, str] = {
    "ok": "ok",
    "attention": "needs attention",
    "lost": "lost",
    "reset_required": "reset required",
    "hung": "hung",
    "unreadable": "unreadable",
}

_SICK: frozenset[Health] = frozenset({"lost", "reset_required", "hung", "unreadable"})
_HEAT = ("thermal", "hw_slowdown", "power_brake")
_EDITION = re.compile(r" (Server|Workstation) Edition$")
_GIB = 1024**3
_NAMED = 32
"""Processes of a GPU whose names are told apart; each one more counts as another."""
_LATE = 5.0
"""Seconds by which a driver's values may lag behind the sample before it is said."""


class _Plan(NamedTuple):
    """Cells of the columns whose width depends on the panel's."""

    bar: int
    history: int
    user: int
    gap: int


def _plan(width: int) -> _Plan:
    """The columns of a panel `width` cells wide inside; index, %, memory, temperature and power are fixed."""
    gap = 2 if width >= 68 else 1
    free = width - (4 + 5 + 10 + 5 + 6 + 3 * gap)
    if free < 20:
        return _Plan(0, max(0, free - 10), 10 - gap, gap)
    user = min(40, max(9, free * 38 // 100))
    bars = min(24, max(5, free * 27 // 100))
    return _Plan(bars, min(60, free - user - bars - gap), user, gap)


def gpu_block(view: HostView, width: int, interval: float, fold: bool) -> list[Line]:
    """The lines about a host's GPUs. With `fold`, neighbours that are idle in the same way share one line."""
    snapshot = view.snapshot
    if snapshot is None:
        return []
    report = snapshot.gpu
    lack = lacking(view, "gpu", bool(report.gpus))
    if lack is not None:
        return [_label(width).extend([lack]).line()]
    lines = _header(view, report, snapshot.at, width)
    if report.trouble is not None:
        lines.append(Row(width).add("     ✗ ", "bad").add(missing_text(report.trouble), "bad").line())
    newest = round(snapshot.at / interval)
    plan = _plan(width)
    for is_folded, group in groupby(report.gpus, key=_folding(report.gpus) if fold else lambda _: None):
        gpus = list(group)
        if is_folded is not None and len(gpus) > 2:
            lines.append(_folded_line(gpus, plan, width))
        else:
            lines.extend(
                _gpu_line(gpu, view.utilization.get(gpu_key(gpu), ()), newest, plan, width) for gpu in gpus
            )
    return lines


def is_idle(gpu: Gpu) -> bool:
    """Whether nothing uses the GPU and nothing is wrong with it."""
    return gpu.health == "ok" and not gpu.utilization and gpu.processes == [] and not gpu.hidden_memory


def model_names(gpus: Sequence[Gpu]) -> str:
    """Which cards there are: `RTX A6000 ×2`."""
    names = Counter(_model(gpu.name) if isinstance(gpu.name, str) else "unnamed" for gpu in gpus)
    return ", ".join(f"{name} ×{count}" for name, count in names.items())


def _model(name: str) -> str:
    return _EDITION.sub("", name.removeprefix("NVIDIA ").removeprefix("GeForce "))


def process_name(process: GpuProcess) -> str:
    """Who a process is, in one word: its unit, else its venv, else its command."""
    if process.unit:
        return unit_name(process.unit)
    if isinstance(process.command, str) and process.command:
        words = process.command.split()
        named = next((words[at + 1] for at, word in enumerate(words[:-1]) if word == "-m"), None)
        script = named or next((word for word in words[1:] if word.endswith(".py")), "".join(words[:1]))
        if name := last_part(script).removesuffix(".py"):
            return name
    return last_part(process.venv) if process.venv else f"pid {process.pid}"


def users(gpu: Gpu, cells: int = 1000) -> tuple[str, Ink]:
    """Who uses a GPU, or the reason why that is not known; a number in it is whole or not there."""
    if isinstance(gpu.processes, Missing):
        return REASON_WORDS[gpu.processes.missing], "dim"
    names = list(dict.fromkeys(process_name(process) for process in gpu.processes[:_NAMED]))
    if names:
        others = len(names) - 1 + max(0, len(gpu.processes) - _NAMED)
        more = f" +{others}" if others else ""
        return cut(names[0], cells - len(more)) + more, "note"
    if gpu.hidden_memory:
        amounts = (size(gpu.hidden_memory), f"{gpu.hidden_memory / _GIB:.0f}G")
        forms = (*(f"{amount} unseen" for amount in amounts), "unseen")
        return next((form for form in forms if len(form) <= cells), forms[-1]), "warn"
    return "idle", "faint"


def _label(width: int) -> Row:
    return Row(width).add("GPU  ", "label")


def _header(view: HostView, report: GpuReport, at: float, width: int) -> list[Line]:
    row = _label(width)
    if report.gpus:
        row.add(model_names(report.gpus), "strong")
    else:
        row.add("none", "dim")
    facts: list[Piece] = [(_shared_words(view, report), "note")]
    if report.passed_through:
        facts.append((f"{report.passed_through} passed through to a VM", "note"))
    if isinstance(report.kernel_count, int) and report.kernel_count > len(report.gpus):
        facts.append((f"PCI bus has {report.kernel_count}", "warn"))
    if report.read_at is not None and at - report.read_at > _LATE:
        facts.append((f"values {span(at - report.read_at)} old", "warn"))
    if isinstance(report.driver, Missing) and report.gpus:
        facts.append((f"driver {REASON_WORDS[report.driver.missing]}", "warn"))
    rows = flow(row, facts, 5)
    if report.source == "nvidia-smi":
        rows[-1].item("by nvidia-smi", "dim")
    if isinstance(report.driver, str):
        rows[-1].item(f"driver {report.driver}", "dim")
    if isinstance(report.cuda, str):
        rows[-1].item(f"CUDA {report.cuda}", "dim")
    return [row.line() for row in rows]


def _shared_words(view: HostView, report: GpuReport) -> str:
    if not view.shared:
        return ""
    names = ", ".join(dict.fromkeys(name for names in view.shared.values() for name in names))
    if len(view.shared) == len(report.gpus):
        return f"shared with {names}"
    return f"{len(view.shared)} shared with {names}"


def _gpu_line(gpu: Gpu, samples: Sequence[int | None], newest: int, plan: _Plan, width: int) -> Line:
    row = Row(width)
    row.add(f"{gpu.index:>3} ", "dim" if gpu.health == "ok" else "warn")
    if gpu.health in _SICK:
        return _sick_line(row, gpu)
    _utilization_cells(row, gpu, plan)
    if plan.history:
        row.add(" " * plan.gap).extend(history(samples, plan.history, newest))
    row.add(" " * plan.gap)
    _memory_cells(row, gpu)
    _heat_cells(row, gpu)
    row.add(" " * plan.gap)
    if gpu.health == "attention":
        row.add("▲ ", "warn").add(gpu.health_detail or HEALTH_WORDS[gpu.health], "warn")
    else:
        name, ink = users(gpu, row.room)
        row.add(name, ink)
    return row.line()


def _sick_line(row: Row, gpu: Gpu) -> Line:
    """A GPU without values: what befell it, and when it last was well."""
    last_good = f"last good {clock(gpu.good_at)}" if gpu.good_at is not None else ""
    row.add("✗ ", "bad").add(HEALTH_WORDS[gpu.health], "alarm")
    space = row.room - (columns(last_good) + 2 if last_good else 0)
    if gpu.health_detail and space > 12:
        detail = Row(space - 2).add(gpu.health_detail, "bad").line()
        row.add("  ").extend(detail)
    row.item(last_good, "dim")
    return row.line()


def _utilization_cells(row: Row, gpu: Gpu, plan: _Plan) -> None:
    value = gpu.utilization
    if isinstance(value, Missing):
        words = REASON_WORDS[value.missing]
        if columns(words) <= plan.bar:
            row.field(words, plan.bar, "dim").field("—", 5, "dim", "right")
        else:
            row.field("", plan.bar).field(REASON_SHORT[value.missing], 5, "dim", "right")
        return
    row.extend(bar(value, plan.bar)).field(f"{value}%", 5, "strong" if value else "dim", "right")


def _memory_cells(row: Row, gpu: Gpu) -> None:
    """Used and total in ten cells, aligned at the stroke between them."""
    used, total = gpu.memory_used, gpu.memory_total
    if isinstance(used, int) and isinstance(total, int):
        shown_used, shown_total = memory_pair(used, total)
        row.field(shown_used, 5, "text", "right").field(shown_total, 5, "dim")
        return
    shown = REASON_SHORT[used.missing] if isinstance(used, Missing) else size(used)
    row.field(shown, 5, "dim", "right")
    row.field(memory_pair(0, total)[1] if isinstance(total, int) else "", 5, "dim")


def _heat_cells(row: Row, gpu: Gpu) -> None:
    """Temperature in five cells and power in six, marked when heat or a power brake slows the card."""
    slowed = isinstance(gpu.slowdowns, list) and any(word in name for name in gpu.slowdowns for word in _HEAT)
    ink: Ink = "warn" if slowed else "text"
    _number(row, gpu.temperature, lambda value: f"{value:.0f}°", 5, ink)
    _number(row, gpu.power, lambda value: f"{value:.0f}W", 6, ink)


def _number(row: Row, value: float | Missing, shown: Callable[[float], str], cells: int, ink: Ink) -> None:
    if isinstance(value, Missing):
        row.field(REASON_SHORT[value.missing], cells, "dim", "right")
    else:
        row.field(shown(value), cells, ink, "right")


# ---- folding


def _folding(gpus: Sequence[Gpu]) -> Callable[[Gpu], object]:
    """A key that is equal for neighbours that may share a line, and None for those that may not."""

    def key(gpu: Gpu) -> object:
        if not is_idle(gpu):
            return None
        missing = [
            value.missing if isinstance(value, Missing) else None
            for value in (gpu.utilization, gpu.memory_used, gpu.temperature, gpu.power)
        ]
        return repr((gpu.name, gpu.memory_total, missing))

    return key


def _folded_line(gpus: Sequence[Gpu], plan: _Plan, width: int) -> Line:
    row = Row(width)
    row.field(f"{gpus[0].index}–{gpus[-1].index}", max(3, plan.bar + 4), "dim")
    row.add(f" {plural(len(gpus), 'card')} idle", "faint").to(9 + plan.bar)
    if plan.history:
        row.to(9 + plan.bar + plan.gap + plan.history)
    row.add(" " * plan.gap)
    hottest = max(gpus, key=lambda gpu: gpu.temperature if isinstance(gpu.temperature, int) else -1)
    fullest = max(gpus, key=lambda gpu: gpu.memory_used if isinstance(gpu.memory_used, int) else -1)
    _memory_cells(row, fullest)
    _number(row, hottest.temperature, lambda value: f"{value:.0f}°", 5, "text")
    most = max(gpus, key=lambda gpu: gpu.power if isinstance(gpu.power, float | int) else -1.0)
    _number(row, most.power, lambda value: f"{value:.0f}W", 6, "text")
    row.add(" " * plan.gap).add("at most", "faint")
    return row.line()
