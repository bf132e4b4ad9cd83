"""Verdicts where there is little room: a line below an environment, the head of a column, a word for a host."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_console.ui.drawing.line import Line, Piece, Row, columns, cut, safe
from dflash_console.ui.drawing.verdicts import verdict_words
from dflash_console.ui.drawing.words import plural, span
from dflash_console.verdict import NEEDED, Verdict

__all__ = ["ago", "filter_words", "head_words", "host_words", "stale_words", "verdict_line", "verdict_on"]

_NARROWEST_REASON = 10


def ago(seconds: float) -> str:
    """How long ago something was: `just now`, `12 s ago`, `3 min ago`."""
    return "just now" if seconds < 2 else f"{span(seconds)} ago"


def verdict_on(verdicts: Sequence[Verdict], venv: str) -> Verdict | None:
    """The verdict on an environment; None when it was never verified."""
    return next((verdict for verdict in verdicts if verdict.venv == venv), None)


def verdict_line(verdict: Verdict, width: int, wall: float) -> Line:
    """A verdict at a glance: mark, word, the first reason, the age; of a stale one, what to press."""
    if verdict.waiting:
        words, ink = verdict_words(verdict)
        return Row(width).add(_deep(verdict, words), ink).line()
    age = ago(wall - verdict.at)
    if verdict.stale:
        again = "V again" if verdict.is_deep else "v again"
        return _with_reason(width, (f"◐ was {_word(verdict)} {age}", "warn"), verdict.stale, again)
    words, ink = verdict_words(verdict)
    more = len(verdict.reasons) - 1
    tail = f"+{more} more · {age}" if more > 0 else age
    return _with_reason(width, (f"{words}{', deep' if verdict.is_deep else ''}", ink), _reason(verdict), tail)


def _with_reason(width: int, head: Piece, reason: str, tail: str) -> Line:
    """The reason is cut to what the others leave; where they leave none, it goes first."""
    row = Row(width).extend([head])
    reason = " ".join(safe(reason).split())
    room = row.room - 3 - (3 + columns(tail))
    if reason and room >= min(columns(reason), _NARROWEST_REASON):
        row.add(" · ", "faint").add(cut(reason, room), "text")
    row.item(f"· {tail}", "dim", gap=1)
    return row.line()


def _reason(verdict: Verdict) -> str:
    """The first thing that keeps a package from being ready, or else that is to be looked at."""
    if verdict.is_ready:
        first = verdict.warnings[:1]
        return f"{first[0].name}: {first[0].detail}" if first else ""
    reasons = verdict.reasons
    if not reasons:
        silent = [name for name in NEEDED if all(check.name != name for check in verdict.checks)]
        return f"no answer about {', '.join(silent)}" if silent else ""
    return f"{reasons[0].name}: {reasons[0].detail}"


def _word(verdict: Verdict) -> str:
    return "ready" if verdict.is_ready else "not ready"


def _deep(verdict: Verdict, words: str) -> str:
    return words.replace("verifying", "verifying deeply", 1) if verdict.is_deep else words


def stale_words(verdict: Verdict, wall: float) -> str:
    """Why a verdict no longer counts, and what to press; empty while it does."""
    if not verdict.stale or verdict.waiting:
        return ""
    key = "V" if verdict.is_deep else "v"
    return f"◐ was {_word(verdict)} {ago(wall - verdict.at)}: {verdict.stale}; {key} verifies again"


def head_words(verdict: Verdict | None) -> Piece:
    """A verdict in at most twelve cells: `✓ ready`, `✗ not ready`, `◌ verifying`, `◐ stale`, `· not verified`."""
    if verdict is None:
        return "not verified", "dim"
    if verdict.waiting:
        return "◌ verifying", "dim"
    if verdict.stale:
        return "◐ stale", "warn"
    if not verdict.is_ready:
        return "✗ not ready", "bad"
    return ("! ready", "warn") if verdict.warnings else ("✓ ready", "ok")


def host_words(verdicts: Sequence[Verdict]) -> Piece | None:
    """What to say of all verdicts on a host in a word, the worst first; None when nothing was verified."""
    if not verdicts:
        return None
    current = [verdict for verdict in verdicts if not verdict.waiting and not verdict.stale]
    if bad := [verdict for verdict in current if not verdict.is_ready]:
        return ("✗ not ready" if len(bad) == 1 else f"✗ {len(bad)} not ready"), "bad"
    if any(verdict.waiting for verdict in verdicts):
        return "◌ verifying", "dim"
    if stale := [verdict for verdict in verdicts if verdict.stale]:
        return f"◐ {plural(len(stale), 'stale verdict')}", "warn"
    return head_words(next((verdict for verdict in verdicts if verdict.warnings), verdicts[0]))


def filter_words(verdict: Verdict) -> str:
    """By which words the filter finds a host with this verdict."""
    if verdict.waiting:
        return "verifying"
    return f"stale verdict, was {_word(verdict)}" if verdict.stale else _word(verdict)
