"""Which lines of two texts differ: aligned at lines that are in both only once, and between them by difflib."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

__all__ = ["Difference", "Pair", "differences", "spans"]

_MOST_WORK = 4_000_000
"""Lines of the left times lines of the right that difflib is given at once; of more only that they differ is said."""
_CONTEXT = 3


class Pair(NamedTuple):
    """A line of the left beside one of the right; numbers count from 1, 0 where there is none."""

    kind: Literal["same", "changed", "left", "right", "gap"]
    left: str = ""
    right: str = ""
    left_number: int = 0
    right_number: int = 0
    skipped: int = 0
    """Of a gap: how many equal lines it stands for."""


class Difference(NamedTuple):
    """Two texts, line by line."""

    pairs: tuple[Pair, ...]
    """All lines."""
    folded: tuple[Pair, ...]
    """Only what differs, with a few lines around it."""
    changes: int
    """Places at which they differ."""


_Block = tuple[int, int, int, int]
"""Lines from and to on the left, from and to on the right."""


def differences(left: str, right: str) -> Difference:
    """How two texts differ. Takes well below a second for 50,000 lines of ordinary text."""
    a, b = left.splitlines(), right.splitlines()
    pairs: list[Pair] = []
    changes = 0
    at_a = at_b = 0
    for a_from, a_to, b_from, b_to in _merged(_differing(a, b, (0, len(a), 0, len(b)))):
        pairs += _same(a, b, at_a, a_from, at_b)
        pairs += _changed(a, b, (a_from, a_to, b_from, b_to))
        at_a, at_b = a_to, b_to
        changes += 1
    pairs += _same(a, b, at_a, len(a), at_b)
    return Difference(tuple(pairs), tuple(_folded(pairs)), changes)


def spans(left: str, right: str) -> tuple[int, int, int]:
    """Of a changed line: how many characters at its start are the same, and where the same end starts on each side."""
    start = 0
    most = min(len(left), len(right))
    while start < most and left[start] == right[start]:
        start += 1
    end = 0
    while end < most - start and left[-1 - end] == right[-1 - end]:
        end += 1
    return start, len(left) - end, len(right) - end


def _same(a: Sequence[str], b: Sequence[str], a_from: int, a_to: int, b_from: int) -> Iterator[Pair]:
    for step in range(a_to - a_from):
        yield Pair("same", a[a_from + step], b[b_from + step], a_from + step + 1, b_from + step + 1)


def _changed(a: Sequence[str], b: Sequence[str], block: _Block) -> Iterator[Pair]:
    a_from, a_to, b_from, b_to = block
    both = min(a_to - a_from, b_to - b_from)
    for step in range(both):
        yield Pair("changed", a[a_from + step], b[b_from + step], a_from + step + 1, b_from + step + 1)
    for at in range(a_from + both, a_to):
        yield Pair("left", left=a[at], left_number=at + 1)
    for at in range(b_from + both, b_to):
        yield Pair("right", right=b[at], right_number=at + 1)


def _folded(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """Long runs of equal lines become gaps."""
    run: list[Pair] = []
    is_first = True
    for pair in pairs:
        if pair.kind == "same":
            run.append(pair)
            continue
        yield from _fold(run, 0 if is_first else _CONTEXT, _CONTEXT)
        run, is_first = [], False
        yield pair
    yield from _fold(run, 0 if is_first else _CONTEXT, 0)


def _fold(run: Sequence[Pair], head: int, tail: int) -> Iterator[Pair]:
    if len(run) <= head + tail + 1:
        yield from run
        return
    yield from run[:head]
    yield Pair("gap", skipped=len(run) - head - tail)
    yield from run[len(run) - tail :]


# ---- alignment


def _differing(a: Sequence[str], b: Sequence[str], block: _Block) -> Iterator[_Block]:
    """The blocks of lines that differ, in order."""
    a_from, a_to, b_from, b_to = block
    while a_from < a_to and b_from < b_to and a[a_from] == b[b_from]:
        a_from, b_from = a_from + 1, b_from + 1
    while a_from < a_to and b_from < b_to and a[a_to - 1] == b[b_to - 1]:
        a_to, b_to = a_to - 1, b_to - 1
    if a_from == a_to and b_from == b_to:
        return
    if a_from == a_to or b_from == b_to:
        yield a_from, a_to, b_from, b_to
        return
    anchors = _anchors(a[a_from:a_to], b[b_from:b_to])
    if not anchors:
        yield from _by_difflib(a, b, (a_from, a_to, b_from, b_to))
        return
    at_a, at_b = a_from, b_from
    for in_a, in_b in (*anchors, (a_to - a_from, b_to - b_from)):
        # Between two anchors there is none any more that is in both once, but there may be within a part.
        yield from _differing(a, b, (at_a, a_from + in_a, at_b, b_from + in_b))
        at_a, at_b = a_from + in_a + 1, b_from + in_b + 1


def _by_difflib(a: Sequence[str], b: Sequence[str], block: _Block) -> Iterator[_Block]:
    a_from, a_to, b_from, b_to = block
    if (a_to - a_from) * (b_to - b_from) > _MOST_WORK:
        yield block
        return
    matcher = difflib.SequenceMatcher(None, a[a_from:a_to], b[b_from:b_to], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            yield a_from + i1, a_from + i2, b_from + j1, b_from + j2


def _anchors(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Lines that are in both exactly once, as far as they are in the same order: the longest such row."""
    in_a, in_b = Counter(a), Counter(b)
    places = {line: at for at, line in enumerate(b) if in_b[line] == 1}
    common = [(at, places[line]) for at, line in enumerate(a) if in_a[line] == 1 and line in places]
    ends: list[int] = []
    tails: list[int] = []
    before: list[int] = []
    for number, (_, at_b) in enumerate(common):
        length = bisect_left(ends, at_b)
        before.append(tails[length - 1] if length else -1)
        if length == len(ends):
            ends.append(at_b)
            tails.append(number)
        else:
            ends[length], tails[length] = at_b, number
    row: list[tuple[int, int]] = []
    number = tails[-1] if tails else -1
    while number >= 0:
        row.append(common[number])
        number = before[number]
    return row[::-1]


def _merged(blocks: Iterator[_Block]) -> Iterator[_Block]:
    """Blocks that touch are one."""
    open_block: _Block | None = None
    for block in blocks:
        if open_block is not None and block[0] == open_block[1] and block[2] == open_block[3]:
            open_block = (open_block[0], block[1], open_block[2], block[3])
            continue
        if open_block is not None:
            yield open_block
        open_block = block
    if open_block is not None:
        yield open_block
