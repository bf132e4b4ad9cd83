"""Bars and histories from block characters, every one of them a single cell wide."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import cast

from dflash_console.ui.drawing.line import Line, Piece

__all__ = ["bar", "history", "level"]

_PARTS = " ▏▎▍▌▋▊▉"
_LEVELS = "▁▂▃▄▅▆▇█"
_TRACK = "╌"
_GAP = "·"
_NOTHING: Piece = (_GAP, "track")
_BLOCKS: tuple[Piece, ...] = (
    (_LEVELS[0], "track"),
    *((_LEVELS[min(half // 2 * 8 // 100, 7)], "history") for half in range(1, 201)),
)
"""The block of each mean, from 0 to 100 in halves of a percent; less than half a percent is nothing."""


def bar(percent: int, cells: int) -> Line:
    """A share of 100 as a bar with its empty rest drawn too, in eighths of a cell."""
    eighths = round(min(max(percent, 0), 100) * cells * 8 / 100)
    if percent > 0 and cells > 0:
        eighths = max(eighths, 1)
    full, part = divmod(eighths, 8)
    filled = "█" * full + (_PARTS[part] if part else "")
    return ((filled, "bar"), (_TRACK * (cells - len(filled)), "track"))


def level(percent: int) -> str:
    """A share of 100 as one block character."""
    return _LEVELS[min(max(percent, 0) * 8 // 100, 7)]


def history(samples: Sequence[int | None], cells: int, newest: int) -> Line:
    """The newest samples, oldest first, in `cells` blocks; several samples to a block are averaged.

    `newest` numbers the last sample. Blocks start at multiples of their length, so that a block once drawn
    only moves to the left and does not change under the reader's eyes. A gap is drawn as a dot.
    """
    if cells < 1 or not samples:
        return ((_GAP * cells, "track"),)
    per_block = -(-len(samples) // cells)
    end = len(samples) - newest % per_block - 1
    pieces = [_block(samples[end:])]
    while len(pieces) < cells and end > 0:
        pieces.append(_block(samples[max(0, end - per_block) : end]))
        end -= per_block
    pieces += [(" ", "track")] * (cells - len(pieces))
    return _merged(pieces[::-1])


def _block(samples: Sequence[int | None]) -> Piece:
    """One block of a history."""
    values = [sample for sample in samples if sample is not None] if None in samples else samples
    if not values:
        return _NOTHING
    return _BLOCKS[min(max(2 * sum(cast(Sequence[int], values)) // len(values), 0), 200)]


def _merged(pieces: Sequence[Piece]) -> Line:
    """The pieces with neighbours of one ink joined."""
    if len({ink for _, ink in pieces}) == 1:
        return (("".join([text for text, _ in pieces]), pieces[0][1]),)
    return tuple(
        ("".join(text for text, _ in run), ink) for ink, run in groupby(pieces, key=lambda piece: piece[1])
    )
