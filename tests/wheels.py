"""Real sglang wheels for the tests, downloaded once and unpacked when first asked for.

They lie in $DFLASH_TEST_CACHE, else in the user's cache folder. 0.5.9 has no DFlash modules, 0.5.13.post1 has
dflash_worker (and one compiled file for Python 3.11), 0.5.23 has dflash_worker_v2.
"""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs

__all__ = ["VERSIONS", "cache", "lay", "spoilt", "wheel"]

VERSIONS = ("0.5.9", "0.5.13.post1", "0.5.23")


def cache() -> Path:
    """The folder that is kept between runs."""
    named = os.environ.get("DFLASH_TEST_CACHE")
    return Path(named) if named else platformdirs.user_cache_path("dflash-console-tests")


def wheel(version: str, name: str = "sglang") -> Path:
    """An unpacked wheel: a folder with `sglang/` and its dist-info. Shared: never change it."""
    tree = cache() / "trees" / f"{name}-{version}"
    if not tree.exists():
        archives = (cache() / "wheels").glob(f"{name}-{version}-*.whl")
        archive = next(archives, None) or _download(name, version)
        with _beside(tree) as folder, zipfile.ZipFile(archive) as file:
            file.extractall(folder)
            _move(folder, tree)
    return tree


def lay(version: str, site: Path) -> None:
    """Put a wheel's tree into a site-packages folder.

    By hard links where it can be, so replace a file to change it (unlink it first), never write into it.
    """
    shutil.copytree(wheel(version), site, dirs_exist_ok=True, copy_function=_link)


def spoilt() -> list[Path]:
    """The files of shared trees that a test has written into, by their sizes in RECORD."""
    found = []
    for record in (cache() / "trees").glob("*/*.dist-info/RECORD"):
        tree = record.parent.parent
        with record.open(newline="") as lines:
            for name, _, size in csv.reader(lines):
                if size and (tree / name).stat().st_size != int(size):
                    found.append(tree / name)
    return found


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _download(name: str, version: str) -> Path:
    wheels = cache() / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    with _beside(wheels) as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--python-version",
            "3.11",
        ]
        command += ["--only-binary=:all:", "--dest", str(folder), f"{name}=={version}"]
        subprocess.run(command, check=True, timeout=600)
        (archive,) = folder.glob("*.whl")
        archive.replace(wheels / archive.name)
    return wheels / archive.name


@contextlib.contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """A folder on the same filesystem that goes away afterwards, unless it was moved."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        dir=place.parent, prefix=f".{place.name}-", ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


def _move(folder: Path, tree: Path) -> None:
    folder.chmod(0o755)
    with contextlib.suppress(OSError):  # another run was faster
        folder.rename(tree)
