"""Looks for virtual environments in the usual places, with bounds on depth, entries and filesystems."""

from __future__ import annotations

import os

__all__ = ["find_venvs", "remote_mounts"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator

PLACES = ("/root", "/home/*", "/opt", "/srv", "/workspace", "/data")
COLLECTIONS = (
    ".virtualenvs",
    ".local/share/virtualenvs",
    ".cache/pypoetry/virtualenvs",
    ".pyenv/versions",
    ".conda/envs",
)
"""Folders of environments under a home that lie deeper than the search goes."""
SKIPPED = {"__pycache__", "node_modules", "site-packages", "lost+found", ".cache", ".git", ".npm", ".cargo"}
DEPTH = 2
ENTRIES_LIMIT = 20000
"""Folder entries looked at in one search; it ends there."""
VENVS_LIMIT = 64
# fmt: off
REMOTE = {
    "9p", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse", "gfs2", "glusterfs", "gpfs",
    "lustre", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "smb3", "smbfs", "vastnfs", "wekafs",
}
# fmt: on
LOCAL_FUSE = {"fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.snapfuse", "fuse.squashfuse"}


def remote_mounts(mounts: Iterable[tuple[str, str]]) -> list[str]:
    """The mount points whose server may stop to answer. Never the root: without that nothing works anyway."""
    return [
        mount
        for mount, kind in mounts
        if mount != "/" and (kind in REMOTE or (kind.startswith("fuse.") and kind not in LOCAL_FUSE))
    ]


def find_venvs(remote: list[str], home: str, places: Iterable[str] = PLACES) -> Iterator[str]:
    """The folders of environments, by real path, each once.

    Links to folders are not followed and what is mounted at a mount point in `remote` is not entered.
    """
    search = _Search(remote)
    homes = [home, *(folder for place in places for folder in _expanded(place))]
    roots = [(folder, DEPTH) for folder in homes]
    roots += [(f"{folder}/{name}", 1) for folder in homes for name in COLLECTIONS]
    for folder, depth in roots:
        real = os.path.realpath(folder)
        if not search.is_remote(real) and os.path.isdir(real):
            yield from search.below(real, depth)


def _expanded(place: str) -> list[str]:
    folder, star, _ = place.partition("/*")
    if not star:
        return [place]
    try:
        return [f"{folder}/{name}" for name in sorted(os.listdir(folder))]
    except OSError:
        return []


class _Search:
    def __init__(self, remote: list[str]) -> None:
        self._remote = remote
        self._entries = 0
        self._venvs: set[str] = set()
        self._seen: dict[str, int] = {}
        """Folders that were entered, and how deep from there."""

    def is_remote(self, path: str) -> bool:
        return any(path == mount or path.startswith(mount + "/") for mount in self._remote)

    def below(self, folder: str, depth: int) -> Iterator[str]:
        """The environment that the folder is, else those in it."""
        if self._is_venv(folder):
            if folder not in self._venvs and len(self._venvs) < VENVS_LIMIT:
                self._venvs.add(folder)
                yield folder
            folder, depth = f"{folder}/envs", 1  # conda's base holds the others
        if depth == 0 or self._seen.get(folder, -1) >= depth:
            return
        self._seen[folder] = depth
        for path in self._folders(folder):
            yield from self.below(path, depth - 1)

    def _is_venv(self, folder: str) -> bool:
        return os.path.exists(f"{folder}/pyvenv.cfg") or os.path.isdir(f"{folder}/conda-meta")

    def _folders(self, folder: str) -> list[str]:
        found = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._entries += 1
                    if self._entries > ENTRIES_LIMIT:
                        break
                    path = f"{folder.rstrip('/')}/{entry.name}"
                    if entry.name not in SKIPPED and path not in self._remote and _is_folder(entry):
                        found.append(path)
        except OSError:  # gone meanwhile, or not ours to read
            pass
        return sorted(found)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
