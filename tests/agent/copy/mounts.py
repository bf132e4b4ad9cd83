"""Filesystems for a test: small ones in memory, layers as in a container, mounts over a folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

__all__ = ["bound", "layered", "mounted", "remounted"]


def mounted(folder: Path, *options: str, kind: str = "tmpfs", source: str = "none") -> ExitStack:
    """Mount something at a folder, which is made; unmounted when the stack is closed."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["-o", ",".join(options)] if options else []
    return _mount(folder, ["-t", kind, *words, source, str(folder)])


def bound(source: Path, folder: Path) -> ExitStack:
    """Mount a folder over another one."""
    return _mount(folder, ["--bind", str(source), str(folder)])


def remounted(folder: Path, options: str) -> None:
    """Change the options of a mount."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True, timeout=30)


@contextmanager
def layered(folder: Path, lower: Path) -> Iterator[Path]:
    """`lower` as the layer of an image, below a writable one; gives back the folder to work in.

    In memory: an overlay can't lie on another overlay.
    """
    with mounted(folder / "memory"):
        for name in ("lower", "upper", "work"):
            (folder / "memory" / name).mkdir()
        subprocess.run(["cp", "-a", f"{lower}/.", str(folder / "memory" / "lower")], check=True, timeout=60)
        layers = [f"{name}dir={folder}/memory/{name}" for name in ("lower", "upper", "work")]
        with mounted(folder / "merged", *layers, kind="overlay", source="overlay"):
            yield folder / "merged"


def _mount(folder: Path, words: list[str]) -> ExitStack:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        why = f"can't mount here: {done.stderr.strip()}"
        # Where the real hosts have to be, this has to work as well.
        if os.environ.get("DFLASH_REQUIRE_HOSTS"):
            pytest.fail(why)
        pytest.skip(why)
    stack = ExitStack()
    # Lazily: what a failed test still holds open must not keep the mount.
    stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=True, timeout=30)
    return stack
