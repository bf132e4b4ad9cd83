"""How two listings differ."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest

from dflash_console.copies import Difference, Entry
from dflash_console.operations.comparing import FOLDERS, Known, Matching, difference, folders_of
from tests.operations.copies import entry


def test_files_are_told_apart_by_content_and_kind_and_what_may_be_run() -> None:
    left = [
        entry("sglang/same.py"),
        entry("sglang/text.py", "1"),
        entry("sglang/run.sh", mode=0o755),
        entry("sglang/link", kind="link", content="same.py"),
        entry("sglang/new.py", size=7),
    ]
    right = [
        entry("sglang/same.py", mode=0o600),
        entry("sglang/text.py", "2"),
        entry("sglang/run.sh", mode=0o644),
        entry("sglang/link", content="same.py"),
        entry("sglang/old.py"),
    ]
    found = difference(left, right)
    assert [each.path for each in found.added] == ["sglang/new.py"]
    assert [each.path for each in found.changed] == ["sglang/link", "sglang/run.sh", "sglang/text.py"]
    assert [each.path for each in found.removed] == ["sglang/old.py"]
    assert found.same == 1
    assert found.changed[2].content == "1", "as the source has it"


def test_equal_trees_differ_in_nothing_whatever_their_order() -> None:
    files = [entry(f"sglang/{number}.py", str(number)) for number in range(50)]
    found = difference(files, reversed(files))
    assert (found.added, found.changed, found.removed, found.same) == ((), (), (), 50)


def matched(left: Sequence[Entry], *parts: Sequence[Entry]) -> tuple[Difference, int]:
    """The right side comes in parts."""
    matching = Matching(Known(tuple(left)))
    for part in parts:
        matching.take(part)
    assert matching.difference() == matching.difference()
    return matching.difference()


def test_only_files_that_are_new_or_other_have_to_be_sent() -> None:
    left = [entry("a", size=5), entry("b", "1", size=7), entry("c", size=11), entry("l", kind="link", size=9)]
    right = [entry("b", "2", size=7), entry("c", size=11), entry("d", size=100)]
    found, size = matched(left, right)
    assert size == 12
    assert (found.added, found.changed, found.removed, found.same) == (2, 1, 1, 1)


def test_a_listing_that_comes_in_parts_differs_as_a_whole_one() -> None:
    left = [entry(f"sglang/{number}.py", str(number % 7)) for number in range(100)]
    right = [entry(f"sglang/{number}.py", str(number % 5)) for number in range(50, 150)]
    whole = difference(left, right)
    found, _ = matched(left, right[:1], [], right[1:60], right[60:])
    assert (found.added, found.changed, found.removed, found.same) == (
        *map(len, (whole.added, whole.changed, whole.removed)),
        whole.same,
    )
    assert found.folders == folders_of(whole)


def test_of_a_path_that_comes_twice_the_first_counts() -> None:
    found, _ = matched([entry("a", "1"), entry("b", "1")], [entry("a", "1"), entry("a", "2")])
    assert (found.added, found.changed, found.removed, found.same) == (1, 0, 0, 1)


def test_files_are_counted_by_the_upper_folders_and_not_by_more_than_any_would_read() -> None:
    paths = ("sglang/a.py", "sglang/srt/x/y/z/deep.py", "sglang/srt/x/b.py", "sglang-1.dist-info/RECORD", "c")
    found, _ = matched([entry(path) for path in paths], [entry("sglang/srt/x/old.py")])
    assert found.folders == (
        ("sglang/srt/x", 2, 0, 1),
        (".", 1, 0, 0),
        ("sglang", 1, 0, 0),
        ("sglang-1.dist-info", 1, 0, 0),
    )
    many = [entry(f"sglang/{number}/x.py") for number in range(FOLDERS + 30)]
    found, _ = matched(many, [])
    assert (len(found.folders), found.more_folders, found.added) == (FOLDERS, 30, FOLDERS + 30)


@pytest.mark.parametrize("is_same", [True, False])
def test_a_listing_is_not_kept_for_its_difference(is_same: bool) -> None:
    """20,000 files take 7 MB."""
    known = Known(tuple(entry(f"sglang/srt/{number:06}.py", f"{number:064}") for number in range(20_000)))

    def part(at: int) -> list[Entry]:
        word = "srt" if is_same else "old"
        numbers = range(at, at + 1000)
        return [entry(f"sglang/{word}/{number:06}.py", f"{number:064}") for number in numbers]

    tracemalloc.start()
    try:
        matching = Matching(known)
        for at in range(0, 20_000, 1000):
            matching.take(part(at))
        found, _ = matching.difference()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found.same, found.removed) == ((20_000, 0) if is_same else (0, 20_000))
    assert kept < 1 << 20
