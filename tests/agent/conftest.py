"""Fixtures of the agent's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.environments import make_venv


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment without packages."""
    make_venv(tmp_path / "venv")
    return tmp_path / "venv"


@pytest.fixture
def site(venv: Path) -> Path:
    """Its site-packages."""
    (site,) = venv.glob("lib/python3.*/site-packages")
    return site
