"""Verdicts in words: their marks, and the line about one in a panel."""

from __future__ import annotations

from dflash_console.ui.drawing.line import Ink, Piece
from dflash_console.verdict import CheckState, Verdict

__all__ = ["CHECK_MARKS", "verdict_words"]

CHECK_MARKS: dict[CheckState, tuple[str, Ink]] = {
    "pass": ("✓", "ok"),
    "warn": ("!", "warn"),
    "fail": ("✗", "bad"),
    "unknown": ("?", "warn"),
}


def verdict_words(verdict: Verdict) -> Piece:
    """The verdict in short, with its mark: `✓ ready`, `✗ not ready`, `◌ verifying: find_spec`."""
    if verdict.waiting:
        return f"◌ verifying: {', '.join(verdict.waiting)}", "dim"
    if verdict.is_ready:
        warned = f", {len(verdict.warnings)} to look at" if verdict.warnings else ""
        return f"✓ ready{warned}", "warn" if warned else "ok"
    return "✗ not ready", "bad"
