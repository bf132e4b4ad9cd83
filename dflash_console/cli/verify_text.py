"""The text of `verify` for people: a line a check, the evidence of what is not right below it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dflash_console.cli.status_text import Terminal, painted
from dflash_console.ui.drawing.line import Line, Row, wrap
from dflash_console.ui.drawing.verdicts import CHECK_MARKS, verdict_words
from dflash_console.verdict import Check, Verdict

__all__ = ["NOT_REACHED", "check_lines", "progress", "verify_text"]

NOT_REACHED = "link"
"""The check of a host that could not be asked."""
MOST_EVIDENCE = 12
"""Lines of evidence that are printed for a check; all of them are in the JSON."""


def progress(verdict: Verdict) -> str:
    """One line for stderr when a verdict is complete."""
    reasons = ", ".join(check.name for check in verdict.reasons[:4])
    words = "ready" if verdict.is_ready else f"not ready ({reasons})" if reasons else "not ready"
    lost = next((check.detail for check in verdict.checks if check.name == NOT_REACHED), None)
    if lost is not None:
        words = f"{words}; the link was lost: {lost}" if verdict.venv and reasons else f"not reached: {lost}"
    return f"{verdict.host} {verdict.venv}: {words}".replace(" :", ":")


def verify_text(verdicts: Sequence[Verdict], to: Terminal) -> str:
    """A block an environment, with an empty line between two."""
    blocks = (_block(verdict, to.width) for verdict in verdicts)
    return "\n".join("".join(painted(line, to) + "\n" for line in block) for block in blocks)


def _block(verdict: Verdict, width: int) -> Iterable[Line]:
    title = Row(width).add(f"{verdict.host} {verdict.venv}".rstrip(), "strong").add("  ")
    yield title.extend([verdict_words(verdict)]).line()
    for check in verdict.checks:
        yield from check_lines(check, width)


def check_lines(check: Check, width: int, margin: int = 2) -> Iterable[Line]:
    """A check behind a margin, with its first lines of evidence where it is not right."""
    mark, ink = CHECK_MARKS[check.state]
    indent = margin + 2 + 14
    first, *rest = wrap(check.detail, max(20, width - indent)) or [""]
    row = Row(width).add(" " * margin).add(f"{mark} ", ink).add(f"{check.name:<13} ", "label")
    yield row.add(first).line()
    for text in rest:
        yield Row(width).add(" " * indent).add(text).line()
    if check.state in ("fail", "unknown", "warn"):
        left = len(check.evidence) - MOST_EVIDENCE
        # A line that says that one is left out would take that one's place.
        shown = check.evidence if left == 1 else check.evidence[:MOST_EVIDENCE]
        for text in shown:
            for line in wrap(text, max(20, width - indent - 2)):
                yield Row(width).add(" " * (indent + 2)).add(line, "dim").line()
        if left > 1:
            more = f"{left} more lines: --json has all"
            yield Row(width).add(" " * (indent + 2)).add(more, "faint").line()
