"""Filesystems of their own for hosts that run: real ones, which can be filled and which can fail."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.hosts import plainfs
from tests.hosts.commands import sh
from tests.hosts.host import Host
from tests.waiting import until_sync

__all__ = ["Disk", "disk_at", "plain_at"]

SIZE = 512 << 20


class Disk:
    """An ext4 on a disk of its own, mounted at a place of a host, and at the same place for this machine."""

    def __init__(self, host: Host, place: str, device: str) -> None:
        self._host = host
        self._place = place
        self._device = device
        self._outside = host.root / place.lstrip("/")

    def mount(self) -> None:
        """Mounts it, with what its journal holds brought in first."""
        number = os.stat(self._device).st_rdev
        node = f"/dev/disk-{os.minor(number)}"
        self._outside.mkdir(parents=True, exist_ok=True)
        sh("mount", self._device, self._outside)
        # A host that runs has mounts of its own; of one device they are one filesystem.
        self._host.run(
            f"mknod {node} b {os.major(number)} {os.minor(number)}; mount {node} {self._place}; rm {node}"
        )

    def unmount(self) -> None:
        """Waits until nobody uses it."""
        self._host.run(f"umount --all-targets {self._place}", check=False)
        sh("umount", "--all-targets", self._outside, check=False)
        until_sync(self._is_free, 30, f"{self._device} is in use by nobody")

    def sync(self) -> None:
        """All that was written is on the disk."""
        sh("sync", "--file-system", self._outside)

    def fail(self) -> None:
        """What the kernel does when the disk returns an error: from now on nothing is written any more."""
        sh("mount", "-o", "remount,abort", self._outside)

    @property
    def free_inodes(self) -> int:
        """Files that can still be made on it."""
        return os.statvfs(self._outside).f_ffree

    def _is_free(self) -> bool:
        """fsck refuses a filesystem that is mounted anywhere."""
        try:
            os.close(os.open(self._device, os.O_RDWR | os.O_EXCL))
        except OSError:
            return False
        return True


@contextmanager
def disk_at(host: Host, place: str, image: Path, *, inodes: int = 32_000) -> Iterator[Disk]:
    """A fresh one; `image` is the file on this machine that it is in, `inodes` how many files it takes."""
    with image.open("wb") as file:
        file.truncate(SIZE)
    sh("mkfs.ext4", "-q", "-N", inodes, image)
    device = sh("losetup", "--find", "--show", image).strip()
    disk = Disk(host, place, device)
    try:
        disk.mount()
        yield disk
        disk.unmount()
    finally:
        sh("losetup", "--detach", device)


@contextmanager
def plain_at(host: Host, place: str) -> Iterator[None]:
    """Has a folder of a host lie on a filesystem that exchanges nothing, as on NFS; this machine sees what is below."""
    below, said = "/srv/below", "/run/plainfs"
    host.write("/root/plainfs.py", Path(plainfs.__file__).read_bytes())
    # By a name of its own, or the filesystem's program would seem to use what it serves.
    host.run(f"mkdir -p {below} && mount --bind {place} {below}")
    try:
        host.run(f"python3 -I /root/plainfs.py {below} {place} >{said} 2>&1 </dev/null & echo started")
        until_sync(lambda: "mounted" in host.run(f"cat {said}", check=False), 30, "it is mounted")
        yield
    finally:
        host.run(f"umount --lazy {place}; umount --lazy {below}; rm -f {said}", check=False)
