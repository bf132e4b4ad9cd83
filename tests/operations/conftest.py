"""What the tests of several operations need."""

from __future__ import annotations

import pytest

from dflash_console.operations import remote


@pytest.fixture
def asked_of_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has `find_spec` be answered as the fleet is told, and never by a copy process."""

    async def no_short_way(*_: object) -> None:
        return None

    monkeypatch.setattr(remote, "find_spec", no_short_way)
