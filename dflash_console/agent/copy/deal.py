"""A swap with all that makes it safe: the journal before it, the proof and the backup after it, keeping and undoing.

Beside the new tree the stage holds, from before the first rename, the small files that tell of the new tree and of the
backup, so that whoever goes on after a death needs nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from ..verify.checks import check, counted, first_few
from . import backups, disk
from .journal import Journal
from .place import (
    MANIFEST,
    MANIFEST_LIMIT,
    PROVENANCE,
    Fault,
    Place,
    fault,
    manifest_of,
    read_json,
    step,
    write_json,
)
from .swap import Foreign, Item, Swap

__all__ = ["Deal"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

OLD_INFO, OLD_MANIFEST = "old-info.json", "old-manifest.json"
SAMPLES = 16
"""Files that are hashed once more at the real path."""


class Deal:
    """Of the copy or rollback `number`. `new_in`: the folder below ours that holds the new tree.

    Methods raise OSError and Fault where they say nothing else.
    """

    def __init__(
        self,
        place: Place,
        number: str,
        journal: Journal,
        site: str,
        package: str,
        new_in: str,
        items: list[Item],
    ) -> None:
        self.place, self.number, self.journal = place, number, journal
        self.site, self.package, self.new_in = site, package, new_in
        self.stage_name = f"stage-{number}"
        self.is_swapped = False
        """Whether the new tree is in place, was proved there, and nobody has begun to undo it."""
        self.is_verified = False
        """Whether the console has looked at it there, and keeps it."""
        self._fds: list[int] = []
        try:
            site_fd = self._open(os.open(site, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            self.stage = self._folder(self.stage_name)
            home_new = self._folder(new_in)
            self.home_old = self._folder(f"backups/{number}")
        except OSError:
            self.close()
            raise
        self.swap = Swap(site_fd, home_new, self.home_old, items, self.note)

    def prepare(
        self,
        manifest: list[list[Any]],
        provenance: dict[str, Any] | None,
        info: dict[str, Any],
        old: list[list[Any]],
    ) -> None:
        """Lay ready what tells of the new tree and of the backup, and have the journal say what comes."""
        write_json(self.stage, MANIFEST, {"entries": manifest})
        # Whether it was verified once tells nothing of where it is laid now.
        about = None if provenance is None else {k: v for k, v in provenance.items() if k != "verified"}
        write_json(self.stage, PROVENANCE, about)
        write_json(self.stage, OLD_MANIFEST, {"entries": old})
        write_json(self.stage, OLD_INFO, info)
        disk.sync_folder(self.home_old)
        self.note()

    def note(self) -> None:
        """Tell the journal what lies where."""
        inodes = {item.name: [item.old, item.new, item.gone] for item in self.swap.items}
        self.journal.write(
            "swapping",
            package=self.package,
            site=self.site,
            new_in=self.new_in,
            backup=self.number,
            inodes=inodes,
        )

    def complete(self, origin: Callable[[], str]) -> list[dict[str, Any]]:
        """Swap, and prove the new tree where it is now; the checks. Any that fails: it has to be undone.

        `origin` tells where an import of the package would come from.
        """
        self.swap.forward()
        checks = self._prove(origin())
        if all(item["state"] != "fail" for item in checks):
            self._seal()
            self.journal.write("swapped", method=self.swap.method)
            self.is_swapped = True
        return checks

    def keep(self, note: str = "") -> None:
        """What was swapped stays."""
        place = self.place
        self._tell_verified()
        if disk.inode_at(self.stage, MANIFEST):
            # The manifest last: with it gone from the stage, all of this was done.
            for name in (PROVENANCE, MANIFEST):
                if disk.inode_at(self.stage, name):
                    self._put(name)
        if self.new_in != self.stage_name:
            backups.drop(place, self.new_in.rpartition("/")[2])
        self._remove_stage()
        self.journal.write("done", method=self.swap.method, note=note)
        self.close()

    def undo(self, note: str = "") -> None:
        """Back to the old tree; nothing of the new one stays, but a backup that it came from.

        There is no way back from here: what fails in the middle is undone by whoever goes on.
        """
        self.is_swapped = False
        # On a full disk it is undone all the same: what lies where tells as much to whoever goes on.
        with contextlib.suppress(OSError):
            self.journal.write("undoing", note=note)
        self.swap.back()
        wrong = [item.name for item in self.swap.items if not self.swap.has_old(item)]
        if wrong:
            raise Fault(f"{first_few(wrong)} could not be put back into {self.site}")
        step("remove unused backup")
        disk.remove(self.place.fd, f"backups/{self.number}")
        self._remove_stage()
        self.journal.write("undone", note=note)
        self.close()

    def take_back(self, note: str) -> str:
        """Undo, but leave what somebody else has put there meanwhile; what is in place now, in words."""
        method = self.swap.method
        try:
            self.undo(note)
        except Foreign:
            kept = self.abandon(f"somebody else replaced the package; {note}")
            return f"somebody else has put another package there meanwhile: it was left, {kept}"
        return "the package before it is back in place" if method else "nothing was changed"

    def abandon(self, note: str) -> str:
        """Somebody else put another package there: it stays, and the old one is kept as a backup if we have it; which
        of both, in words."""
        self.is_swapped = False
        self.swap.gather()
        if any(item.old and disk.inode_at(self.home_old, item.name) for item in self.swap.items):
            self._seal()
            words = f"and the one before it was kept as backup {self.number}"
        else:
            disk.remove(self.place.fd, f"backups/{self.number}")
            words = "and the one before it is where they moved it: nothing of it came to the backups"
        self._remove_stage()
        self.journal.write("undone", note=note)
        self.close()
        return words

    def close(self) -> None:
        """Close what is open."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    def _open(self, fd: int) -> int:
        self._fds.append(fd)
        return fd

    def _folder(self, name: str) -> int:
        """One that is gone already, when somebody died while he cleared up, is made anew, to be cleared up."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=self.place.fd)
        return self._open(disk.open_folder(name, self.place.fd))

    def _put(self, name: str) -> None:
        """Have a small file of the stage be the one that tells of the live tree."""
        step(f"put {name} in place")
        try:
            disk.rename(self.stage, name, self.place.fd, name)
        except IsADirectoryError:
            disk.remove(self.place.fd, name)
            disk.rename(self.stage, name, self.place.fd, name)

    def _tell_verified(self) -> None:
        """Have the provenance say so when nobody looked at the package in its place."""
        provenance = None if self.is_verified else read_json(self.stage, PROVENANCE)
        if isinstance(provenance, dict):
            write_json(self.stage, PROVENANCE, {**provenance, "verified": False})

    def _seal(self) -> None:
        """Have the old tree be a backup."""
        info, lines = read_json(self.stage, OLD_INFO), self._old_manifest()
        backups.seal(self.place.fd, self.home_old, info, lines, self._names())

    def _names(self) -> list[str]:
        return [item.name for item in self.swap.items]

    def _old_manifest(self) -> list[list[Any]]:
        return manifest_of(read_json(self.stage, OLD_MANIFEST, MANIFEST_LIMIT))

    def _remove_stage(self) -> None:
        step("remove stage")
        try:
            disk.remove(self.place.fd, self.stage_name)
        except OSError as error:
            # An NFS server keeps a removed file that is open; the next copy sweeps it away.
            if error.errno not in (errno.ENOTEMPTY, errno.EBUSY):
                raise
        disk.sync_folder(self.place.fd)

    # ---- the proof

    def _prove(self, origin: str) -> list[dict[str, Any]]:
        wrong = [
            item.name for item in self.swap.items if disk.inode_at(self.swap.site, item.name) != item.new
        ]
        if wrong:
            return [check("place", "fail", f"{first_few(wrong)} in {self.site} is not what was put there")]
        item = self.swap.items[0]
        if not item.new and self.new_in == self.stage_name:
            return [check("place", "fail", f"no {self.package} was staged: something removed it")]
        if not item.new:
            return [check("place", "pass", f"no {self.package} in {self.site}, as before the copy")]
        expected = f"{self.site}/{self.package}/__init__.py"
        if origin != expected:
            words = f"an import would take {origin or 'nothing'}, not {expected}"
            return [check("origin", "fail", words)]
        lines = manifest_of(read_json(self.stage, MANIFEST, MANIFEST_LIMIT))
        if not lines:
            return [check("place", "fail", f"the list of what was staged can't be read in {self.stage_name}")]
        spoilt = [line[0] for line in lines if not self._is_there(line)]
        spoilt += [line[0] for line in _samples(lines) if not self._has_content(line)]
        if spoilt:
            detail = f"{counted(len(spoilt), 'file')} in {self.site} not as staged: {first_few(spoilt)}"
            return [check("place", "fail", detail, spoilt)]
        words = f"all {counted(len(lines), 'file')} in {self.site} as staged, {SAMPLES} hashed again"
        return [check("origin", "pass", expected), check("place", "pass", words)]

    def _is_there(self, line: list[Any]) -> bool:
        try:
            seen = os.stat(line[0], dir_fd=self.swap.site, follow_symlinks=False)
        except OSError:
            return False
        return [seen.st_size, seen.st_mode, seen.st_mtime_ns, seen.st_ino] == [*line[1:4], line[5]]

    def _has_content(self, line: list[Any]) -> bool:
        try:
            fd = os.open(line[0], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.swap.site)
        except OSError:
            return False
        try:
            return disk.hash_of(fd)[0] == str(line[6])
        finally:
            os.close(fd)


def check_there(new: dict[str, int], where: str) -> None:
    """Raises Fault when what should be put in place is gone: the package would only be taken away."""
    gone = [name for name, inode in new.items() if not inode]
    if gone:
        words = "somebody removed it; nothing was changed, copy again"
        raise Fault(f"{first_few(gone)} is gone from {where}: {words}")


def _samples(lines: list[list[Any]]) -> list[list[Any]]:
    """Some files, from the first to the last."""
    files = [line for line in lines if stat.S_ISREG(line[2])]
    return files[:: max(1, len(files) // SAMPLES)][: SAMPLES + 1]


def words_of(error: OSError, site: str, package: str) -> str:
    """Why a swap was not done."""
    if error.errno == errno.EBUSY:
        return f"{site}/{package} is a mount point or in use by the kernel: unmount it, then copy again"
    return str(fault(error, f"{site}/{package} can't be swapped"))
