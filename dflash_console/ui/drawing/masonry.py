"""Where panels go: columns of equal width, each filled from the top, and which panel lies next to which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["Box", "Direction", "assign", "boxes", "column_count", "neighbour"]

Direction: TypeAlias = Literal["left", "right", "up", "down", "first", "last"]

_TWO_COLUMNS = 104
_TWO_AT_ONCE = 150
"""Cells from which two columns tell as much as one: lines longer than half of this are rare."""
_NARROWEST = 62
"""Cells of a panel where there are three columns and more."""
_TOLERANCE = 1.25


class Box(NamedTuple):
    """A panel's place in cells."""

    x: int
    y: int
    width: int
    height: int


def column_count(width: int, heights: Sequence[int], room: int, before: int = 0) -> int:
    """How many columns to use: as few as show everything in `room` lines, since wide panels tell more.

    There may be two from a width of 104 on and are from 150 on, at most one for every 62 cells, and never
    more than panels. The number does not go below `before`: panels that shrink for a moment must not move.
    """
    least = 1 if width < _TWO_AT_ONCE else 2
    most = 1 if width < _TWO_COLUMNS else max(2, width // _NARROWEST)
    least, most = min(least, max(1, len(heights))), min(most, max(1, len(heights)))
    count = min(max(least, before), most)
    while count < most and max(_ends(heights, assign(heights, count, (), room), count)) > room:
        count += 1
    return count


def _ends(heights: Sequence[int], assigned: Sequence[int], count: int) -> list[int]:
    """The height of each column."""
    ends = [0] * count
    for height, column in zip(heights, assigned, strict=True):
        ends[column] += height
    return ends


def assign(heights: Sequence[int], count: int, before: Sequence[int], room: int) -> tuple[int, ...]:
    """The column of each panel: the shortest one, in order.

    What was assigned `before` stays as long as it wastes little or all of it is on the screen, so that panels
    do not jump about while they grow.
    """
    ends = [0] * count
    best = []
    for height in heights:
        column = ends.index(min(ends))
        best.append(column)
        ends[column] += max(1, height)
    if len(before) != len(heights):
        return tuple(best)
    longest = max(_ends(heights, before, count))
    return tuple(before) if longest <= max(room, max(ends) * _TOLERANCE) else tuple(best)


def boxes(heights: Sequence[int], assigned: Sequence[int], count: int, width: int) -> list[Box]:
    """The place of each panel."""
    cells = width // count
    ends = [0] * count
    placed = []
    for height, column in zip(heights, assigned, strict=True):
        placed.append(Box(column * cells, ends[column], cells, height))
        ends[column] += height
    return placed


def neighbour(placed: Sequence[Box], selected: int, direction: Direction) -> int:
    """The panel that lies next in a direction; `selected` itself where there is none."""
    if not placed:
        return selected
    if direction in ("first", "last"):
        return 0 if direction == "first" else len(placed) - 1
    here = placed[selected]
    candidates = [number for number, box in enumerate(placed) if _lies(here, box, direction)]
    if not candidates:
        return selected
    return min(candidates, key=lambda number: _distance(here, placed[number], direction))


def _lies(here: Box, box: Box, direction: Direction) -> bool:
    if direction == "left":
        return box.x < here.x
    if direction == "right":
        return box.x > here.x
    is_same_column = box.x == here.x
    return is_same_column and (box.y < here.y if direction == "up" else box.y > here.y)


def _distance(here: Box, box: Box, direction: Direction) -> tuple[int, int]:
    """Nearest column or row first; between columns, the panel that stands beside the top of this one."""
    if direction in ("up", "down"):
        return abs(box.y - here.y), 0
    gap = max(box.y - here.y, here.y - (box.y + box.height - 1), 0)
    return abs(box.x - here.x), gap
