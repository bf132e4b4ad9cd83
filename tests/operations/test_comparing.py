"""How two listings differ."""

from __future__ import annotations

from dflash_console.operations.comparing import difference, size_of
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


def test_only_files_that_are_new_or_other_have_to_be_sent() -> None:
    left = [entry("a", size=5), entry("b", "1", size=7), entry("c", size=11), entry("l", kind="link", size=9)]
    right = [entry("b", "2", size=7), entry("c", size=11), entry("d", size=100)]
    assert size_of(difference(left, right)) == 12
