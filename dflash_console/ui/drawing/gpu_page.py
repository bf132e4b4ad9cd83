"""All that is known of each GPU, for the host screen."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_console.fleet import HostView
from dflash_console.model import Gpu, GpuProcess, GpuReport, Missing, gpu_key
from dflash_console.ui.drawing.gauges import bar, history
from dflash_console.ui.drawing.gpus import HEALTH_WORDS, model_names
from dflash_console.ui.drawing.line import Ink, Line, Row, cut_left, fits
from dflash_console.ui.drawing.listing import ALL_BY_STATUS, PAGE_LINES, listed
from dflash_console.ui.drawing.page import Pair, heading, long_pair, pairs, value_of
from dflash_console.ui.drawing.unread import lacking
from dflash_console.ui.drawing.words import REASON_WORDS, clock, missing_text, plural, size, span, unit_name

__all__ = ["gpu_section"]

_PROCESS_LINES = 300
"""Of one GPU."""
_COMMAND_CELLS = 40
"""With less room than this, commands stand below their processes and need no title."""


def gpu_section(
    view: HostView, report: GpuReport, width: int, interval: float, host_now: float
) -> list[Line]:
    """The GPUs of a host with history, every field and every process."""
    lack = lacking(view, "gpu", bool(report.gpus))
    if lack is not None:
        return [heading("GPUS", width), Row(width).add("   ").extend([lack]).line()]
    lines = [heading("GPUS", width, model_names(report.gpus) if report.gpus else "none")]
    if report.trouble is not None:
        lines += long_pair("✗", missing_text(report.trouble), width, "bad", cells=2)
    lines += pairs(_driver_pairs(view, report, host_now), width)
    newest = round(view.snapshot.at / interval) if view.snapshot is not None else 0

    def drawn(gpu: Gpu) -> list[Line]:
        samples = view.utilization.get(gpu_key(gpu), ())
        above: list[Line] = [()] if gpu is not report.gpus[0] else []
        return above + _gpu_lines(gpu, samples, newest, width, host_now)

    return lines + listed(report.gpus, drawn, width, PAGE_LINES, ALL_BY_STATUS)


def _driver_pairs(view: HostView, report: GpuReport, host_now: float) -> list[Pair]:
    cells = (("driver", report.driver), ("library", report.library), ("CUDA", report.cuda))
    items = [value_of(word, cell) for word, cell in cells if report.gpus or not isinstance(cell, Missing)]
    if report.source != "none":
        items.append(("read by", report.source, "text"))
    if isinstance(report.kernel_count, Missing):
        items.append(value_of("GPUs on the PCI bus", report.kernel_count))
    elif report.kernel_count or report.gpus:
        items.append(("", f"{plural(report.kernel_count, 'NVIDIA card')} on the PCI bus", "text"))
    else:
        items.append(("", "no NVIDIA card is on the PCI bus", "text"))
    if report.passed_through:
        items.append(("passed through to VMs", str(report.passed_through), "note"))
    if report.read_at is not None and host_now - report.read_at > 5:
        items.append(("values are", f"{span(host_now - report.read_at)} old", "warn"))
    names = sorted({name for names in view.shared.values() for name in names})
    if names:
        items.append(("shared with", ", ".join(names), "note"))
    return items


def _gpu_lines(
    gpu: Gpu, samples: Sequence[int | None], newest: int, width: int, host_now: float
) -> list[Line]:
    row = Row(width).add(f"{gpu.index:>3}  ", "strong")
    row.add(gpu.name if isinstance(gpu.name, str) else REASON_WORDS[gpu.name.missing], "strong")
    row.item(gpu.bus if isinstance(gpu.bus, str) else "bus " + REASON_WORDS[gpu.bus.missing], "dim")
    row.item(gpu.uuid if isinstance(gpu.uuid, str) else "UUID " + REASON_WORDS[gpu.uuid.missing], "faint")
    lines = [row.line()]
    if gpu.health != "ok":
        mark: Ink = "warn" if gpu.health == "attention" else "bad"
        text = HEALTH_WORDS[gpu.health] + (f": {gpu.health_detail}" if gpu.health_detail else "")
        lines += long_pair("▲" if mark == "warn" else "✗", text, width, mark, indent=5, cells=2)
        if gpu.good_at is not None and gpu.health != "attention":
            lines += long_pair(
                "",
                f"last good {clock(gpu.good_at)} UTC, {span(host_now - gpu.good_at)} ago",
                width,
                "dim",
                5,
                2,
            )
    lines.append(_use_line(gpu, samples, newest, width))
    lines += pairs(_value_pairs(gpu), width, indent=5)
    lines += _process_lines(gpu, width, host_now)
    return lines


def _use_line(gpu: Gpu, samples: Sequence[int | None], newest: int, width: int) -> Line:
    row = Row(width).add("     ")
    bars = 24 if width >= 100 else 12
    if isinstance(gpu.utilization, Missing):
        row.field(REASON_WORDS[gpu.utilization.missing], bars + 5, "dim")
    else:
        row.extend(bar(gpu.utilization, bars)).field(f"{gpu.utilization}%", 5, "strong", "right")
    row.add("  ").extend(history(samples, min(max(60, len(samples)), row.room - 16), newest))
    return row.add("  last minute", "faint").line()


def _value_pairs(gpu: Gpu) -> list[Pair]:
    slowed = gpu.slowdowns
    return [
        _bytes("memory", gpu.memory_used, gpu.memory_total),
        _bytes("reserved", gpu.memory_reserved),
        value_of("temperature", gpu.temperature, "°C"),
        _watts(gpu),
        value_of("P-state", gpu.pstate),
        ("slowed by", ", ".join(slowed) or "nothing", "warn" if slowed else "text")
        if isinstance(slowed, list)
        else value_of("slowed by", slowed),
        _of("PCIe", "gen ", gpu.pcie_generation, gpu.pcie_generation_max),
        _of("lanes", "×", gpu.pcie_width, gpu.pcie_width_max),
        value_of("ECC corrected", gpu.ecc_corrected),
        value_of("uncorrected", gpu.ecc_uncorrected, ink="bad" if _is_on(gpu.ecc_uncorrected) else "text"),
        value_of("remap pending", gpu.remap_pending, ink="warn" if _is_on(gpu.remap_pending) else "text"),
        value_of("remap failed", gpu.remap_failed, ink="bad" if _is_on(gpu.remap_failed) else "text"),
        value_of("recovery", gpu.recovery_action, ink="text" if gpu.recovery_action == "none" else "warn"),
        value_of("persistence", gpu.persistence),
        value_of("MIG", gpu.mig),
    ]


def _is_on(value: object) -> bool:
    return not isinstance(value, Missing) and bool(value)


def _bytes(word: str, used: int | Missing, total: int | Missing | None = None) -> Pair:
    if isinstance(used, Missing):
        return value_of(word, used)
    of = f" of {size(total)}" if isinstance(total, int) else ""
    return word, f"{size(used)}{of}", "text"


def _watts(gpu: Gpu) -> Pair:
    if isinstance(gpu.power, Missing):
        return value_of("power", gpu.power)
    text = f"{gpu.power:.0f} W"
    if not isinstance(gpu.power_limit, Missing):
        text += f" of {gpu.power_limit:.0f} W"
        if not isinstance(gpu.power_limit_default, Missing) and gpu.power_limit_default != gpu.power_limit:
            text += f" (default {gpu.power_limit_default:.0f} W)"
    return "power", text, "text"


def _of(word: str, before: str, value: int | Missing, most: int | Missing) -> Pair:
    if isinstance(value, Missing):
        return value_of(word, value)
    return word, f"{before}{value}" + (f" of {most}" if isinstance(most, int) else ""), "text"


# ---- processes


def _process_lines(gpu: Gpu, width: int, host_now: float) -> list[Line]:
    if isinstance(gpu.processes, Missing):
        return long_pair("processes", missing_text(gpu.processes), width, "dim", indent=5)
    if not gpu.processes:
        text = "none"
        if gpu.hidden_memory:
            text = (
                f"{size(gpu.hidden_memory)} in use by processes of another PID namespace, which can't be seen"
            )
        return long_pair("processes", text, width, "warn" if gpu.hidden_memory else "dim", indent=5)
    wide = 20 if width >= 140 else 14
    row = Row(width).add("     ").field("PID", 8, "faint", "right")
    row.add("  ").field("USER", 10, "faint").field("MEMORY", 7, "faint", "right")
    row.add("  ").field("FOR", 12, "faint").field("UNIT", wide, "faint").field("VENV", wide, "faint")
    if row.room >= _COMMAND_CELLS:
        row.add("COMMAND", "faint")
    lines = [row.line()]
    return lines + listed(
        gpu.processes,
        lambda process: _process_row(process, width, wide, host_now),
        width,
        _PROCESS_LINES,
        ALL_BY_STATUS,
    )


def _process_row(process: GpuProcess, width: int, wide: int, host_now: float) -> list[Line]:
    row = Row(width).add("     ").field(str(process.pid), 8, "text", "right")
    row.add("  ").field(process.user if isinstance(process.user, str) else "—", 9, "text").add(" ")
    memory = size(process.memory) if isinstance(process.memory, int) else REASON_WORDS[process.memory.missing]
    row.field(memory, 7, "text", "right").add("  ")
    since = span(host_now - process.started) if not isinstance(process.started, Missing) else "—"
    row.field(since, 11, "dim").add(" ")
    row.field(unit_name(process.unit or "—"), wide - 1, "note" if process.unit else "dim").add(" ")
    row.field(cut_left(process.venv or "—", wide - 1), wide - 1, "text" if process.venv else "dim").add(" ")
    command = process.command if isinstance(process.command, str) else missing_text(process.command)
    if fits(command, row.room):
        return [row.add(command, "dim").line()]
    return [row.line(), *long_pair("", command, width, "dim", indent=7, cells=8)]
