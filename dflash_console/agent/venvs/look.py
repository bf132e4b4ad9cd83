"""Looks at files and remembers what was there, so that one stat a path tells whether anything changed since.

Only regular files are opened; a dead mount still hangs the look, so it belongs into a child.
What is larger than is read is noted in `cut`.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import stat
import time

from ..regular import kind_of, read_regular

__all__ = ["Look", "has_changed", "mark_of", "native", "shown"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    Mark = Union["list[int]", int]

NAMES_LIMIT = 20000
"""Entries of a folder that are looked at."""
_ESCAPED = re.compile(r"\\x(5c|[89a-f][0-9a-f])")
YOUNG = 1_500_000_000
"""Nanoseconds. After a change this close to the look, a second one may bear the same time."""


def mark_of(path: str) -> Mark:
    """What changes when the file does, or another takes its place; the error's number when it isn't there."""
    try:
        seen = os.stat(path)
    except OSError as error:
        return error.errno or errno.EIO
    except ValueError:  # a NUL, from a .pth line
        return errno.EINVAL
    return [seen.st_dev, seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns]


def has_changed(marks: dict[str, Mark]) -> bool:
    """Whether any of the files is not as it was marked. About 2 microseconds a file."""
    return any(mark_of(path) != mark for path, mark in marks.items())


def shown(text: str) -> str:
    """The text without lone surrogates, which JSON can't carry: bytes that are no UTF-8 become `\\xNN`.

    `native` makes the same path of it again; so what only looks like such a byte gets its backslash escaped.
    """
    if "\\" in text:
        text = _ESCAPED.sub(r"\\x5cx\1", text)
    try:
        return os.fsencode(text).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


def native(text: str) -> str:
    """A path of the console's, as in the config or as `shown`, as this system's calls take it in any locale."""
    data = text.encode("utf-8", "surrogateescape")
    if "\\" in text:
        parts = _ESCAPED.split(text)
        halves = [part.encode("utf-8", "surrogateescape") for part in parts[::2]]
        codes = [bytes([int(code, 16)]) for code in parts[1::2]]
        data = b"".join(part for pair in zip(halves, [*codes, b""]) for part in pair)
    return os.fsdecode(data)


class Look:
    """One look at many files, with a mark of each taken before it was read."""

    def __init__(self) -> None:
        self.marks: dict[str, Mark] = {}
        self.errors: dict[str, int] = {}
        """Why a file could not be looked at or read, by the system's number; ENOENT and the like included."""
        self.odd: dict[str, str] = {}
        """What has a file's place and is none, by path: `a FIFO`."""
        self.cut: list[str] = []
        """Files and folders that hold more than was read of them."""
        self._names: dict[str, list[str]] = {}
        self._began = time.time_ns()

    def mark(self, path: str) -> Mark:
        """The file's mark, as it was when it was first looked at."""
        known = self.marks.get(path)
        if known is None:
            known = self.marks[path] = mark_of(path)
            if isinstance(known, int):
                self.errors[path] = known
        return known

    def is_folder(self, path: str) -> bool:
        """Whether a folder is there, through links."""
        mark = self.mark(path)
        return not isinstance(mark, int) and stat.S_ISDIR(mark[2])

    def size(self, path: str) -> int | None:
        """A regular file's size in bytes, through links; None when there is no such file."""
        mark = self.mark(path)
        return None if isinstance(mark, int) or not stat.S_ISREG(mark[2]) else mark[3]

    def odd_at(self, path: str) -> str:
        """What is there if that is neither a regular file nor a link to one: `a FIFO`; empty when nothing is odd."""
        mark = self.mark(path)
        odd = "" if isinstance(mark, int) else kind_of(mark[2])
        if odd:
            self.odd[path] = odd
        return odd

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted, as they were when first asked for; none when it can't be read."""
        if folder not in self._names:
            self.mark(folder)
            try:
                with os.scandir(folder) as entries:
                    names = [entry.name for entry in itertools.islice(entries, NAMES_LIMIT + 1)]
            except (OSError, ValueError):
                names = []
            if len(names) > NAMES_LIMIT:
                self.cut.append(folder)
                del names[NAMES_LIMIT:]
            self._names[folder] = sorted(names)
        return self._names[folder]

    def text(self, path: str, limit: int = 1 << 16, *, is_head: bool = False) -> str | None:
        """A regular file's first `limit` bytes; None when there is none or it can't be read (see `errors`).

        `is_head` says that no more than the beginning is wanted. Bytes that are no UTF-8 become surrogates, so
        that a path in the text can be opened.
        """
        if self.size(path) is None:
            self.odd_at(path)
            return None
        try:
            data = read_regular(path, limit if is_head else limit + 1)
        except OSError as error:
            self.errors[path] = error.errno or errno.EIO
            return None
        if len(data) > limit:
            self.cut.append(path)
        return data[:limit].decode("utf-8", "surrogateescape")

    @property
    def is_young(self) -> bool:
        """Whether a file changed so shortly before the look that one more is due."""
        return any(not isinstance(m, int) and abs(m[5] - self._began) < YOUNG for m in self.marks.values())
