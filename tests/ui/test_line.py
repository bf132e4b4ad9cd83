"""Text in cells: measured, cut, wrapped, made harmless."""

from __future__ import annotations

import pytest

from dflash_console.ui.drawing.line import (
    Row,
    columns,
    cut,
    cut_left,
    cut_middle,
    fade,
    flow,
    plain,
    safe,
    wrap,
)
from tests.ui.builders import HOSTILE

WIDE = "中文字段"
COMBINED = "e\u0301" * 6


@pytest.mark.parametrize(("text", "cells"), [("", 0), ("abc", 3), (WIDE, 8), (COMBINED, 6), ("█▏╌", 3)])
def test_text_is_measured_in_terminal_cells(text: str, cells: int) -> None:
    assert columns(text) == cells


@pytest.mark.parametrize("shorten", [cut, cut_left, cut_middle])
@pytest.mark.parametrize("text", ["/root/ml-env/lib/python3.12", WIDE * 3, COMBINED * 3, "a中b文" * 4])
@pytest.mark.parametrize("cells", range(12))
def test_shortened_text_never_takes_more_cells_than_there_are(shorten: object, text: str, cells: int) -> None:
    assert callable(shorten)
    assert columns(shorten(text, cells)) <= cells


def test_text_that_fits_is_not_shortened() -> None:
    assert cut("abc", 3) == cut_left("abc", 3) == cut_middle("abc", 3) == "abc"


def test_the_mark_stands_where_text_is_missing() -> None:
    path = "/root/ml-env/site-packages/sglang"
    assert cut(path, 10) == "/root/ml-…"
    assert cut_left(path, 10) == "…es/sglang"
    assert cut_middle(path, 11) == "/root…glang"


def test_combining_marks_stay_with_their_letter() -> None:
    assert cut(COMBINED, 3) == "e\u0301e\u0301…"


def test_everything_a_terminal_could_act_on_is_replaced() -> None:
    shown = safe(HOSTILE)
    assert shown.isprintable()
    assert not set(shown) & {"\x1b", "\x07", "\x9b", "\u202e", "\u200b"}
    assert "中文" in shown
    assert "[bold]b[/]" in shown


def test_variation_selectors_have_no_settled_width_and_are_replaced() -> None:
    assert safe("⚠\ufe0f") == "⚠·"


def test_long_text_wraps_at_spaces_and_loses_nothing() -> None:
    text = "the host's key is in no known_hosts file: SHA256:" + "x" * 60
    lines = wrap(text, 20)
    assert all(columns(line) <= 20 for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_wide_text_wraps_by_cells() -> None:
    assert wrap(WIDE, 4) == ["中文", "字段"]


def test_a_row_is_never_longer_than_its_limit() -> None:
    row = Row(10).add("abc").add(WIDE).add("tail")
    assert columns(plain(row.line())) == 10
    assert plain(row.line()) == "abc中文字…"


def test_what_does_not_fit_whole_is_left_out_by_item() -> None:
    row = Row(10).add("abc")
    assert row.item("defgh")
    assert not row.item("x")
    assert plain(row.line()) == "abc  defgh"


def test_the_right_end_is_used_only_when_there_is_room() -> None:
    row = Row(10).add("abc")
    assert not row.right(("123456", "dim"))
    assert row.right(("12345", "dim"))
    assert plain(row.line()) == "abc  12345"


def test_fields_align_wide_text_too() -> None:
    assert plain(Row(20).field("中", 4).add("|").line()) == "中  |"
    assert plain(Row(20).field("中", 4, align="right").add("|").line()) == "  中|"


def test_facts_that_do_not_fit_go_on_in_the_next_row() -> None:
    rows = flow(Row(12).add("head"), [("one", "text"), ("two three", "text"), ("", "text")], 4)
    assert [plain(row.line()) for row in rows] == ["head  one", "    two thr…"]


def test_a_faded_line_keeps_its_words() -> None:
    line = Row(20).add("✗ ", "alarm").add("lost", "bad").line()
    assert plain(fade(line)) == "✗ lost"
    assert {ink for _, ink in fade(line)} == {"faint"}


def test_a_path_that_is_longer_than_a_line_breaks_behind_a_stroke() -> None:
    assert wrap("/root/models/one/two/three", 14) == ["/root/models/", "one/two/three"]
    assert wrap("see /root/models/one/two/three", 14) == ["see", "/root/models/", "one/two/three"]
    assert wrap("x" * 12, 5) == ["xxxxx", "xxxxx", "xx"]


def test_a_first_line_may_be_shorter_than_the_others() -> None:
    assert wrap("one two three four", 10, first=4) == ["one", "two three", "four"]
