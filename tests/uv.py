"""The real uv for the tests, laid once in their cache by pip."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.wheels import cache

__all__ = ["uv"]


def uv() -> Path:
    """Its program."""
    folder = cache() / "uv"
    if not folder.exists():
        cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache(), prefix=".uv-", ignore_cleanup_errors=True) as name:
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--target",
                f"{name}/uv",
                "uv",
            ]
            subprocess.run(command, check=True, timeout=600)
            Path(name, "uv").rename(folder)
    return folder / "bin" / "uv"
