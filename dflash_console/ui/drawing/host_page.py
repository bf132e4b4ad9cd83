"""The host screen: everything that is known of one host, in sections."""

from __future__ import annotations

from dflash_console.fleet import HostView
from dflash_console.model import (
    Copied,
    Filesystem,
    Finding,
    HostInfo,
    Missing,
    Origin,
    Package,
    PathInfo,
    Unit,
    Venv,
)
from dflash_console.ui.drawing.copying import copying_block
from dflash_console.ui.drawing.gpu_page import gpu_section
from dflash_console.ui.drawing.line import Line, Piece, Row, fade
from dflash_console.ui.drawing.listing import ALL_BY_STATUS, PAGE_LINES, listed
from dflash_console.ui.drawing.page import Pair, heading, long_pair, pairs, titled, value_of
from dflash_console.ui.drawing.panel import FINDING_MARKS, link_lines, next_try
from dflash_console.ui.drawing.places import path_facts
from dflash_console.ui.drawing.services import no_units, unit_facts
from dflash_console.ui.drawing.unread import lacking
from dflash_console.ui.drawing.venvs import copied_words, module_mark, package_words
from dflash_console.ui.drawing.verdict_lines import verdict_line, verdict_on
from dflash_console.ui.drawing.words import (
    LINK_MARKS,
    LINK_WORDS,
    REASON_WORDS,
    age,
    clock,
    exit_words,
    latency,
    missing_text,
    share,
    size,
    span,
    unit_state,
)
from dflash_console.ui.scene import HostScene, Moment
from dflash_console.verdict import Verdict

__all__ = ["draw_host_page"]

_NO_LIMIT = 1000
_MODULE_LINES = 200


def draw_host_page(host: HostScene, width: int, moment: Moment) -> list[Line]:
    """All sections about a host, `width` cells wide."""
    view = host.view
    lines = copying_block(host.goings, width, moment.wall)
    lines += link_lines(view, width, moment, _NO_LIMIT)
    for finding in host.findings:
        if finding.code == view.link.state and finding.next_step:
            lines += long_pair("→", finding.next_step, width, "text", indent=0, cells=2)
    if lines:
        lines.append(())
    lines += _findings(host, width)
    snapshot = view.snapshot
    if snapshot is not None:
        body = [*gpu_section(view, snapshot.gpu, width, moment.interval, snapshot.at), ()]
        body += [heading("ENVIRONMENTS", width), *_venvs(host, width, moment.wall), ()]
        body += [heading("SERVICES", width), *_units(view, width, snapshot.at), ()]
        body += [*_paths(view, width), heading("HOST", width), *_machine(snapshot.host, width), ()]
        lines += body if view.link.state == "up" else [fade(line) for line in body]
    lines += [heading("LINK", width), *_link(view, width, moment)]
    if view.notes:
        lines += [(), heading("NOTES", width, "what the agent could not read")]
        for section, text in sorted(view.notes.items()):
            lines += long_pair(section, text, width, "warn")
    return lines


def _findings(host: HostScene, width: int) -> list[Line]:
    findings = host.beside_link
    if not findings:
        return []
    lines = [heading("FINDINGS", width)]
    lines += listed(findings, lambda finding: _finding(finding, width), width, PAGE_LINES, ALL_BY_STATUS)
    return [*lines, ()]


def _finding(finding: Finding, width: int) -> list[Line]:
    mark, ink = FINDING_MARKS[finding.level]
    words = f"{finding.subject}: {finding.text}"
    lines = long_pair(mark, words, width, "bad" if ink == "alarm" else ink, cells=2, word_ink=ink)
    if finding.next_step:
        lines += long_pair("→", finding.next_step, width, "dim", indent=5, cells=2)
    return lines


# ---- environments


def _venvs(host: HostScene, width: int, wall: float) -> list[Line]:
    view = host.view
    assert view.snapshot is not None
    at = view.snapshot.at
    lack = lacking(view, "venvs", bool(view.snapshot.venvs))
    if lack is not None:
        return [Row(width).add("   ").extend([lack]).line()]
    if not view.snapshot.venvs:
        return [Row(width).add("   none found", "dim").line()]

    def drawn(venv: Venv) -> list[Line]:
        verdict = verdict_on(host.verdicts, venv.path)
        title, *rest = _venv(venv, width, at)
        return [title, *_proof(verdict, width, wall), *rest]

    return listed(view.snapshot.venvs, drawn, width, PAGE_LINES, ALL_BY_STATUS)


def _proof(verdict: Verdict | None, width: int, wall: float) -> list[Line]:
    if verdict is None:
        return []
    return [Row(width).add("     ").extend(verdict_line(verdict, width - 5, wall)).line()]


_SOURCES = {"config": "of the config", "found": "found in a usual place", "unit": "the interpreter of a unit"}


def _venv(venv: Venv, width: int, at: float) -> list[Line]:
    source: Piece = (_SOURCES[venv.source], "faint")
    if isinstance(venv.python, Missing):
        words = "not there" if venv.python.missing == "not_found" else REASON_WORDS[venv.python.missing]
        return titled(venv.path, [(f"✗ {words}", "warn"), source], width)
    lines = titled(venv.path, [(f"python {venv.python}", "text"), source], width)
    lines += pairs([value_of("torch build", venv.torch_build)], width, indent=5)
    if isinstance(venv.package, Missing):
        words = "not in this environment" if venv.package.missing == "not_found" else ""
        lines += long_pair(
            "package", venv.package.detail or words or REASON_WORDS[venv.package.missing], width, "dim", 5
        )
    else:
        lines += _package(venv.package, width)
    if venv.copied is not None:
        lines += _copied(venv.copied, width, at)
    if venv.interrupted:
        lines += long_pair("not settled", venv.interrupted, width, "warn", 5)
    packages: list[Pair] = [(name, version, "text") for name, version in sorted(venv.packages.items())]
    if packages:
        lines.append(Row(width).add("     packages", "dim").line())
        lines += pairs(packages, width, indent=7)
    return lines


def _copied(copied: Copied, width: int, at: float) -> list[Line]:
    (words, ink), *changed = copied_words(copied, at)
    more = [copied.from_version, f"by {copied.by}" if copied.by else "", copied.from_venv]
    text = ", ".join(part for part in (words, *more) if part)
    lines = long_pair("copied", text, width, ink, 5)
    for part, ink in changed:
        lines += long_pair("", part.lstrip(", "), width, ink, 5)
    if isinstance(copied.changed, Missing) and not isinstance(copied.at, Missing):
        lines += long_pair("", f"changes since: {missing_text(copied.changed)}", width, "faint", 5)
    return lines


def _package(package: Package, width: int) -> list[Line]:
    items = [value_of(package.name, package.version), value_of("dist-info", package.dist_version)]
    items.append(("kind", package.kind, "text" if package.kind == "regular" else "warn"))
    lines = pairs(items, width, indent=5)
    words = package_words(package)
    if words:
        row = Row(width).add("     ")
        for text, ink in words:
            row.add(text, ink).add("  ")
        lines.append(row.line())
    origin = package.origin if isinstance(package.origin, str) else REASON_WORDS[package.origin.missing]
    lines += long_pair("origin", origin, width, "text", 5)
    if package.editable_from:
        lines += long_pair("installed from", package.editable_from, width, "note", 5, 16)
    modules = list(package.modules.items())
    return lines + listed(modules, lambda item: _module(*item, width), width, _MODULE_LINES, ALL_BY_STATUS)


def _module(module: str, place: Origin, width: int) -> list[Line]:
    mark, ink, word = module_mark(place)
    text = f"{mark} {module}" + (f" ({word})" if word else "")
    lines = long_pair("", text, width, ink if ink != "ok" else "text", 5, 2)
    if isinstance(place, str):
        lines += long_pair("", place, width, "faint", 9, 0)
    return lines


# ---- services, paths, the machine, the link


def _units(view: HostView, width: int, at: float) -> list[Line]:
    assert view.snapshot is not None
    lack = lacking(view, "units", bool(view.snapshot.units))
    if lack is not None:
        return [Row(width).add("   ").extend([lack]).line()]
    if not view.snapshot.units:
        return long_pair("", no_units(view), width, "dim", cells=0)
    return listed(view.snapshot.units, lambda unit: _unit(unit, width, at), width, PAGE_LINES, ALL_BY_STATUS)


def _unit(unit: Unit, width: int, at: float) -> list[Line]:
    mark, ink, word = unit_state(unit)
    lines = titled(unit.name, [(f"{mark} {word}", ink), *unit_facts(unit, at)], width)
    if unit.description:
        lines += long_pair("", unit.description, width, "dim", 5, 0)
    if unit.problem:
        lines += long_pair("problem", unit.problem, width, "bad", 5)
    if unit.load == "not-found":
        return lines
    lines += long_pair("command", value_of("", unit.command)[1], width, "text", 5)
    lines += long_pair("interpreter", value_of("", unit.interpreter)[1], width, "text", 5)
    items: list[Pair] = [
        ("venv", unit.venv or "none", "text" if unit.venv else "dim"),
        value_of("port", unit.port),
        ("at boot", unit.enabled or "not known", "text"),
        value_of("result", unit.result),
        value_of("restarts", unit.restarts),
        ("main pid", str(unit.main_pid) if unit.main_pid else "none", "text"),
        _unit_memory(unit),
        value_of("tasks", unit.tasks),
        ("last exit", exit_words(unit.exit_status) or "none", "text"),
        ("file", unit.fragment or "none", "dim"),
        ("invocation", unit.invocation_id or "none", "dim"),
    ]
    if unit.since is not None:
        items.insert(0, ("since", f"{clock(unit.since)} UTC", "text"))
    if unit.needs_reload:
        items.append(("reload", "unit file edited: systemctl daemon-reload", "warn"))
    return lines + pairs(items, width, indent=5)


def _unit_memory(unit: Unit) -> Pair:
    return (
        ("memory", size(unit.memory), "text")
        if isinstance(unit.memory, int)
        else value_of("memory", unit.memory)
    )


def _paths(view: HostView, width: int) -> list[Line]:
    assert view.snapshot is not None
    lack = lacking(view, "paths", bool(view.snapshot.paths))
    if lack is not None and view.config.paths:
        return [heading("PATHS", width), Row(width).add("   ").extend([lack]).line(), ()]
    if not view.snapshot.paths:
        return []
    has_folder = any(info.kind == "folder" for info in view.snapshot.paths)
    lines = [heading("PATHS", width, "what lies in subfolders is not counted" if has_folder else "")]
    lines += listed(view.snapshot.paths, lambda info: _path(info, width), width, PAGE_LINES, ALL_BY_STATUS)
    return [*lines, ()]


def _path(info: PathInfo, width: int) -> list[Line]:
    words, is_there = path_facts(info)
    facts: list[Piece] = [(f"{'✓' if is_there else '✗'} {words}", "text" if is_there else "bad")]
    items: list[Pair] = []
    if is_there and info.kind == "folder" and isinstance(info.entries, Missing):
        items.append(value_of("entries", info.entries))
    if isinstance(info.filesystem, Filesystem):
        disk = info.filesystem
        items += [
            ("on", f"{disk.mount} ({disk.kind})", "text"),
            ("free", f"{size(disk.free)} of {size(disk.total)}", "text"),
        ]
    else:
        items.append(value_of("filesystem", info.filesystem))
    return [*titled(info.path, facts, width), *pairs(items, width, indent=5)]


def _machine(host: HostInfo, width: int) -> list[Line]:
    items: list[Pair] = [
        ("hostname", host.hostname, "text"),
        ("user", host.user or "not known", "text"),
        ("up", span(host.uptime), "text"),
        ("load", " ".join(f"{value:.1f}" for value in host.load), "text"),
        ("CPUs", str(host.cpus), "text"),
        ("memory", share(host.memory_total - host.memory_available, host.memory_total), "text"),
    ]
    for name, disk in (("/", host.root), ("/dev/shm", host.shm)):
        if isinstance(disk, Filesystem):
            items.append((name, f"{size(disk.free)} free of {size(disk.total)}", "text"))
        else:
            items.append(value_of(name, disk))
    items += [
        ("system", host.system or "not known", "text"),
        ("kernel", host.kernel or "not known", "text"),
        ("agent's python", host.python or "not known", "text"),
        ("boot id", host.boot_id, "dim"),
    ]
    return pairs(items, width)


def _link(view: HostView, width: int, moment: Moment) -> list[Line]:
    link, config = view.link, view.config
    mark, ink = LINK_MARKS[link.state]
    items: list[Pair] = [("state", f"{mark} {LINK_WORDS[link.state]}", ink)]
    if link.since:
        items.append(("for", span(moment.wall - link.since), "text"))
    items.append(("address", "this machine" if config.local else config.address, "text"))
    if config.jump:
        items.append(("jump", config.jump, "text"))
    if isinstance(link.latency_ms, Missing):
        items.append(value_of("latency", link.latency_ms))
    else:
        items.append(("latency", latency(link.latency_ms), "text"))
    if view.heard is not None:
        items.append(("heard", age(moment.mono - view.heard, moment.interval), "text"))
    if when := next_try(link, moment):
        items.append(("", when, "text"))
    if view.failures:
        items.append(("failed tries", str(view.failures), "warn"))
    if view.rebooted_at is not None:
        items.append(("rebooted", f"{clock(view.rebooted_at)} UTC", "warn"))
    lines = pairs(items, width)
    if link.detail and link.state in ("up", "stale"):
        lines += long_pair("detail", link.detail, width, "dim")
    return lines
