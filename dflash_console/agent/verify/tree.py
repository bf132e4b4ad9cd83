"""One walk over a package's files: what is there, and a stamp that is another one when it changed.

A verification that is repeated costs little more than this walk, so it keeps numbers and not objects.
"""

from __future__ import annotations

import os
import stat
from array import array

__all__ = ["Seen", "Tree", "digest", "walk"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

ENTRIES_LIMIT = 300_000
"""Files of a tree that are looked at."""
CACHE = "__pycache__"
CODE = (".py", ".so", ".pyd")
INODE = (1 << 63) - 1
FIELDS = 6
"""Numbers for each file, in the order of Seen."""


class Seen:
    """What was seen of one file; of a link to a file that is there, of that file. Times are nanoseconds."""

    __slots__ = ("ctime", "inode", "links", "mode", "mtime", "size")

    def __init__(self, inode: int, mode: int, size: int, mtime: int, ctime: int, links: int) -> None:
        self.inode, self.mode, self.size = inode, mode, size
        self.mtime, self.ctime, self.links = mtime, ctime, links


class Tree:
    """The files of a package, by path relative to its folder; those of `__pycache__` are not among them."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.names: list[str] = []
        self.numbers = array("q")
        """Six for each name."""
        self.links: dict[str, bool] = {}
        """Those that are symbolic links, and whether they lead to anything."""
        self.link_times: dict[str, int] = {}
        """Of those the ctimes of the links themselves, in nanoseconds."""
        self.linked_folders: set[str] = set()
        """Those of them that lead to folders."""
        self.folders: dict[str, int] = {}
        """The ctimes of all folders, in nanoseconds; the package's own has an empty name."""
        self.caches: dict[str, tuple[int, ...]] = {}
        """The `__pycache__` folders, with what changes when something in them does."""
        self.unreadable: list[str] = []
        """Folders that may not be read."""
        self.is_cut = False
        """Whether there are more files than are looked at."""
        self._files: dict[str, Seen] = {}

    @property
    def files(self) -> dict[str, Seen]:
        """All files by name."""
        if not self._files:
            columns = (self.numbers[at::FIELDS] for at in range(FIELDS))
            self._files = dict(zip(self.names, map(Seen, *columns)))
        return self._files

    @property
    def code(self) -> list[str]:
        """The names of the files that Python may import, without bytecode."""
        return [name for name in self.names if name.endswith(CODE)]

    @property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(self.numbers[2::FIELDS])

    def newest(self) -> float:
        """When a file last changed, by the host's clock, in seconds since 1970.

        That is the ctime: a copy may keep old mtimes. A hard link to the same file elsewhere changes the ctime
        too (uv makes one for each environment), so of a file with several names the mtime counts.
        """
        mtimes, ctimes, links = (self.numbers[at::FIELDS] for at in (3, 4, 5))
        if max(links, default=0) > 1:
            ctimes = array("q", [c if n == 1 else m for m, c, n in zip(mtimes, ctimes, links)])
        return max(ctimes, default=0) / 1e9

    def stamp(self) -> list[bytes]:
        """All that tells one state of the files from another; see `Ground.stamp` for what is left out."""
        numbers = self.numbers
        if max(numbers[5::FIELDS], default=0) > 1:
            numbers = array("q", numbers)
            for at in range(0, len(numbers), FIELDS):
                if numbers[at + 5] > 1:
                    numbers[at + 4] = numbers[at + 5] = 0
        return [_joined([*self.names, "", *self.unreadable]), numbers.tobytes()]

    def exact_stamp(self) -> list[bytes]:
        """The same with the ctimes and numbers of links of all, and with the bytecode's folders."""
        marks = repr(sorted(self.caches.items())).encode("utf-8", "surrogateescape")
        return [_joined([*self.names, "", *self.unreadable]), self.numbers.tobytes(), marks]


def walk(root: str) -> Tree:
    """All files below a folder, or the one file. Links to folders are followed out of the tree, each once.

    A file that goes away meanwhile is not there. Raises OSError when the disk fails.
    """
    tree = Tree(root)
    if not os.path.isdir(root):
        tree.root = os.path.dirname(root)
        _add(tree, os.path.basename(root), os.stat(root))
        return tree
    waiting = [""]
    seen: set[str] = set()
    while waiting and not tree.is_cut:
        _folder(tree, waiting.pop(), waiting, seen)
    return tree


def _folder(tree: Tree, prefix: str, waiting: list[str], seen: set[str]) -> None:
    try:
        # By descriptor: the kernel then looks up a name and not a long path for each file.
        folder = os.open(f"{tree.root}/{prefix}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (PermissionError, FileNotFoundError, NotADirectoryError) as error:
        if isinstance(error, PermissionError):
            tree.unreadable.append(prefix.rstrip("/") or ".")
        return
    try:
        tree.folders[prefix.rstrip("/")] = os.fstat(folder).st_ctime_ns
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                name = prefix + entry.name
                kind = stat.S_IFMT(status.st_mode)
                if kind == stat.S_IFLNK:
                    status = _behind(tree, name, status)
                    kind = stat.S_IFMT(status.st_mode)
                    if kind == stat.S_IFDIR:
                        tree.linked_folders.add(name)
                    if kind == stat.S_IFDIR and not _leads_out(tree, name, seen):
                        continue
                if kind != stat.S_IFDIR:
                    _add(tree, name, status)
                elif entry.name == CACHE:
                    tree.caches[name] = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
                else:
                    waiting.append(name + "/")
    finally:
        os.close(folder)
    tree.is_cut = len(tree.names) > ENTRIES_LIMIT


def _add(tree: Tree, name: str, status: os.stat_result) -> None:
    tree.names.append(name)
    tree.numbers.extend(
        (
            status.st_ino & INODE,
            status.st_mode,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_nlink,
        )
    )


def _behind(tree: Tree, name: str, link: os.stat_result) -> os.stat_result:
    """What a link leads to; the link itself when that is nothing."""
    tree.link_times[name] = link.st_ctime_ns
    try:
        status = os.stat(f"{tree.root}/{name}")
    except OSError:
        tree.links[name] = False
        return link
    tree.links[name] = True
    return status


def _leads_out(tree: Tree, name: str, seen: set[str]) -> bool:
    """Whether a link to a folder leads out of the tree, to where none has led before."""
    real = os.path.realpath(f"{tree.root}/{name}")
    if real in seen or f"{real}/".startswith(os.path.realpath(tree.root) + "/"):
        return False
    seen.add(real)
    return True


def _joined(names: list[str]) -> bytes:
    return "\0".join(names).encode("utf-8", "surrogateescape")


def digest(parts: Iterable[bytes]) -> str:
    """A short text that differs when the bytes do."""
    try:
        from _blake2 import blake2b  # hashlib also loads OpenSSL, which takes longer than the hash
    except ImportError:
        from hashlib import blake2b

    hashed = blake2b(digest_size=16)
    for part in parts:
        hashed.update(b"%d:" % len(part))
        hashed.update(part)
    return hashed.hexdigest()
