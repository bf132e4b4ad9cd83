"""Bars and histories."""

from __future__ import annotations

import pytest

from dflash_console.ui.drawing.gauges import bar, history
from dflash_console.ui.drawing.line import columns, plain


@pytest.mark.parametrize("percent", [-5, 0, 1, 37, 99, 100, 250])
@pytest.mark.parametrize("cells", [0, 1, 7, 24])
def test_a_bar_is_as_long_as_asked(percent: int, cells: int) -> None:
    assert columns(plain(bar(percent, cells))) == cells


def test_a_bar_shows_its_empty_rest_and_never_hides_one_percent() -> None:
    assert plain(bar(50, 8)) == "████╌╌╌╌"
    assert plain(bar(0, 4)) == "╌╌╌╌"
    assert plain(bar(1, 4)) == "▏╌╌╌"
    assert plain(bar(100, 4)) == "████"


@pytest.mark.parametrize("count", [0, 1, 5, 60, 240])
@pytest.mark.parametrize("cells", [0, 1, 9, 60, 80])
@pytest.mark.parametrize("newest", [0, 58, 59, 60, 61, 1_785_640_364])
def test_a_history_is_as_long_as_asked(count: int, cells: int, newest: int) -> None:
    assert columns(plain(history([50] * count, cells, newest))) == cells


def test_a_gap_is_a_dot_and_nothing_is_a_line() -> None:
    samples = [None, 0, 100, None, 50]
    assert plain(history(samples, 5, 4)) == "·▁█·▅"


def test_a_minute_in_few_blocks_is_averaged_without_the_gaps() -> None:
    samples = [100, None, None, None, 0, 0, 50, 50]
    assert plain(history(samples, 2, 7)) == "█▃"


def test_a_block_once_drawn_only_moves_to_the_left() -> None:
    minute = [(step * 37) % 101 for step in range(80)]
    before = plain(history(minute[0:60], 15, 59))
    for passed in range(1, 5):
        after = plain(history(minute[passed : 60 + passed], 15, 59 + passed))
        moved = 1 if (59 + passed) // 4 > 59 // 4 else 0
        assert after[2 : 14 - moved] == before[2 + moved : 14]


def test_a_young_history_stands_at_the_right() -> None:
    assert plain(history([100, 100], 4, 1)) == "  ██"
