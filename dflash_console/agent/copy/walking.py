"""One walk over what a copy takes along: the package's folder and the dist-infos beside it, nothing read of a file.

Names are bytes throughout: what a login's locale makes of them must decide nothing. Bytecode is not taken along: no
`__pycache__`, and no `x.pyc` beside its `x.py`, which Python never loads. A `.pyc` alone is a module and is.
"""

from __future__ import annotations

import itertools
import os
import stat

from ..verify.checks import one_line
from .place import MOST_PARTS, Fault

__all__ = ["MOST_FILES", "Item", "Walk", "is_fit", "unlike", "walk"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

MOST_FILES = 100_000
"""As copies.MOST_FILES."""
MOST_SEEN = 4 * MOST_FILES
"""Names of any kind that are looked at."""
MOST_WORDS = 256
"""Strange and followed ones that are named."""
CACHE = b"__pycache__"
PATH_LIMIT = 4095
"""Bytes; the wire takes 4,096 characters."""


class Item:
    """A file or link. `status` is the file's own, or for what a link leads out to, that file's."""

    __slots__ = ("link", "path", "status", "text")

    def __init__(self, path: str, status: os.stat_result, link: str | None = None) -> None:
        self.path = path
        """Relative to the folder that the package is in."""
        self.status = status
        self.link = link
        """What it leads to, of a link that is kept as one."""
        self.text: bytes | None = None
        """What travels in place of the content on the disk."""

    @property
    def size(self) -> int:
        """Bytes that travel."""
        if self.link is not None:
            return len(self.link.encode("utf-8"))
        return len(self.text) if self.text is not None else self.status.st_size

    @property
    def mode(self) -> int:
        """The only two that travel: runnable or not."""
        return 0o777 if self.link is not None else 0o755 if self.status.st_mode & stat.S_IXUSR else 0o644

    @property
    def mark(self) -> tuple[int, ...]:
        """What is another when the file is; without the ctime when it has other names, for each new one changes
        that."""
        status = self.status
        ctime = status.st_ctime_ns if status.st_nlink == 1 else 0
        return (status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, ctime)


class Walk:
    """What there is below some names of one folder."""

    def __init__(self, site: str) -> None:
        self.site = os.fsencode(site)
        self.items: list[Item] = []
        """Sorted by path."""
        self.strange: list[str] = []
        self.followed: list[str] = []
        self.hard_linked = 0
        self.restless: list[str] = []
        """What changed, came or went while files were read."""
        self._seen = 0
        self._names: set[bytes] = set()

    def above(self, number: int) -> None:
        """Raises Fault when there is more than a package can have."""
        self._seen += number
        if len(self.items) > MOST_FILES or self._seen > MOST_SEEN:
            where = self.site.decode("utf-8", "backslashreplace")
            raise Fault(
                f"more than {MOST_FILES:,} files in {where} belong to it: too many for a package to be copied"
            )

    def note_strange(self, path: bytes, why: str) -> None:
        """Note what can't be copied."""
        if len(self.strange) < MOST_WORDS:
            # The reason matters more than the end of a long path.
            where = one_line(path.decode("utf-8", "backslashreplace"), 200)
            self.strange.append(one_line(f"{where}: {why}", 1000))

    def note_restless(self, paths: set[str]) -> None:
        """Note what changed, came or went while files were read."""
        self.restless = [one_line(path, 1000) for path in sorted(paths)[:MOST_WORDS]]

    def real(self, path: str) -> bytes:
        """Where a path of an item is."""
        return self.site + b"/" + path.encode("utf-8")


def walk(site: str, names: list[str], mind: Callable[[], object] = lambda: None) -> Walk:
    """Walk over the folders of these names in a folder, calling `mind` at each. Raises Fault when there are too many
    files.

    Relative links that stay within their folder are kept as links; all others are followed. What goes away meanwhile
    is not there.
    """
    found = Walk(site)
    waiting: list[_Folder] = []
    for name in names:
        path = os.fsencode(name)
        if not is_fit(path):
            found.note_strange(path, "its name can't be shown as it is")
            continue
        waiting.append(_Folder(path, path, frozenset()))
    while waiting:
        mind()
        _scan(found, waiting.pop(), waiting)
    found.above(0)
    found.items.sort(key=lambda item: item.path)
    return found


def unlike(one: Walk, other: Walk) -> set[str]:
    """The paths of what is not the same file in two walks, or not in both."""
    marks = [{item.path: (item.link, item.mark) for item in walked.items} for walked in (one, other)]
    return {path for path, _ in marks[0].items() ^ marks[1].items()}


def is_fit(name: bytes) -> bool:
    """Whether a name can be shown, sent and made anywhere: UTF-8, and nothing that moves a cursor or hides."""
    try:
        return name.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return False


class _Folder:
    """One that is to be walked over."""

    __slots__ = ("led", "path", "top")

    def __init__(self, path: bytes, top: bytes, led: frozenset[tuple[int, int]]) -> None:
        self.path = path
        self.top = top
        """The name in the package's own folder that it is below."""
        self.led = led
        """The folders on the way from where a link has led out; empty within the tree."""


def _scan(found: Walk, folder: _Folder, waiting: list[_Folder]) -> None:
    try:
        # By descriptor: the kernel then looks up a name and not a long path for each file.
        fd = os.open(found.site + b"/" + folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        found.note_strange(folder.path, f"a folder that can't be read: {error.strerror}")
        return
    try:
        with os.scandir(fd) as entries:
            listed = [(os.fsencode(entry.name), entry) for entry in itertools.islice(entries, MOST_SEEN + 1)]
        found.above(len(listed))
        names = {name for name, _ in listed}
        for name, entry in listed:
            if name != CACHE and not (name.endswith(b".pyc") and name[:-1] in names):
                _take(found, folder, name, entry, waiting)
    except OSError as error:
        found.note_strange(folder.path, f"a folder that can't be read: {error.strerror}")
    finally:
        os.close(fd)


def _take(found: Walk, folder: _Folder, name: bytes, entry: os.DirEntry[str], waiting: list[_Folder]) -> None:
    path = folder.path + b"/" + name
    if not is_fit(name):
        found.note_strange(path, "its name can't be shown as it is")
        return
    if len(path) > PATH_LIMIT:
        found.note_strange(path, "its path is too long")
        return
    if path.count(b"/") >= MOST_PARTS:
        found.note_strange(path, f"nested more than {MOST_PARTS} folders deep")
        return
    try:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            _take_link(found, folder, path, status, waiting)
        elif stat.S_ISDIR(status.st_mode):
            place = (status.st_dev, status.st_ino)
            waiting.append(_Folder(path, folder.top, folder.led | {place} if folder.led else folder.led))
        else:
            _take_file(found, path, status)
    except FileNotFoundError:
        return
    except OSError as error:
        found.note_strange(path, str(error.strerror))


def _take_file(found: Walk, path: bytes, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        found.note_strange(path, f"{_kind(status.st_mode)}, no file")
        return
    if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
        found.note_strange(path, "a setuid or setgid file; the copy would not have that bit")
    found.items.append(Item(path.decode("utf-8"), status))
    found.hard_linked += status.st_nlink > 1


def _take_link(
    found: Walk, folder: _Folder, path: bytes, status: os.stat_result, waiting: list[_Folder]
) -> None:
    target = os.readlink(found.site + b"/" + path)
    if not folder.led and _stays(found.site, path, folder.top, target):
        if is_fit(target):
            found.items.append(Item(path.decode("utf-8"), status, target.decode("utf-8")))
        else:
            found.note_strange(path, "where it leads can't be shown as it is")
        return
    shown = target.decode("utf-8", "backslashreplace")
    try:
        behind = os.stat(found.site + b"/" + path)
    except OSError as error:
        found.note_strange(path, f"a link to {shown}: {error.strerror}")
        return
    if not folder.led and len(found.followed) < MOST_WORDS:
        found.followed.append(one_line(f"{path.decode('utf-8')} -> {shown}", 1000))
    if not stat.S_ISDIR(behind.st_mode):
        _take_file(found, path, behind)
    elif (behind.st_dev, behind.st_ino) in folder.led:
        found.note_strange(path, "a link that leads in a circle")
    else:
        waiting.append(_Folder(path, folder.top, folder.led | {(behind.st_dev, behind.st_ino)}))


def _stays(site: bytes, path: bytes, top: bytes, target: bytes) -> bool:
    """Whether a link leads to a place below its own top folder, by every step that it takes, on any host."""
    if target.startswith(b"/"):
        return False
    depth = path.count(b"/") - top.count(b"/")
    for part in target.split(b"/"):
        if part == b"..":
            depth -= 1
        elif part not in (b"", b"."):
            depth += 1
        if depth < 1:
            return False
    real = os.path.realpath(site + b"/" + os.path.dirname(path) + b"/" + target)
    return (real + b"/").startswith(os.path.realpath(site + b"/" + top) + b"/")


def _kind(mode: int) -> str:
    for test, words in ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISDIR, "a folder")):
        if test(mode):
            return words
    return "a device"
