"""The words, numbers and marks of the screen: durations, sizes, reasons, states."""

from __future__ import annotations

import time

from dflash_console.model import LinkState, Missing, Reason, Unit
from dflash_console.ui.drawing.line import Ink

__all__ = [
    "LINK_MARKS",
    "LINK_WORDS",
    "REASON_SHORT",
    "REASON_WORDS",
    "age",
    "clock",
    "exit_words",
    "last_part",
    "latency",
    "memory_pair",
    "missing_text",
    "plural",
    "share",
    "size",
    "span",
    "unit_name",
    "unit_state",
]

REASON_SHORT: dict[Reason, str] = {
    "unsupported": "n/a",
    "lost": "lost",
    "reset_required": "rst",
    "permission": "perm",
    "mismatch": "mism",
    "hung": "hung",
    "stale": "old",
    "not_found": "—",
    "error": "err",
}
"""A reason in at most four cells, for narrow columns."""

REASON_WORDS: dict[Reason, str] = {
    "unsupported": "not supported",
    "lost": "lost",
    "reset_required": "reset required",
    "permission": "no permission",
    "mismatch": "driver mismatch",
    "hung": "hung",
    "stale": "stale",
    "not_found": "not known",
    "error": "error",
}

LINK_MARKS: dict[LinkState, tuple[str, Ink]] = {
    "connecting": ("◌", "dim"),
    "up": ("●", "ok"),
    "stale": ("◐", "warn"),
    "unreachable": ("✗", "bad"),
    "refused": ("✗", "bad"),
    "host_key_unknown": ("?", "warn"),
    "host_key_changed": ("✗", "alarm"),
    "no_python": ("✗", "bad"),
    "agent_failed": ("✗", "bad"),
}

LINK_WORDS: dict[LinkState, str] = {
    "connecting": "connecting",
    "up": "up",
    "stale": "stale",
    "unreachable": "unreachable",
    "refused": "refused",
    "host_key_unknown": "host key unknown",
    "host_key_changed": "host key changed",
    "no_python": "no Python",
    "agent_failed": "agent failed",
}

_KIB = 1024
_SIZES = ("K", "M", "G", "T", "P", "E")
_LONGEST = 1e11
"""Seconds; 3000 years."""


def span(seconds: float) -> str:
    """A duration in the two largest units that matter: `9 s`, `12 min`, `3 h 12 m`, `12 d 4 h`."""
    whole = int(min(max(0.0, seconds), _LONGEST))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} m"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def age(seconds: float, interval: float) -> str:
    """How old a picture is: `now` while it is as fresh as can be, so that live panels do not flicker."""
    return "now" if seconds < 1.5 * interval + 0.5 else f"{span(seconds)} ago"


def latency(milliseconds: float) -> str:
    """A round trip: `0.4 ms`, `23 ms`; in seconds where it is ten of them and more."""
    if milliseconds < 10:
        return f"{milliseconds:.1f} ms"
    return f"{milliseconds:.0f} ms" if milliseconds < 10_000 else span(milliseconds / 1000)


def clock(at: float) -> str:
    """A point in time as `02:58:11` UTC; `--:--:--` for one that no calendar has."""
    try:
        return time.strftime("%H:%M:%S", time.gmtime(at))
    except (ValueError, OverflowError, OSError):
        return "--:--:--"


def size(count: int) -> str:
    """Bytes in binary units and at most five cells: `512B`, `9.8M`, `71.2G`, `512G`."""
    if count < _KIB:
        return f"{max(0, count)}B"
    if count >= 999 * _KIB**6:
        return ">998E"
    value = count / _KIB
    power = 0
    while value >= 999.5:
        value /= _KIB
        power += 1
    unit = _SIZES[power]
    return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"


def memory_pair(used: int, total: int) -> tuple[str, str]:
    """Used and total of a GPU, each in at most five cells: (`41.2`, `/48G`); in larger units beyond 999 GiB."""
    power = 3
    while power < len(_SIZES) and max(used, total) >= 999.5 * _KIB**power:
        power += 1
    most = 999 * _KIB**power
    value, whole = (min(max(0, count), most) / _KIB**power for count in (used, total))
    shown = f"{whole:.1f}" if power > 3 and whole < 9.95 else f"{whole:.0f}"
    return f"{value:.1f}", f"/{shown}{_SIZES[power - 1]}"


def share(used: int, total: int) -> str:
    """Used of total with one unit: `121/755G`; `—/755G` where less than nothing would be used."""
    whole = size(total)
    if used < 0:
        return f"—/{whole}"
    unit = whole[-1]
    power = _SIZES.index(unit) + 1 if unit in _SIZES else 0
    value = min(used, 999 * _KIB**6) / _KIB**power
    return f"{value:.0f}/{whole}" if value >= 10 else f"{value:.1f}/{whole}"


def plural(count: int, word: str) -> str:
    """`1 warning`, `2 warnings`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def missing_text(value: Missing) -> str:
    """A reason in words, with its detail."""
    words = REASON_WORDS[value.missing]
    return f"{words}: {value.detail}" if value.detail else words


def exit_words(status: str) -> str:
    """How a process ended, to stand behind `last exit`: `3`, `killed 9`."""
    return status.removeprefix("exited ")


def unit_name(name: str) -> str:
    """A unit's name without the `.service` that every one of them has."""
    return name.removesuffix(".service") or name


def last_part(path: str) -> str:
    """A path's last name; all of the path where it has none."""
    return path.rstrip("/").rsplit("/", 1)[-1] or path


_ACTIVE: dict[str, tuple[str, Ink, str]] = {
    "active": ("●", "ok", "running"),
    "reloading": ("●", "ok", "reloading"),
    "activating": ("◌", "warn", "starting"),
    "deactivating": ("◌", "warn", "stopping"),
    "failed": ("✗", "alarm", "failed"),
    "inactive": ("○", "dim", "stopped"),
    "maintenance": ("◌", "warn", "maintenance"),
}


def unit_state(unit: Unit) -> tuple[str, Ink, str]:
    """A unit's state as (mark, ink, word). Not installed is not stopped; a restart loop is not running."""
    if isinstance(unit.load, Missing):
        return "—", "warn", f"systemd: {REASON_WORDS[unit.load.missing]}"
    if unit.load == "not-found":
        return "?", "warn", "not installed"
    if unit.load == "masked":
        return "⊘", "warn", "masked"
    if unit.load != "loaded":
        return "✗", "bad", unit.load
    if unit.is_looping:
        return "↻", "alarm", "restarting"
    if isinstance(unit.active, Missing):
        return "—", "warn", REASON_WORDS[unit.active.missing]
    mark, ink, word = _ACTIVE.get(unit.active, ("?", "warn", unit.active))
    if unit.active == "active" and isinstance(unit.sub, str) and unit.sub != "running":
        return mark, ink, f"active ({unit.sub})"
    return mark, ink, word
