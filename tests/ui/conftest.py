"""Pseudo terminals for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ui.terminals import Terminal


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """Terminals that are closed after the test."""
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()
