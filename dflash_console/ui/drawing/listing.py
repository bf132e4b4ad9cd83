"""Lists of any length in a bounded number of lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from dflash_console.ui.drawing.line import Line, Row

__all__ = ["ALL_BY_STATUS", "PAGE_LINES", "PANEL_LINES", "listed"]

PANEL_LINES = 100
"""Of one block of a panel."""
PAGE_LINES = 1000
"""Of one section of the host screen."""
ALL_BY_STATUS = "dflash-console status --json tells all"

_Item = TypeVar("_Item")


def listed(
    items: Sequence[_Item],
    drawn: Callable[[_Item], list[Line]],
    width: int,
    most: int | None,
    where: str = "enter: all",
    indent: int = 5,
) -> list[Line]:
    """The lines of all items; past `most` nothing more is drawn, and one more line counts the items that are left.

    `where` says where all of them can be seen; with `most` None they are here.
    """
    lines: list[Line] = []
    for number, item in enumerate(items):
        if most is not None and len(lines) >= most:
            words = f"… {len(items) - number} more of {len(items)} · {where}"
            return [*lines[:most], Row(width).add(" " * indent).add(words, "warn").line()]
        lines += drawn(item)
    if most is None or len(lines) <= most:
        return lines
    return [*lines[:most], Row(width).add(" " * indent).add(f"… goes on · {where}", "warn").line()]
