"""What stands in a file's place and is none, such as a FIFO: each is named in the check that it spoils.

Python opens every .pth file of its site-packages when it starts: it waits for ever at a FIFO, and reads an endless
device until there is no memory left. So it is not started there at all.
"""

from __future__ import annotations

import os
import stat

from .checks import DETAIL_LIMIT, one_line
from .checks import check as new_check

__all__ = ["obstacle", "with_odd_files"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..venvs.look import Look

SPOILT = {
    "pyvenv.cfg": "python",
    "METADATA": "version",
    "PKG-INFO": "version",
    "direct_url.json": "version",
    "RECORD": "record",
}
"""By file name the check that goes by such a file; `.pth` files belong to `python`, code to `modules`."""
WAITED_FOR = ("a FIFO", "a device")
"""What a program that opens it may wait for, or read without end."""
RANK = ("pass", "warn", "unknown", "fail")
NULL = os.makedev(1, 3)
"""/dev/null, which people link a file to that is to be empty."""


def obstacle(look: Look) -> str:
    """What keeps any Python of the environment from starting, in words; empty when nothing is known to."""
    for path, odd in look.odd.items():
        if odd in WAITED_FOR and _check_of(path) == "python" and not _is_null(path):
            end = "Python waits there for ever" if odd == "a FIFO" else "Python reads it without end"
            return f"{path} is {odd}, not a file: {end} when it starts"
    return ""


def with_odd_files(checks: list[dict[str, Any]], look: Look) -> list[dict[str, Any]]:
    """The checks, with what is odd named in the one that it spoils unless one names it yet."""
    stops = obstacle(look)
    told = list(checks)
    for path, odd in sorted(look.odd.items()):
        shown = one_line(path, DETAIL_LIMIT)
        if _is_null(path) or any(shown in check["detail"] for check in told):
            continue
        words = stops if stops.startswith(f"{path} ") else f"{path} is {odd}, not a file"
        for at, check in enumerate(told):
            if check["name"] == _check_of(path):
                told[at] = _with(check, words, "fail" if words == stops else "warn")
    return told


def _with(check: dict[str, Any], words: str, state: str) -> dict[str, Any]:
    worse = max(check["state"], state, key=RANK.index)
    detail = words if check["state"] == "pass" else f"{words}; {check['detail']}"
    return new_check(check["name"], worse, detail, [words, *check["evidence"]])


def _check_of(path: str) -> str:
    if path.endswith((".pth", ".py")):
        return "python" if path.endswith(".pth") else "modules"
    return SPOILT.get(os.path.basename(path), "")


def _is_null(path: str) -> bool:
    """Whether it reads as an empty file."""
    try:
        seen = os.stat(path)
    except OSError:
        return False
    return stat.S_ISCHR(seen.st_mode) and seen.st_rdev == NULL
