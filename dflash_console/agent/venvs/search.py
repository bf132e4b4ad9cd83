"""Looks for virtual environments in the usual places, with bounds on depth, entries and filesystems."""

from __future__ import annotations

import os

__all__ = ["Found", "find_venvs", "remote_mounts"]

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
"""Environments that are shown because they were found; the config can name any number."""
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


class Found:
    """What a search has found."""

    def __init__(self, venvs: list[str], note: str) -> None:
        self.venvs = venvs
        """Folders of environments, by real path, each once; at most VENVS_LIMIT."""
        self.note = note
        """What it leaves out; mostly empty."""


def find_venvs(remote: list[str], home: str, places: Iterable[str] = PLACES) -> Found:
    """The environments in a home and in `places`.

    Links to folders are not followed and what is mounted at a mount point in `remote` is not entered.
    """
    search = _Search(remote)
    homes = [home, *(folder for place in places for folder in search.expand(place))]
    roots = [(folder, DEPTH) for folder in homes]
    roots += [(f"{folder}/{name}", 1) for folder in homes for name in COLLECTIONS]
    for folder, depth in roots:
        real = os.path.realpath(folder)
        if not search.is_remote(real) and os.path.isdir(real):
            search.below(real, depth)
    venvs, notes = list(search.venvs), []
    if len(venvs) > VENVS_LIMIT:
        more = len(venvs) - VENVS_LIMIT
        notes.append(f"{more} more venvs not shown (limit {VENVS_LIMIT}): name them in the config")
    if search.is_cut:
        notes.append(f"the search for venvs ended after {ENTRIES_LIMIT} entries: name others in the config")
    return Found(venvs[:VENVS_LIMIT], "; ".join(notes))


class _Search:
    def __init__(self, remote: list[str]) -> None:
        self.venvs: dict[str, None] = {}
        self._remote = remote
        self._entries = 0
        self._seen: dict[str, int] = {}
        """Folders that were entered, and how deep from there."""

    @property
    def is_cut(self) -> bool:
        return self._entries > ENTRIES_LIMIT

    def is_remote(self, path: str) -> bool:
        return any(path == mount or path.startswith(mount + "/") for mount in self._remote)

    def expand(self, place: str) -> list[str]:
        """The folders that a place stands for: more than one when a star is at its end."""
        folder, star, _ = place.partition("/*")
        return sorted(f"{folder}/{entry.name}" for entry in self._entries_of(folder)) if star else [place]

    def below(self, folder: str, depth: int) -> None:
        """Take the environment that the folder is, else those in it."""
        if self._is_venv(folder):
            self.venvs.setdefault(folder)
            folder, depth = f"{folder}/envs", 1  # conda's base holds the others
        if depth == 0 or self._seen.get(folder, -1) >= depth:
            return
        self._seen[folder] = depth
        for path in self._folders(folder):
            self.below(path, depth - 1)

    def _is_venv(self, folder: str) -> bool:
        return os.path.exists(f"{folder}/pyvenv.cfg") or os.path.isdir(f"{folder}/conda-meta")

    def _folders(self, folder: str) -> list[str]:
        found = []
        for entry in self._entries_of(folder):
            path = f"{folder.rstrip('/')}/{entry.name}"
            if entry.name not in SKIPPED and path not in self._remote and _is_folder(entry):
                found.append(path)
        return sorted(found)

    def _entries_of(self, folder: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._entries += 1
                    if self.is_cut:
                        return
                    yield entry
        except OSError:  # gone meanwhile, or not ours to read
            return


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
