"""The journal of copies into an environment: a line before each step that counts, on the disk before the step."""

from __future__ import annotations

import contextlib
import json
import os
import time

from . import disk, place
from .place import ID, read_small, step, write_all

__all__ = ["SETTLED", "Journal", "Past", "read_past"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = "journal.jsonl"
LIMIT = 4 << 20
"""Bytes of a journal that is read."""
FULL = 1 << 18
"""Bytes beyond which a new copy begins a new journal, with the last lines of the old one."""
KEPT = 200
SETTLED = ("done", "undone")
BEGINNING = b'{"state":'
STATES = ("claimed", "staged", "swapping", "swapped", "undoing", *SETTLED)


class Past:
    """What a journal tells."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        """Those that make sense."""
        self.problem = ""
        """Why it can't be relied on; a last line without an end is no fault: its step was not begun."""
        self.size = 0
        self.torn = 0
        """Bytes at its end that are the beginning of a line."""

    @property
    def last(self) -> dict[str, Any] | None:
        """The last line; None for no copy so far."""
        return self.lines[-1] if self.lines else None

    @property
    def unsettled(self) -> dict[str, Any] | None:
        """All that is known of a copy that was not brought to its end, as one line."""
        last = self.last
        if last is None or last["state"] in SETTLED:
            return None
        whole: dict[str, Any] = {}
        for line in self.lines:
            if line["id"] == last["id"]:
                whole.update(line)
        return whole


def read_past(folder: int) -> Past:
    """The journal in a folder of ours; an empty one when there is none."""
    past = Past()
    try:
        data = read_small(folder, NAME, LIMIT)
    except FileNotFoundError:
        return past
    except OSError as error:
        past.problem = f"{NAME} can't be read: {error.strerror}"
        return past
    past.size = len(data)
    *lines, rest = data.split(b"\n")
    for number, text in enumerate(lines, 1):
        line = _line(text)
        if line is not None:
            past.lines.append(line)
        elif text.strip() and not past.problem:
            past.problem = f"line {number} of {NAME} makes no sense"
    last = _line(rest)
    if last is not None:
        past.lines.append(last)
    elif rest.startswith(BEGINNING) or BEGINNING.startswith(rest) or not rest.strip(b"\0"):
        past.torn = len(rest)
    elif not past.problem:
        past.problem = f"the end of {NAME} makes no sense"
    return past


def _line(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("state") not in STATES:
        return None
    number, at = value.get("id"), value.get("at")
    if not isinstance(number, str) or not ID.fullmatch(number):
        return None
    return value if place.is_time(at) else None


class Journal:
    """Writes the lines of one copy. Raises OSError."""

    def __init__(self, folder: int, number: str, **about: object) -> None:
        self._folder = folder
        self._about = {"id": number, **about}

    def write(self, state: str, **more: object) -> None:
        """A line, on the disk when it returns; `more` is what recovery needs."""
        line = {"state": state, **self._about, "at": round(time.time(), 3), **more}
        text = json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"
        step(f"journal {state}")
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(NAME, flags, 0o600, dir_fd=self._folder)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                text = b"\n" + text
            try:
                write_all(fd, text)
            except OSError:
                # A part of a line would make all of it doubtful.
                os.ftruncate(fd, size)
                raise
            step(f"fsync journal {state}")
            os.fsync(fd)
        finally:
            os.close(fd)
        if not size:
            disk.sync_folder(self._folder)


def begin_anew(folder: int, past: Past) -> str:
    """Set a journal aside that can't be relied on, or write one anew that grew long or was cut short.

    What was done, for a damaged one.

    Only when nothing is unsettled. Raises OSError.
    """
    if past.problem:
        aside = f"damaged-{place.new_id()}.jsonl"
        step("set journal aside")
        with contextlib.suppress(FileNotFoundError):
            disk.rename(folder, NAME, folder, aside)
        disk.sync_folder(folder)
        return f"{past.problem}; it was set aside as {place.FOLDER}/{aside}"
    if past.size > FULL or past.torn:
        kept = past.lines[-KEPT:]
        data = b"".join(json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n" for line in kept)
        _replace(folder, data)
    return ""


def _replace(folder: int, data: bytes) -> None:
    fresh = f".{NAME}.new"
    step("shorten journal")
    disk.remove(folder, fresh)
    fd = os.open(
        fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
    )
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    disk.rename(folder, fresh, folder, NAME)
    disk.sync_folder(folder)
