"""The PATH and HOST blocks: configured paths with the room around them, and the machine itself."""

from __future__ import annotations

from dflash_console.fleet import HostView
from dflash_console.model import Filesystem, Missing, PathInfo
from dflash_console.ui.drawing.line import Line, Row, columns, cut_middle, safe
from dflash_console.ui.drawing.listing import listed
from dflash_console.ui.drawing.unread import lacking
from dflash_console.ui.drawing.words import REASON_WORDS, share, size, span

__all__ = ["host_line", "path_block", "path_facts"]

_FREE_CELLS = 12


def path_block(view: HostView, width: int, most: int | None = None) -> list[Line]:
    """The lines about the paths of the config, at most `most`."""
    if view.snapshot is None:
        return []
    paths = view.snapshot.paths
    lack = lacking(view, "paths", bool(paths))
    if lack is not None:
        return [Row(width).add("PATH ", "label").extend([lack]).line()] if view.config.paths else []
    facts = max((columns(path_facts(info)[0]) for info in paths[:most]), default=0)
    room = width - 5 - (2 + 2 + facts + _FREE_CELLS)
    cells = max((columns(info.path[:width]) for info in paths[:most]), default=0)
    if cells > room:
        cells = facts = 0
    return listed(paths, lambda info: _path_lines(info, cells, facts, width), width, most)


def path_facts(info: PathInfo) -> tuple[str, bool]:
    """What a path is, in words, and whether it is there."""
    if isinstance(info.kind, Missing):
        words = "not there" if info.kind.missing == "not_found" else REASON_WORDS[info.kind.missing]
        return words, False
    if isinstance(info.size, Missing):
        return f"{info.kind}, size {REASON_WORDS[info.size.missing]}", True
    if info.kind != "folder":
        return f"{info.kind} {size(info.size)}", True
    parts = ["folder"]
    if isinstance(info.entries, int):
        count = "1 entry" if info.entries == 1 else f"{info.entries} entries"
        parts.append(count if info.entries else "empty")
    if info.size:
        parts.append(f"{size(info.size)} in files")
    return ", ".join(parts), True


def _path_lines(info: PathInfo, cells: int, facts: int, width: int) -> list[Line]:
    """One line; two where the path leaves no room for what it is."""
    words, is_there = path_facts(info)
    row = Row(width).add("PATH ", "label")
    path = cut_middle(safe(info.path), row.room)
    row.field(path, max(cells, columns(path)), "text" if is_there else "dim")
    rows = [row]
    if row.room < 2 + 2 + columns(words):
        rows.append(Row(width).add("   "))
    rows[-1].add("  ").add("✓ " if is_there else "✗ ", "ok" if is_there else "bad")
    free = f"{size(info.filesystem.free)} free" if isinstance(info.filesystem, Filesystem) else ""
    has_room = facts + 2 + len(free) <= rows[-1].room
    rows[-1].field(words, max(facts if has_room else 0, columns(words)), "dim" if is_there else "bad")
    rows[-1].item(free, "dim")
    return [row.line() for row in rows]


def host_line(view: HostView, width: int, host_now: float) -> list[Line]:
    """The line about load, memory, disk and uptime."""
    snapshot = view.snapshot
    if snapshot is None:
        return []
    host = snapshot.host
    row = Row(width).add("HOST ", "label")
    row.add("load ", "dim").add(f"{host.load[0]:.1f}").add(f"/{host.cpus}", "dim")
    used = host.memory_total - host.memory_available
    row.add("  mem ", "dim").add(share(used, host.memory_total))
    for name, filesystem in (("/", host.root), ("shm", host.shm)):
        if isinstance(filesystem, Filesystem):
            row.item(f"{name} {size(filesystem.free)} free", "dim")
        elif name == "/":
            row.item(f"{name} {REASON_WORDS[filesystem.missing]}", "warn")
    row.item(f"up {span(host.uptime + host_now - snapshot.at)}", "dim")
    return [row.line()]
