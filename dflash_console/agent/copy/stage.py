"""The stage: a whole tree beside the live one, made of what came and what was there, and proved before the swap."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time

from ..verify.checks import check, counted, first_few
from . import disk, receive
from .digests import digests, key_of
from .expected import EMPTY
from .listing import tree_of
from .place import Fault, Place, fault, step
from .receive import Receiver
from .reuse import Reuse, hashes_of
from .survey import line_of

__all__ = ["Stage"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .digests import Digest
    from .expected import Expected
    from .importing import Importing
    from .pattern import Pattern


class Stage:
    """The folder `stage-<id>`. Raises Fault."""

    def __init__(
        self,
        place: Place,
        name: str,
        expected: Expected,
        pattern: Pattern,
        site: int,
        mind: Callable[[], object] = lambda: None,
    ) -> None:
        self.place, self.name = place, name
        self.path = f"{place.path}/{name}"
        self.expected, self.pattern = expected, pattern
        self.entries: list[list[Any]] = []
        """As in a manifest, once it was checked."""
        self._site, self._mind = site, mind
        self._reuse: Reuse | None = None
        self._lines: dict[str, list[Any]] = {}
        self._flushing: threading.Thread | None = None
        try:
            disk.spread(place.fd)
            step("mkdir stage")
            os.mkdir(name, 0o700, dir_fd=place.fd)
            self.fd = disk.open_folder(name, place.fd)
            receive.make_folders(self.fd, expected, pattern.modes)
        except OSError as error:
            raise fault(error, f"{self.path} can't be made") from None
        self.receiver = Receiver(expected, self.fd, pattern.modes)

    def fill_from(self, known: dict[str, str] | None) -> dict[str, Any]:
        """What has to be sent; the rest begins to be brought from the live tree."""
        expected = self.expected
        known = hashes_of(self._site, expected) if known is None else known
        wanted, reused, size = [], [], 0
        try:
            for index in expected.files:
                if expected.contents[index] == EMPTY:
                    self.receiver.write(index, b"")
                elif known.get(expected.paths[index]) == expected.contents[index]:
                    reused.append(index)
                    size += expected.sizes[index]
                else:
                    wanted.append(index)
        except OSError as error:
            raise fault(error, f"{self.path} can't be written") from None
        self.receiver.wanted = set(wanted)
        self._reuse = Reuse(self.receiver, self._site, reused)
        return {"wanted": wanted, "reused": len(reused), "reused_bytes": size}

    def missing(self) -> list[int]:
        """What is not there yet, once all that is reused has been brought."""
        if self._reuse is not None:
            self._reuse.wait(self._mind)
            self.receiver.wanted.update(self._reuse.different)
            self._reuse.different = []
        return sorted(self.receiver.wanted)

    @property
    def reused(self) -> list[list[Any]]:
        """Live files whose hashes are known, as in a manifest."""
        return self._reuse.lines if self._reuse is not None else []

    @property
    def tree(self) -> str:
        """As Look.tree, of what was staged."""
        expected = self.expected
        rows: list[list[Any]] = []
        for index, path in enumerate(expected.paths):
            kind = "link" if index in expected.links else "file"
            rows.append([path, kind, expected.sizes[index], expected.modes[index], expected.contents[index]])
        return tree_of(rows)

    def close(self) -> None:
        """Stop and close; what lies on the disk stays."""
        if self._reuse is not None:
            self._reuse.stop()
        with contextlib.suppress(Fault):
            self.receiver.end()
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def check(self, importing: Importing, meanwhile: Callable[[], None]) -> list[dict[str, Any]]:
        """All there, all hashes, owner and modes, on the disk, importable. Any that fails: not fit for a swap.

        `meanwhile` is called while the import check may still run. Raises OSError from it.
        """
        missing = self.missing()
        if missing:
            paths = [self.expected.paths[index] for index in missing]
            words = f"{counted(len(missing), 'file')} of {len(self.expected.paths):,} did not come: "
            return [check("files", "fail", words + first_few(paths), paths)]
        try:
            checks = self._prove(importing, meanwhile)
        except OSError as error:
            raise fault(error, f"{self.path} can't be checked") from None
        if all(item["state"] != "fail" for item in checks):
            self.entries = [self._lines[path] for path in self.expected.paths]
        return checks

    def _prove(self, importing: Importing, meanwhile: Callable[[], None]) -> list[dict[str, Any]]:
        began = time.monotonic()
        self._make_links()
        # Beside the hashing: it waits for the disk and for imports more than it computes.
        importing.start(self.path)
        wrong = self._seal_files()
        hashed = time.monotonic()
        for folder in self.expected.folders:
            self._seal_folder(folder)
        if self._flushing is not None:
            self._flushing.join()
        step("syncfs stage")
        disk.sync_filesystem(self.fd)
        synced = time.monotonic()
        meanwhile()
        number, size = len(self.expected.paths), sum(self.expected.sizes)
        words = f"{counted(number, 'file')}, {size / 1e6:,.1f} MB"
        if wrong:
            detail = f"{counted(len(wrong), 'file')} on the disk not as sent: {first_few(wrong)}"
            return [check("files", "pass", words), check("hashes", "fail", detail, wrong)]
        problems = sorted(self.pattern.problems)
        return [
            check("files", "pass", words),
            check("hashes", "pass", f"all as sent, read again from the disk in {hashed - began:.1f} s"),
            check(
                "owner",
                "warn" if problems else "pass",
                "; ".join(problems) or "as those it replaces",
                problems,
            ),
            check("synced", "pass", f"on the disk after {synced - began:.1f} s"),
            importing.finish(self._mind),
        ]

    def _flush(self, *_: int) -> None:
        """A first time, while the files are hashed, by children that were forked before there is a thread; what fails
        here is met by the second time."""

        def sync() -> None:
            with contextlib.suppress(OSError):
                disk.sync_filesystem(self.fd)

        if self._flushing is None:
            self._flushing = threading.Thread(target=sync, daemon=True)
            self._flushing.start()
        self._mind()

    def _make_links(self) -> None:
        for index in sorted(self.expected.links):
            path, target = self.expected.paths[index], self.expected.contents[index]
            step(f"link {path}")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path, dir_fd=self.fd)
            os.symlink(target, path, dir_fd=self.fd)
            self.pattern.give_link(self.fd, path)
            seen = os.stat(path, dir_fd=self.fd, follow_symlinks=False)
            self._lines[path] = line_of(path, seen, target)

    def _seal_files(self) -> list[str]:
        """Hash all once more from the disk, and give them owner and labels; those that are not as sent."""
        expected, wrong = self.expected, []
        self._flushing = None
        paths = [os.fsencode(f"{self.path}/{expected.paths[index]}") for index in expected.files]
        found = digests(paths, [expected.sizes[index] for index in expected.files], self._flush)
        for index, digest in zip(expected.files, found):
            if not self._seal(index, digest):
                wrong.append(expected.paths[index])
        return sorted(wrong)

    def _seal(self, index: int, digest: Digest) -> bool:
        path = self.expected.paths[index]
        try:
            seen = os.stat(path, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        # The file that was hashed is the one that lies in our folder, by whatever way the path led to it.
        is_right = digest.sha256 == self.expected.contents[index] and digest.key == key_of(seen)
        if not is_right or not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1:
            return False
        if not self.pattern.has_file(seen):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.fd)
            try:
                if key_of(os.fstat(fd)) != digest.key:
                    return False
                self.pattern.give(fd, is_folder=False)
                seen = os.fstat(fd)
            finally:
                os.close(fd)
        self._lines[path] = line_of(path, seen, digest.sha256)
        return True

    def _seal_folder(self, folder: str) -> None:
        fd = disk.open_folder(folder, self.fd)
        try:
            self.pattern.give(fd, is_folder=True)
        finally:
            os.close(fd)
