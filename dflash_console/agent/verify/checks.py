"""What a verification answers: checks, each with a state, one line an operator can act on, and the proof."""

from __future__ import annotations

from ..venvs.look import shown

__all__ = ["check", "counted", "first_few", "one_line", "when"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

DETAIL_LIMIT = 300
"""Characters of a check's one line."""
LINES_LIMIT, LINE_LIMIT = 200, 400
"""Lines of evidence, and characters of each."""


def check(name: str, state: str, detail: str, evidence: Iterable[str] = ()) -> dict[str, Any]:
    """A check, ready for the wire. `state` is pass, warn, fail or unknown."""
    lines = [one_line(line, LINE_LIMIT) for line in evidence]
    if len(lines) > LINES_LIMIT:
        more = len(lines) - LINES_LIMIT + 1
        lines[LINES_LIMIT - 1 :] = [f"... and {more:,} more"]
    return {"name": name, "state": state, "detail": one_line(detail, DETAIL_LIMIT), "evidence": lines}


def one_line(text: str, limit: int = DETAIL_LIMIT) -> str:
    """Text that may hold anything as one line that JSON can carry; a long one ends with an ellipsis."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(char if char.isprintable() else _escaped(char) for char in shown(text[: 2 * limit]))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _escaped(char: str) -> str:
    return " " if char == "\t" else char.encode("unicode_escape").decode("ascii")


def counted(number: int, noun: str) -> str:
    """`1 file`, `1,942 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def first_few(names: list[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def when(epoch: float) -> str:
    """A time by the host's clock and time zone: `2026-11-30 12:00:05`."""
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(epoch))
