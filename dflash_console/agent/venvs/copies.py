"""What copies of the package left in an environment: where it came from, what changed since, and what is unsettled.

All of it is in `<venv>/.dflash-console/`, and may be spoilt or written by somebody else: nothing of it is trusted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import time

from ..regular import read_regular, read_tail
from ..section import missing, shortened

__all__ = ["SETTLED", "Copies", "count_changes", "read_copies"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .look import Look

FOLDER = ".dflash-console"
SETTLED = ("done", "undone")
"""The states of a journal's last line after which nothing is left to do."""
NO_COPY = "null"
"""The text of a provenance that came with a rollback to a package which no copy had brought."""
SMALL = 1 << 16
"""Bytes of a provenance, of a lock, and of the end of a journal that are read."""
MANIFEST_LIMIT = 24 << 20
"""Bytes of a manifest; one of 100,000 files has 20 MB."""
PATIENCE = 2.0
"""Seconds after which a count is given up: whoever waits for it would take the environment for hung."""
LONGEST = 300
LATEST = 1e11
CACHE = "__pycache__"


class Copies:
    """What the folder of copies tells."""

    def __init__(self) -> None:
        self.copied: dict[str, Any] | None = None
        """A model.Copied without `changed`; None when no copy is known."""
        self.interrupted = ""
        """Which copy is not settled, by whom and since when; empty while one runs, and when none is."""
        self.running = ""
        """Which copy runs right now, in the same words."""


def read_copies(venv: str, look: Look) -> Copies:
    """What is known of copies into an environment; takes a millisecond, and marks what it looks at."""
    copies = Copies()
    folder = f"{venv}/{FOLDER}"
    if not look.is_folder(folder):
        return copies
    path = f"{folder}/provenance.json"
    text = look.text(path, SMALL)
    number = look.errors.get(path, 0)
    if number not in (0, errno.ENOENT):
        reason = "permission" if number in (errno.EACCES, errno.EPERM) else "error"
        copies.copied = {**_copied(""), "at": missing(reason, f"{path}: {os.strerror(number)}")}
    elif (text is not None and text.strip() != NO_COPY) or path in look.odd:
        copies.copied = _copied(text or "")
    look.mark(f"{folder}/manifest.json")
    unsettled = _unsettled(f"{folder}/journal.jsonl", look)
    stages = [name for name in look.names(folder) if name.startswith("stage-")]
    if unsettled or stages:
        copies.running = _running(f"{folder}/lock")
        if not copies.running:
            copies.interrupted = unsettled or f"a copy that no journal tells of left {stages[0]}"
    return copies


def _copied(text: str) -> dict[str, Any]:
    told = _object(text)
    copied: dict[str, Any] = {
        key: _words(told, key) for key in ("from_host", "from_venv", "from_version", "by")
    }
    at = _time(told, "at")
    copied["at"] = missing("error", "provenance.json does not tell") if at is None else at
    copied["verified"] = told.get("verified") is not False
    return copied


# ---- a copy that was begun


def _unsettled(path: str, look: Look) -> str:
    """The copy that a journal's last whole line leaves open, in words; empty when none is."""
    mark = look.mark(path)
    if isinstance(mark, int):
        return "" if mark == errno.ENOENT else f"its journal can't be read: {os.strerror(mark)}"
    odd = look.odd_at(path)
    if odd:
        return f"its journal is {odd}, not a file"
    try:
        data = read_tail(path, SMALL)
    except OSError as error:
        look.errors[path] = error.errno or errno.EIO
        return f"its journal can't be read: {error.strerror}"
    lines = [_object(line) for line in data.decode("utf-8", "replace").split("\n") if line.strip()]
    # A last line that was cut short is of a step that was not begun.
    told = [line for line in lines if isinstance(line.get("state"), str)]
    if not told:
        return "its journal makes no sense" if lines else ""
    last = told[-1]
    if last["state"] in SETTLED:
        return ""
    same: dict[str, Any] = {}
    for line in reversed(told):
        if line.get("id") != last.get("id"):
            break
        same = {**line, **same, "at": line.get("at")}
    return f"{_described(same, 'at')}, {_words(last, 'state', 40)}"


def _running(path: str) -> str:
    """Who holds the lock of a running copy, in words; empty when nobody does."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _described(_object(os.pread(fd, SMALL, 0).decode("utf-8", "replace")), "since")
        except OSError:  # a filesystem without locks
            return ""
        return ""
    finally:
        os.close(fd)


def _described(told: dict[str, Any], time_key: str) -> str:
    """`copy from ct129 by kim@laptop since 2026-11-30 02:58:11`, as far as it is told."""
    words = _words(told, "what") or "a copy"
    source, by, since = _words(told, "from_host"), _words(told, "by"), _time(told, time_key)
    if source and source not in words:
        words += f" from {source}"
    if by and by not in words:
        words += f" by {by}"
    if since is not None:
        words += f" since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(since))}"
    return words


def _object(text: str) -> dict[str, Any]:
    """A JSON object; an empty one for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _time(told: dict[str, Any], key: str) -> float | None:
    value = told.get(key)
    is_time = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= LATEST
    return value if is_time else None


def _words(told: dict[str, Any], key: str, limit: int = LONGEST) -> str:
    value = told.get(key)
    return shortened(value, limit) if isinstance(value, str) else ""


# ---- what changed since


def count_changes(venv: str, sites: list[str]) -> int | dict[str, str]:
    """How many files were changed, removed or added since the copy, by size, mtime and inode; else missing(...).

    About 4 microseconds of CPU a file.
    """
    try:
        data = read_regular(f"{venv}/{FOLDER}/manifest.json", MANIFEST_LIMIT + 1)
        if len(data) > MANIFEST_LIMIT:
            return missing("error", f"manifest.json has more than {MANIFEST_LIMIT >> 20} MB")
        listed = json.loads(data)["entries"]
        laid = {entry[0]: (entry[1], entry[3], entry[5]) for entry in listed}
        tops = sorted({path.partition("/")[0] for path in laid})
    except FileNotFoundError:
        return missing("not_found", "no manifest.json")
    except OSError as error:
        return missing("error", f"manifest.json can't be read: {error.strerror}")
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return missing("error", "manifest.json makes no sense")
    if not tops or not all(isinstance(path, str) for path in laid) or {"", ".", ".."} & set(tops):
        return missing("error", "manifest.json lists nothing that can be in site-packages")
    site = next((site for site in sites if any(os.path.lexists(f"{site}/{top}") for top in tops)), "")
    if not site:
        return len(laid)
    try:
        return _count(site, tops, laid, time.monotonic() + PATIENCE)
    except TimeoutError:
        return missing("hung", f"its files can't be looked at within {PATIENCE:g} s")
    except OSError as error:
        return missing("error", error.strerror or str(error))


def _count(site: str, tops: list[str], laid: dict[str, tuple[int, int, int]], until: float) -> int:
    changed = 0
    unseen = len(laid)
    waiting = []
    for top in tops:
        with contextlib.suppress(FileNotFoundError):
            seen = os.lstat(f"{site}/{top}")
            if stat.S_ISDIR(seen.st_mode):
                waiting.append(f"{top}/")
            elif top in laid:
                unseen -= 1
                changed += laid[top] != (seen.st_size, seen.st_mtime_ns, seen.st_ino)
    while waiting:
        if time.monotonic() > until:
            raise TimeoutError
        prefix = waiting.pop()
        # By descriptor: the kernel then looks up a name and not a long path for each file.
        folder = os.open(f"{site}/{prefix}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if name != CACHE:
                            waiting.append(f"{prefix}{name}/")
                        continue
                    was = laid.get(prefix + name)
                    if was is None:
                        changed += 1
                        continue
                    unseen -= 1
                    seen = entry.stat(follow_symlinks=False)
                    changed += was != (seen.st_size, seen.st_mtime_ns, seen.st_ino)
        finally:
            os.close(folder)
    return changed + unseen
