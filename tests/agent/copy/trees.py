"""Small packages in real environments, and what a listing of them has to say."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dflash_console.agent.copy.hashing import Cache
from dflash_console.agent.copy.listing import Listing, list_files
from dflash_console.agent.copy.pipe import Pipe
from tests.agent.copy.client import Client, boot_copy

__all__ = ["HeedlessPipe", "copying", "expected", "listed", "package"]


class HeedlessPipe(Pipe):
    """No console: a function is called in the moments in which one would be looked after."""

    def __init__(self) -> None:
        self.minded = 0

    def mind(self) -> None:
        self.minded += 1

    def progress(self, files: int, size: int) -> None:
        self.mind()


def package(site: Path, name: str = "sglang", version: str = "0.5.9") -> Path:
    """A package of a few files with its dist-info; gives back its folder."""
    folder = site / name
    (folder / "srt").mkdir(parents=True)
    (folder / "__init__.py").write_text(f'__version__ = "{version}"\n')
    (folder / "srt" / "__init__.py").write_text("")
    (folder / "srt" / "server.py").write_text("print('hello')\n" * 100)
    (folder / "srt" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "srt" / "run.sh").chmod(0o775)
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("")
    return folder


def listed(site: Path, *names: str, pipe: Pipe | None = None, cache: Cache | None = None) -> Listing:
    """The listing of folders below another."""
    return list_files(str(site), list(names or ("sglang",)), cache or Cache(), pipe or HeedlessPipe())


def expected(site: Path, *names: str) -> list[list[object]]:
    """The entries of plain trees, found in another way: regular files alone, no bytecode."""
    rows: list[list[object]] = []
    for name in names:
        for folder, folders, files in os.walk(site / name):
            folders[:] = [each for each in folders if each != "__pycache__"]
            for file in files:
                path = Path(folder, file)
                data = path.read_bytes()
                mode = 0o755 if os.access(path, os.X_OK) else 0o644
                row = [str(path.relative_to(site)), "file", len(data), mode, hashlib.sha256(data).hexdigest()]
                rows.append(row)
    return sorted(rows)


@contextmanager
def copying(python: str = "", **options: object) -> Iterator[Client]:
    """A copy process that is ended afterwards."""
    client = boot_copy(python, **options)  # type: ignore[arg-type]
    try:
        yield client
    finally:
        client.close()
