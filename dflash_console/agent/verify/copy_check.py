"""The check `copy`: whether a copy into the environment is under way or was cut short."""

from __future__ import annotations

import os

from ..venvs.copies import FOLDER, read_copies
from ..venvs.look import Look
from .checks import check, when

__all__ = ["check_copy"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .ground import Ground


def check_copy(ground: Ground) -> dict[str, Any]:
    """What copies of ours left, by the same words as the watched picture's."""
    # Looked at apart: what a copy keeps makes no verification stale, the files that it lays do.
    look = Look()
    copies = read_copies(ground.folder, look)
    folder = f"{ground.folder}/{FOLDER}"
    try:
        left = sorted(f"{folder}/{name}" for name in os.listdir(folder) if name.startswith("stage-"))
    except (FileNotFoundError, NotADirectoryError):
        left = []
    except OSError as error:
        return check("copy", "unknown", f"{folder}: {error.strerror}")
    if copies.running:
        return check("copy", "warn", f"runs right now: {copies.running}", left)
    if copies.interrupted:
        return check("copy", "warn", f"not settled: {copies.interrupted}; see {folder}", left)
    told = copies.copied
    if told is None:
        return check("copy", "pass", "none under way")
    if isinstance(told["at"], dict):
        return check("copy", "pass", f"none under way; when the last one was: {told['at']['detail']}")
    words = f"{told['from_version']} from {told['from_host']}:{told['from_venv']}".strip()
    by = f" by {told['by']}" if told["by"] else ""
    return check("copy", "pass", f"none under way; the last brought {words} at {when(told['at'])}{by}")
