"""The folder of ours in an environment, `.dflash-console`: its lock, its small files, what others may read of it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import time

from . import disk

__all__ = [
    "FOLDER",
    "ID",
    "Fault",
    "Place",
    "fault",
    "holder",
    "is_count",
    "is_time",
    "new_id",
    "read_json",
    "read_manifest",
    "read_provenance",
    "read_small",
    "step",
    "watchers",
    "write_all",
    "write_json",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

FOLDER = ".dflash-console"
LOCK = "lock"
PROVENANCE, MANIFEST = "provenance.json", "manifest.json"
MOST_PARTS = 64
"""Names in a path: a deeper tree is no package, and would be more than a walk has descriptors for."""
SMALL = 1 << 16
"""Bytes of a lock, an info.json or a provenance.json."""
MANIFEST_LIMIT = 64 << 20
"""Bytes; 100,000 files of 200 bytes each are 20 MB."""
ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
TRIES, PAUSE = 20, 0.05
"""Another's look may hold the lock for an instant, and the children of a copy that was killed may for another; seconds
between two tries."""


class Fault(Exception):
    """Why something can't be done, said for an operator: what, where, why, what next."""


watchers: list[Callable[[str], None]] = []
"""Called with each step's name. Empty but for tests, which end the process there."""


def step(name: str) -> None:
    """Said before each thing that changes the disk."""
    for watcher in watchers:
        watcher(name)


def fault(error: OSError, doing: str) -> Fault:
    """An error of the system in an operator's words. `doing`: such as `/venv can't be copied to`."""
    number = error.errno
    if number in (errno.ENOSPC, errno.EDQUOT):
        what = "the disk is full or has no inodes left" if number == errno.ENOSPC else "the quota is used up"
        return Fault(f"{doing}: {what}; make room and start again")
    if number == errno.EROFS:
        return Fault(f"{doing}: the filesystem is read-only")
    if number in (errno.EACCES, errno.EPERM):
        return Fault(f"{doing}: {_user(os.geteuid())} may not ({error.strerror})")
    return Fault(f"{doing}: {error.strerror or error}")


def is_time(value: object) -> bool:
    """Whether a value that was read can be a point in time."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1e11


def is_count(value: object) -> bool:
    """Whether a value that was read can be a number of files or bytes."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def new_id() -> str:
    """Of a copy, and of the backup that it makes: the time (UTC) and something random."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + os.urandom(3).hex()


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _no_folder(path: str) -> Fault:
    return Fault(f"{path} is a link or a file, not a folder: look who put it there, and remove it")


class Place:
    """The folder, open for one copy. Raises Fault when it can't be made or is somebody else's."""

    def __init__(self, venv: str) -> None:
        self.path = f"{venv}/{FOLDER}"
        self._lock = -1
        self.fd = -1
        try:
            step("mkdir place")
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
            self.fd = disk.open_folder(self.path)
            self._adopt()
        except OSError as error:
            self.close()
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise _no_folder(self.path) from None
            raise fault(error, f"{self.path} can't be made") from None
        except Fault:
            self.close()
            raise

    def _adopt(self) -> None:
        seen = os.fstat(self.fd)
        if seen.st_uid != os.geteuid():
            owner, user = _user(seen.st_uid), _user(os.geteuid())
            raise Fault(f"{self.path} belongs to {owner}, not to {user}: copy as {owner}, or remove it")
        if stat.S_IMODE(seen.st_mode) != 0o700:
            os.fchmod(self.fd, 0o700)
        with contextlib.suppress(FileExistsError):
            os.mkdir("backups", 0o700, dir_fd=self.fd)
        try:
            os.close(disk.open_folder("backups", self.fd))
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise _no_folder(f"{self.path}/backups") from None

    def _no_lock(self) -> Fault:
        return Fault(f"{self.path}/{LOCK} is no regular file: look who put it there, and remove it")

    def take_lock(self, by: str, what: str) -> dict[str, Any] | None:
        """Lock the environment against other copies; who holds it, when somebody does. Raises Fault."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            fd = os.open(LOCK, flags, 0o600, dir_fd=self.fd)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR):
                raise self._no_lock() from None
            raise fault(error, f"{self.path}/{LOCK} can't be opened") from None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise self._no_lock()
            for attempt in range(TRIES):
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if attempt == TRIES - 1:
                        return _holder_of(os.pread(fd, SMALL, 0))
                    time.sleep(PAUSE)
            text = json.dumps({"by": by, "since": time.time(), "what": what, "pid": os.getpid()})
            os.ftruncate(fd, 0)
            os.pwrite(fd, text.encode("ascii"), 0)
            self._lock, fd = fd, -1
            return None
        except OSError as error:
            raise fault(error, f"{self.path}/{LOCK} can't be locked") from None
        finally:
            if fd >= 0:
                os.close(fd)

    def close(self) -> None:
        """Give the lock back and close the folder."""
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._lock, 0)
            os.close(self._lock)
        if self.fd >= 0:
            os.close(self.fd)
        self._lock = self.fd = -1


# ---- small files


def read_small(folder: int, name: str, limit: int) -> bytes:
    """A regular file of ours, following no link. Raises OSError, with EINVAL for what is none or has more."""
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > limit:
            raise OSError(errno.EINVAL, "no regular file of a usual size", name)
        parts = []
        while limit > 0:
            part = os.read(fd, min(limit, disk.BLOCK))
            if not part:
                break
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def read_json(folder: int, name: str, limit: int = SMALL) -> Any:
    """What such a file holds; None when it is not there, no regular file, too large, or no JSON."""
    try:
        return json.loads(read_small(folder, name, limit))
    except (OSError, ValueError, RecursionError):
        return None


def write_all(fd: int, data: bytes | memoryview) -> None:
    """All of it, also where a write takes a part only. Raises OSError."""
    written = os.write(fd, data)
    while written < len(data):
        data = memoryview(data)[written:]
        written = os.write(fd, data)


def write_json(folder: int, name: str, value: object) -> None:
    """Put a small file of ours in place in one step; on the disk when it returns. Raises OSError."""
    data = json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"
    fresh = f".{name}.new"
    step(f"write {name}")
    disk.remove(folder, fresh)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(fresh, flags, 0o600, dir_fd=folder)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    step(f"rename {name}")
    disk.rename(folder, fresh, folder, name)
    step(f"fsync folder of {name}")
    disk.sync_folder(folder)


# ---- what a look reads


def holder(venv: str) -> dict[str, Any] | None:
    """Who holds the lock of an environment; None when nobody does. Changes nothing."""
    with _reading(venv) as folder:
        if folder < 0:
            return None
        try:
            fd = os.open(LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except OSError:
            return None
        try:
            seen = os.fstat(fd)
            text = os.pread(fd, SMALL, 0) if stat.S_ISREG(seen.st_mode) else b""
            # The text is gone when the lock is; with a killed holder's text, the kernel tells.
            if text and (_is_listed(seen) or _is_locked(fd)):
                return _holder_of(text)
            return None
        finally:
            os.close(fd)


def read_provenance(venv: str) -> dict[str, Any] | None:
    """The Provenance of an environment's package; None when no copy laid it, or the file is spoilt."""
    with _reading(venv) as folder:
        return provenance_of(read_json(folder, PROVENANCE)) if folder >= 0 else None


def read_manifest(venv: str) -> list[list[Any]]:
    """The files that a copy laid: [path, size, mode, mtime_ns, ctime_ns, inode, sha256] each; [] without a copy.

    `mode` is st_mode with the kind; of a link the last one is what it leads to.
    """
    with _reading(venv) as folder:
        return manifest_of(read_json(folder, MANIFEST, MANIFEST_LIMIT)) if folder >= 0 else []


def manifest_of(value: object) -> list[list[Any]]:
    """The entries of a manifest that was read; [] for anything else."""
    entries = value.get("entries") if isinstance(value, dict) else None
    if not isinstance(entries, list) or not all(map(_is_listed_file, entries)):
        return []
    return entries


def _is_listed_file(entry: object) -> bool:
    if not isinstance(entry, list) or len(entry) != 7:
        return False
    path, *numbers, content = entry
    return isinstance(path, str) and isinstance(content, str) and all(type(n) is int for n in numbers)


def provenance_of(value: object) -> dict[str, Any] | None:
    """A Provenance that was read, with no more than its fields; None for anything else."""
    if not isinstance(value, dict):
        return None
    texts = ("from_host", "from_venv", "from_version", "by", "tree")
    if not all(isinstance(value.get(key), str) for key in texts):
        return None
    at, files = value.get("at"), value.get("files")
    if not is_time(at) or not is_count(files):
        return None
    told = {**{key: value[key][:4096] for key in texts}, "at": at, "files": files}
    return {**told, "verified": False} if value.get("verified") is False else told


@contextlib.contextmanager
def _reading(venv: str) -> Any:
    """The folder's descriptor, -1 when there is none that is ours to read."""
    try:
        folder = disk.open_folder(f"{venv}/{FOLDER}")
    except OSError:
        yield -1
        return
    try:
        yield folder
    finally:
        os.close(folder)


def _holder_of(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    told = value if isinstance(value, dict) else {}
    since, pid = told.get("since"), told.get("pid", 0)
    return {
        "by": str(told.get("by") or "somebody")[:4096],
        "since": since if is_time(since) else time.time(),
        "what": str(told.get("what") or "")[:4096],
        "pid": pid if is_count(pid) and pid < 1 << 32 else 0,
    }


def _is_listed(seen: os.stat_result) -> bool:
    """Whether the kernel's list of locks (proc_locks(5)) has one of this file: so none has to be taken to know.

    A subvolume of btrfs has another device number there than stat tells: of such a one it is found by trying.
    """
    file = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as locks:
            return any(words[1:2] == ["FLOCK"] and file in words for words in map(str.split, locks))
    except OSError:
        return False


def _is_locked(fd: int) -> bool:
    """By trying: a holder in another container is not listed."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
