"""The PATH and HOST blocks: configured paths with the room around them, and the machine itself."""

from __future__ import annotations

from dflash_console.fleet import HostView
from dflash_console.model import Filesystem, Missing, PathInfo
from dflash_console.ui.drawing.line import Line, Row, columns, cut_middle
from dflash_console.ui.drawing.words import REASON_WORDS, share, size, span

__all__ = ["host_line", "path_block", "path_facts"]


def path_block(view: HostView, width: int) -> list[Line]:
    """The lines about the paths of the config."""
    if view.snapshot is None:
        return []
    if view.config.paths and "paths" in view.unread:
        return [Row(width).add("PATH ", "label").add("reading…", "faint").line()]
    paths = view.snapshot.paths
    cells = max((columns(info.path) for info in paths), default=0)
    return [_path_line(info, min(cells, max(16, width - 36)), width) for info in paths]


def path_facts(info: PathInfo) -> tuple[str, bool]:
    """What a path is, in words, and whether it is there."""
    if isinstance(info.kind, Missing):
        words = "not there" if info.kind.missing == "not_found" else REASON_WORDS[info.kind.missing]
        return words, False
    if isinstance(info.size, Missing):
        return f"{info.kind}, size {REASON_WORDS[info.size.missing]}", True
    return f"{info.kind} {size(info.size)}", True


def _path_line(info: PathInfo, cells: int, width: int) -> Line:
    words, is_there = path_facts(info)
    row = Row(width).add("PATH ", "label")
    row.field(cut_middle(info.path, cells), cells, "text" if is_there else "dim")
    row.add("  ").add("✓ " if is_there else "✗ ", "ok" if is_there else "bad")
    row.field(words, max(columns(words), min(12, row.room)), "dim" if is_there else "bad")
    if isinstance(info.filesystem, Filesystem):
        row.item(f"{size(info.filesystem.free)} free", "dim")
    return row.line()


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
