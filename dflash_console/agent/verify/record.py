"""An installed distribution's RECORD: the list of its files with their hashes, as pip and uv leave it.

Binary distribution format, "Recording installed projects": path relative to the dist-info's parent,
`sha256=` with urlsafe base64 without padding, size.
"""

from __future__ import annotations

import os
import posixpath
import stat

from ..regular import read_regular

__all__ = ["Comparison", "Record", "compare", "is_code", "read_record"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .tree import Tree

SIZE_LIMIT = 16 << 20
"""Bytes of a RECORD; sglang's has 0.7 MB."""
UP_LIMIT = 3
"""Levels that a path may climb: from lib/pythonX.Y/site-packages to the environment."""
CODE = (".py", ".so", ".pyc")
THREADS = 8
SLICE = 1 << 20
ALGORITHMS = ("sha256", "sha384", "sha512")


class Record:
    """A RECORD's rows by path relative to the folder that the dist-info is in, without bytecode."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.rows: dict[str, tuple[str, str, int | None]] = {}
        """Algorithm, hash and size; without a hash the algorithm is empty."""
        self.strange: list[str] = []
        """Paths that lead out of the environment or can be none; they are not looked at."""
        self.damaged = 0
        """Lines that make no sense."""


class Comparison:
    """A RECORD against the files: relative paths, sorted."""

    def __init__(self) -> None:
        self.same: list[str] = []
        self.changed: list[str] = []
        self.unhashed: list[str] = []
        """Code for which the RECORD has no hash, so that it says nothing about it."""
        self.missing: list[str] = []
        self.unreadable: list[str] = []
        self.extra: list[str] = []
        """In the package's folder and not in the RECORD."""


def is_code(name: str) -> bool:
    """Whether Python may import a file of this name."""
    return name.endswith(CODE)


def read_record(info: str) -> Record | str:
    """The RECORD of a dist-info folder, or why there is none."""
    import csv
    import io

    try:
        data = read_regular(f"{info}/RECORD", SIZE_LIMIT + 1)
    except FileNotFoundError:
        return f"no RECORD in {os.path.basename(info)}"
    except OSError as error:
        return f"RECORD can't be read: {error.strerror}"
    if not data.strip():
        return "RECORD is empty"
    if len(data) > SIZE_LIMIT:
        return f"RECORD has more than {SIZE_LIMIT >> 20} MB"
    record = Record(os.path.dirname(info))
    lines = csv.reader(io.StringIO(os.fsdecode(data), newline=""))
    try:
        for row in lines:
            _take(record, row)
    except csv.Error as error:
        return f"RECORD is damaged at line {lines.line_num:,}: {error}"
    if record.damaged > len(record.rows):
        return f"RECORD is damaged: {record.damaged:,} of its lines make no sense"
    return record


def _take(record: Record, row: list[str]) -> None:
    if not row:
        return
    if len(row) != 3 or not row[0]:
        record.damaged += 1
        return
    path, hashed, size = row
    normal = posixpath.normpath(path)
    if path.startswith("/") or "\0" in path or normal.startswith("../" * (UP_LIMIT + 1)) or normal == "..":
        record.strange.append(path)
        return
    algorithm, _, text = hashed.partition("=")
    if hashed and (algorithm not in ALGORITHMS or not text):
        record.damaged += 1
        return
    if not normal.endswith(".pyc") or "__pycache__/" not in normal:
        record.rows[normal] = (algorithm, text, int(size) if size.isascii() and size.isdigit() else None)


# ---- against the files


def compare(record: Record, tree: Tree) -> Comparison:
    """Every row against its file, and the package's files against the rows. Raises OSError when the disk
    fails."""
    found = Comparison()
    above = posixpath.relpath(tree.root, record.folder)
    prefix = "" if above == "." else f"{above}/"
    to_hash: list[str] = []
    files = tree.files
    for name, (algorithm, _, size) in record.rows.items():
        inside = name[len(prefix) :] if prefix and name.startswith(prefix) else None
        seen = files.get(inside) if inside is not None else None
        mode, length = (seen.mode, seen.size) if seen is not None else (0, 0)
        if inside is None:
            mode, length = _status(f"{record.folder}/{name}")
        if not stat.S_ISREG(mode):
            found.missing.append(name)
        elif size is not None and length != size:
            found.changed.append(name)
        elif algorithm:
            to_hash.append(name)
        elif is_code(name):
            found.unhashed.append(name)
        else:
            found.same.append(name)
    _hash_all(record, to_hash, found)
    if prefix:
        found.extra = [prefix + name for name in files if prefix + name not in record.rows]
    for names in (found.same, found.changed, found.unhashed, found.missing, found.unreadable, found.extra):
        names.sort()
    return found


def _hash_all(record: Record, names: list[str], found: Comparison) -> None:
    """In threads: reading and hashing let go of the interpreter's lock, and a cold disk likes many readers."""
    import threading

    outcomes: dict[str, list[str]] = {"same": found.same, "changed": found.changed}
    outcomes.update(missing=found.missing, unreadable=found.unreadable)
    rest = iter([names[at : at + 64] for at in range(0, len(names), 64)])
    faults: list[OSError] = []
    lock = threading.Lock()

    def work() -> None:
        while not faults:
            with lock:
                some = next(rest, None)
            if some is None:
                return
            for name in some:
                try:
                    outcome = _matches(record, name)
                except OSError as error:
                    faults.append(error)
                    return
                outcomes[outcome].append(name)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


def _matches(record: Record, name: str) -> str:
    import hashlib
    from base64 import urlsafe_b64encode

    algorithm, expected, _ = record.rows[name]
    try:
        fd = _open(f"{record.folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except PermissionError:
        return "unreadable"
    try:
        hashed = hashlib.new(algorithm)
        while True:
            data = os.read(fd, SLICE)
            if not data:
                break
            hashed.update(data)
    finally:
        os.close(fd)
    return "same" if urlsafe_b64encode(hashed.digest()).rstrip(b"=").decode() == expected else "changed"


def _status(path: str) -> tuple[int, int]:
    """Mode and size; the mode of what is not there is 0."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError):
        return 0, 0
    return status.st_mode, status.st_size


def _open(path: str, flags: int) -> int:
    """Never waits for a writer, should a pipe have taken the file's place."""
    return os.open(path, flags | os.O_NONBLOCK)
