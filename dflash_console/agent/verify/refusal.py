"""Why a unit that does not run will not start, whatever the package is like."""

from __future__ import annotations

import os
import stat

from .hiding import hidden_by

__all__ = ["refusal"]

REFUSED = ("bad-setting", "error")
OWN_ROOT = ("RootDirectory", "RootImage")


def refusal(block: dict[str, str], program: str, script: str) -> str:
    """The reason in words, by systemd's properties of the unit, the program that it starts and the script that is this
    one's; empty when none is known."""
    state = block.get("LoadState", "")
    if state in REFUSED:
        words = block.get("LoadError", "").partition('"')[2].rstrip('"')
        return f"systemd refuses it ({state}){': ' if words else ''}{words}"
    if any(block.get(name) for name in OWN_ROOT):
        return ""
    return _absent(block, program, is_executed=True) or _absent(block, script, is_executed=False)


def _absent(block: dict[str, str], path: str, *, is_executed: bool) -> str:
    """Why there is nothing to start at a path; empty when there is, and where the unit may see something else there."""
    if not path.startswith("/") or hidden_by(block, path)[0]:
        return ""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return f"{path} is not there"
    except OSError:
        return ""
    if not is_executed or not stat.S_ISREG(status.st_mode) or status.st_mode & 0o111:
        return ""
    return f"{path} may not be executed (mode {stat.S_IMODE(status.st_mode):04o})"
