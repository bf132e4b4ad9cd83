"""Columns of panels, and moving between them."""

from __future__ import annotations

from dflash_console.ui.drawing.masonry import Box, assign, boxes, column_count, neighbour

TALL = [90] * 9


def test_columns_grow_with_the_width_where_there_is_much_to_show() -> None:
    widths = (60, 80, 103, 104, 185, 186, 250)
    assert [column_count(width, TALL, 50) for width in widths] == [1, 1, 1, 2, 2, 3, 4]


def test_there_are_only_as_many_columns_as_it_takes_to_show_everything() -> None:
    assert column_count(250, [20] * 4, 50) == 2
    assert column_count(250, [20] * 5, 50) == 3


def test_there_are_never_more_columns_than_panels() -> None:
    assert column_count(250, [90], 50) == 1
    assert column_count(250, [90, 90], 50) == 2
    assert column_count(250, [], 50) == 1


def test_a_column_once_opened_stays() -> None:
    assert column_count(250, [20] * 4, 50, before=3) == 3
    assert column_count(103, [20] * 4, 50, before=3) == 1


def test_each_panel_goes_to_the_shortest_column() -> None:
    assert assign([10, 3, 3, 3], 2, (), room=50) == (0, 1, 1, 1)


def test_panels_stay_in_their_column_while_all_of_them_are_on_the_screen() -> None:
    assert assign([20, 3, 3, 3], 2, (0, 1, 0, 1), room=50) == (0, 1, 0, 1)


def test_panels_move_when_a_column_has_become_much_too_long() -> None:
    assert assign([40, 40, 3, 3], 2, (0, 0, 1, 1), room=50) == (0, 1, 0, 1)


def test_panels_do_not_overlap_and_leave_no_hole_in_a_column() -> None:
    placed = boxes([5, 9, 4, 7], (0, 1, 0, 1), 2, 121)
    assert placed == [Box(0, 0, 60, 5), Box(60, 0, 60, 9), Box(0, 5, 60, 4), Box(60, 9, 60, 7)]


PLACED = boxes([5, 12, 4, 7, 6], (0, 1, 0, 1, 0), 2, 120)


def test_arrows_go_to_the_panel_that_lies_there() -> None:
    assert neighbour(PLACED, 0, "down") == 2
    assert neighbour(PLACED, 2, "up") == 0
    assert neighbour(PLACED, 0, "right") == 1
    assert neighbour(PLACED, 4, "right") == 1
    assert neighbour(PLACED, 3, "left") == 4
    assert neighbour(PLACED, 1, "left") == 0


def test_arrows_stop_at_the_edge() -> None:
    assert neighbour(PLACED, 4, "down") == 4
    assert neighbour(PLACED, 0, "up") == 0
    assert neighbour(PLACED, 0, "left") == 0
    assert neighbour(PLACED, 1, "right") == 1
    assert neighbour([], 0, "down") == 0


def test_first_and_last_follow_the_config() -> None:
    assert neighbour(PLACED, 2, "first") == 0
    assert neighbour(PLACED, 2, "last") == 4


def test_one_column_where_all_fits_and_two_would_be_narrow() -> None:
    assert column_count(119, [18, 18], 38) == 1
    assert column_count(119, [18, 28], 38) == 2
    assert column_count(160, [18, 18], 38) == 2
    assert column_count(119, [5, 5], 38, before=2) == 2
