"""What holds for the tests of all rooms."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.wheels import spoilt

# Nothing here is drawn to the width of the terminal that the tests were started in, which pytest-xdist tells its
# workers.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)


@pytest.fixture(scope="module", autouse=True)
def shared_trees_are_left_as_they_are() -> Iterator[None]:
    """Trees are laid by hard links: a file that is written instead of replaced is spoilt for all who come later."""
    yield
    assert spoilt() == []
