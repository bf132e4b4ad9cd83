"""Fixtures for real SSH servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.link.sshd import SSHD
from tests.link.world import HostKeys, World


@pytest.fixture(scope="session")
def host_keys(tmp_path_factory: pytest.TempPathFactory) -> HostKeys:
    return HostKeys(tmp_path_factory.mktemp("host_keys"))


@pytest.fixture
def world(tmp_path: Path, host_keys: HostKeys, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    if SSHD is None:
        pytest.skip("needs OpenSSH's sshd (Debian: openssh-server)")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    world = World(tmp_path, host_keys)
    yield world
    world.close()
