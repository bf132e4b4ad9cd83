"""The help: every key of a place, and what the marks mean."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_console.ui.drawing.line import Ink, Line, Row, wrap

__all__ = ["draw_help"]

_MARKS: tuple[tuple[str, Ink, str], ...] = (
    ("●", "ok", "up, running"),
    ("◌", "dim", "connecting, starting, stopping"),
    ("◐", "warn", "stale: no answer, the last good picture is shown dimmed; a verdict that no longer holds"),
    ("✓", "ok", "ready: the package was verified; of a check: passed"),
    ("○", "dim", "stopped"),
    ("→", "note", "a copy or a rollback that is under way"),
    ("↺", "warn", "undone: the package is as it was before"),
    ("↻", "alarm", "restarting again and again: a crash loop"),
    ("▲", "warn", "a warning: needs a look"),
    ("✗", "alarm", "critical, failed, lost, not there, or a host that can't be watched"),
    ("?", "warn", "not installed, or a host key that nobody has confirmed"),
    ("⊘", "warn", "masked"),
    ("◆", "accent", "marked: c copies to all marked hosts, v and V verify them, d compares two"),
    ("+ ~ −", "text", "files or lines that a copy adds, changes and takes away"),
    ("—", "dim", "no value; the word beside it, or the host's own screen, says why"),
    ("·", "track", "in a history: no sample; for a character: one that a terminal must not see"),
)


def draw_help(keys: Sequence[tuple[str, str, str]], width: int) -> list[Line]:
    """`keys` are (place, keys, what they do); places become headings."""
    lines: list[Line] = []
    place = ""
    for where, shown, words in keys:
        if where != place:
            lines += [()] if lines else []
            lines.append(Row(width).add(where.upper(), "label").line())
            place = where
        for number, part in enumerate(wrap(words, max(10, width - 16))):
            row = Row(width).add("  ").field(shown if number == 0 else "", 12, "strong")
            lines.append(row.add("  ").add(part, "text").line())
    lines += [(), Row(width).add("MARKS", "label").line()]
    for mark, ink, words in _MARKS:
        for number, part in enumerate(wrap(words, max(10, width - 16))):
            row = Row(width).add("  ").field(mark if number == 0 else "", 12, ink)
            lines.append(row.add("  ").add(part, "text").line())
    return lines
