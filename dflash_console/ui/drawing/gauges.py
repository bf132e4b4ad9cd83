"""Bars and histories from block characters, every one of them a single cell wide."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from dflash_console.ui.drawing.line import Line, Piece

__all__ = ["bar", "history", "level"]

_PARTS = " ▏▎▍▌▋▊▉"
_LEVELS = "▁▂▃▄▅▆▇█"
_TRACK = "╌"
_GAP = "·"


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
    per_block = max(1, -(-len(samples) // cells))
    first = newest - len(samples) + 1
    last_block = newest // per_block
    blocks: list[list[int | None]] = [[] for _ in range(cells)]
    for offset, sample in enumerate(samples):
        position = cells - 1 - (last_block - (first + offset) // per_block)
        if position >= 0:
            blocks[position].append(sample)
    return _merged([_block(values) for values in blocks])


def _block(samples: Sequence[int | None]) -> Piece:
    if not samples:
        return " ", "track"
    values = [sample for sample in samples if sample is not None]
    if not values:
        return _GAP, "track"
    mean = sum(values) / len(values)
    return (level(round(mean)), "history") if mean >= 0.5 else (_LEVELS[0], "track")


def _merged(pieces: Sequence[Piece]) -> Line:
    return tuple(
        ("".join(text for text, _ in run), ink) for ink, run in groupby(pieces, key=lambda piece: piece[1])
    )
