"""Which lines of two texts differ."""

from __future__ import annotations

import random

import pytest

from dflash_console.ui.differences import Difference, Pair, differences, spans


def sides(found: Difference) -> tuple[list[str], list[str]]:
    """Both texts, put together again from the pairs."""
    left = [pair.left for pair in found.pairs if pair.left_number]
    right = [pair.right for pair in found.pairs if pair.right_number]
    return left, right


def changed(found: Difference) -> list[tuple[str, int, int]]:
    """What differs: kind and line numbers."""
    return [(p.kind, p.left_number, p.right_number) for p in found.pairs if p.kind != "same"]


@pytest.mark.parametrize(
    ("left", "right", "expected", "changes"),
    [
        ("", "", [], 0),
        ("a\nb\n", "a\nb\n", [], 0),
        ("", "a\n", [("right", 0, 1)], 1),
        ("a\n", "", [("left", 1, 0)], 1),
        ("a\nb\nc\n", "a\nX\nc\n", [("changed", 2, 2)], 1),
        ("a\nb\n", "a\nx\nb\n", [("right", 0, 2)], 1),
        ("a\nb\nc\nd\n", "b\nc\nd\ne\n", [("left", 1, 0), ("right", 0, 4)], 2),
        ("x\nx\nx\n", "x\nx\n", [("left", 3, 0)], 1),
    ],
)
def test_lines_are_paired(left: str, right: str, expected: list[tuple[str, int, int]], changes: int) -> None:
    found = differences(left, right)
    assert changed(found) == expected
    assert found.changes == changes


@pytest.mark.parametrize("seed", range(40))
def test_both_texts_are_whole_in_the_pairs_whatever_they_are(seed: int) -> None:
    draw = random.Random(seed)
    words = [f"w{number}" for number in range(draw.choice((2, 5, 40, 400)))]
    left = [draw.choice(words) for _ in range(draw.randint(0, 120))]
    right = [line for line in left if draw.random() < 0.9]
    for _ in range(draw.randint(0, 20)):
        right.insert(draw.randint(0, len(right)), draw.choice(words))
    found = differences("\n".join(left), "\n".join(right))
    assert sides(found) == (left, right)
    assert all(pair.left == pair.right for pair in found.pairs if pair.kind == "same")
    numbers = [pair.left_number for pair in found.pairs if pair.left_number]
    assert numbers == sorted(numbers)


def test_texts_of_very_many_lines_take_little_work() -> None:
    left = [f"line {number} of something" for number in range(50_000)]
    right = list(left)
    for at in range(0, 50_000, 500):
        right[at] = f"another {at}"
    found = differences("\n".join(left), "\n".join(right))
    assert found.changes == 100
    assert len(found.folded) < 100 * 8


def test_what_has_no_line_in_common_is_one_change_however_long() -> None:
    found = differences("\n".join("ab" * 20_000), "\n".join("cd" * 20_000))
    assert found.changes == 1


def test_far_from_a_change_equal_lines_are_folded() -> None:
    left = [str(number) for number in range(100)]
    found = differences("\n".join(left), "\n".join([*left[:50], "new", *left[50:]]))
    kinds = [pair.kind for pair in found.folded]
    assert kinds == ["gap", "same", "same", "same", "right", "same", "same", "same", "gap"]
    assert [pair.skipped for pair in found.folded if pair.kind == "gap"] == [47, 47]
    assert Pair("gap", skipped=47) in found.folded


def test_of_a_changed_line_the_part_that_changed_is_told() -> None:
    assert spans("def f(limit=10):", "def f(limit=64):") == (12, 14, 14)
    assert spans("aa", "aaa") == (2, 2, 3)
    assert spans("", "x") == (0, 0, 1)
