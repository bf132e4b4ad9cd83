"""What is said of a change that did not come to its planned end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dflash_console.operations.ending import since_words

NOW = datetime(2026, 3, 1, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (datetime(2026, 3, 1, 0, 29, 59, tzinfo=UTC), "00:29:59 UTC"),
        (datetime(2026, 2, 28, 23, 50, tzinfo=UTC), "2026-02-28 23:50:00 UTC"),
        (datetime(2025, 3, 1, 0, 29, 59, tzinfo=UTC), "2025-03-01 00:29:59 UTC"),
    ],
)
def test_a_point_in_time_tells_its_day_when_that_is_not_today(at: datetime, words: str) -> None:
    assert since_words(at.timestamp(), NOW.timestamp()) == words
