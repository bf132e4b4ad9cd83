"""What lies in some folders, as a manifest lists it; what a known list has as it is now is not hashed again."""

from __future__ import annotations

import errno
import itertools
import os
import stat

from . import disk
from .digests import digests
from .place import MOST_PARTS, Fault

__all__ = ["has_same_content", "is_same", "line_of", "listed", "survey"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

CACHE = "__pycache__"
NAMES_LIMIT = 300_000


def line_of(path: str, seen: os.stat_result, content: str) -> list[Any]:
    """A file in a manifest."""
    return [path, seen.st_size, seen.st_mode, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino, content]


def survey(folder: int, tops: Iterable[str], known: Iterable[list[Any]] = ()) -> list[list[Any]]:
    """All files below the named things in a folder, links as links, without bytecode. Raises OSError, and Fault where
    folders are nested without end.

    Pipes, devices and sockets are left out.
    """
    before = {line[0]: line for line in known}
    lines = listed(folder, tops)
    to_hash: list[list[Any]] = []
    for line in lines:
        same = before.get(line[0])
        if same is not None and same[1:6] == line[1:6]:
            line[6] = same[6]
        elif stat.S_ISREG(line[2]):
            to_hash.append(line)
    _hash_all(folder, to_hash)
    return lines


def is_same(one: list[list[Any]], other: list[list[Any]]) -> bool:
    """Whether no file of a listing is another one, by what `listed` tells. Not by the time of change: a new hard link
    elsewhere sets that."""

    def marks(lines: list[list[Any]]) -> list[list[Any]]:
        return [[*line[:4], line[5]] for line in lines]

    return marks(one) == marks(other)


def has_same_content(one: list[list[Any]], other: list[list[Any]]) -> bool:
    """Whether two lists have the same files with the same hashes, wherever and whenever they were laid."""
    return {line[0]: line[6] for line in one} == {line[0]: line[6] for line in other}


def listed(folder: int, tops: Iterable[str]) -> list[list[Any]]:
    """As `survey`, with nothing read: a file's hash is empty."""
    lines: list[list[Any]] = []
    for top in tops:
        try:
            seen = os.stat(top, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(seen.st_mode):
            inside = disk.open_folder(top, folder)
            try:
                _walk(inside, top, lines)
            finally:
                os.close(inside)
        else:
            _add(folder, top, top, seen, lines)
    lines.sort()
    return lines


def _walk(folder: int, prefix: str, lines: list[list[Any]]) -> None:
    if prefix.count("/") >= MOST_PARTS:
        raise Fault(
            f"{prefix[:200]!a} is nested more than {MOST_PARTS} folders deep: remove it, then copy again"
        )
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    for name, seen in found:
        path = f"{prefix}/{name}"
        if not stat.S_ISDIR(seen.st_mode):
            _add(folder, name, path, seen, lines)
        elif name != CACHE:
            inside = disk.open_folder(name, folder)
            try:
                _walk(inside, path, lines)
            finally:
                os.close(inside)


def _add(folder: int, name: str, path: str, seen: os.stat_result, lines: list[list[Any]]) -> None:
    if len(lines) >= NAMES_LIMIT:
        raise OSError(errno.EFBIG, f"more than {NAMES_LIMIT:,} files", path)
    if stat.S_ISLNK(seen.st_mode):
        lines.append(line_of(path, seen, os.readlink(name, dir_fd=folder)))
    elif stat.S_ISREG(seen.st_mode):
        lines.append(line_of(path, seen, ""))


def _hash_all(folder: int, lines: list[list[Any]]) -> None:
    """The hashes of plain files, by children where these are many. What a child read under that name is believed only
    if it was the very file that was listed."""
    home = os.fsencode(disk.path_of(folder))
    paths = [home + b"/" + os.fsencode(line[0]) for line in lines] if home else []
    found = digests(paths, [line[1] for line in lines]) if home else []
    for line, digest in itertools.zip_longest(lines, found):
        if digest is not None and digest.key[1:] == (line[5], line[1], line[3], line[4]):
            line[6] = digest.sha256
        else:
            _hash(folder, line)


def _hash(folder: int, line: list[Any]) -> None:
    fd = os.open(line[0], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        line[6] = disk.hash_of(fd)[0]
    finally:
        os.close(fd)
