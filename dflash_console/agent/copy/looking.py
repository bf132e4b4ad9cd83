"""The Look of a package and its place: all that a plan needs to know, read without writing or locking anything."""

from __future__ import annotations

import os
import time

from ..glibc import host_glibc
from ..venvs.importing import loader_details
from ..venvs.look import shown
from ..verify.ground import Ground
from . import kept
from .ground import infos_in
from .hashing import Cache
from .importers import Importers
from .listing import Listing, list_files
from .place import Fault
from .surroundings import surroundings

__all__ = ["Seen", "look"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..venvs.importing import Found
    from .pipe import Pipe

MOST_TEXT = 4000


class Seen:
    """A look with the listing that it was made of."""

    def __init__(self, venv: str, package: str, cache: Cache) -> None:
        self.venv = venv
        self.package = package
        self.cache = cache
        """The hashes of all looks of this process."""
        self.listing: Listing
        self.look: dict[str, Any] = {}
        """As copies.Look."""
        self.folder = venv
        self.tops: list[str] = []

    def importers(self) -> Importers:
        """A search, begun now, for who runs from what was seen."""
        return Importers(self.folder, self.tops)


def look(venv: str, package: str, pipe: Pipe, before: Seen | None = None) -> Seen:
    """Look at a package in an environment; what was hashed for the look before is not read again if it is the same.

    Raises OSError when the disk fails.
    """
    began = time.monotonic()
    seen = Seen(venv, package, before.cache if before is not None else Cache())
    ground = Ground(venv, package)
    where = _Where(ground)
    seen.folder, seen.tops = ground.folder, where.tops
    importers = seen.importers()
    try:
        if before is None and ground.problem is None:
            kept.take_hashes(ground.folder, where.site, seen.cache)
        problem = where.problem
        try:
            seen.listing = list_files(where.site, where.names, seen.cache, pipe)
        except Fault as error:
            where.state, problem = "broken", str(error)
            seen.listing = list_files(where.site, [], seen.cache, pipe)
        listing = seen.listing
        seen.look = {
            "venv": shown(ground.folder),
            "real": shown(os.path.realpath(ground.folder)),
            "site": shown(where.site),
            "state": where.state,
            "problem": problem[:MOST_TEXT],
            "version": where.version,
            "dist_infos": [shown(name) for name in where.dist_infos],
            "dist_version": where.dist_version,
            "tree": listing.tree if listing.entries else "",
            "stamp": listing.stamp,
            "files": len(listing.entries),
            "size": listing.size,
            "strange": listing.walked.strange,
            "followed": listing.walked.followed,
            "restless": listing.walked.restless,
            "hard_linked": listing.walked.hard_linked,
            **_python(ground),
            **surroundings(ground.folder, where.site, where.names),
            **kept.facts(ground.folder, package, pipe.mind),
            "importers": importers.read(pipe.mind),
        }
    finally:
        importers.close()
    seen.look["seconds"] = round(time.monotonic() - began, 3)
    return seen


class _Where:
    """Where the package is, or would be laid, and in what state."""

    def __init__(self, ground: Ground) -> None:
        self.state = "absent"
        self.problem = ""
        self.version = self.dist_version = ""
        self.site = ground.site
        self._package = ""
        self.dist_infos: list[str] = []
        if ground.problem is not None:
            self.state, self.problem = "broken", str(ground.problem["detail"])
            return
        if ground.found is not None:
            self._take(ground, ground.found)
        if isinstance(ground.interpreter.python, dict):
            self.state, self.problem = "broken", str(ground.interpreter.python["detail"])
        elif not ground.site:
            self.state, self.problem = "broken", f"no lib/{ground.interpreter.library}/site-packages"
        if self.site:
            infos = infos_in(self.site, ground.package)
            self.dist_infos = [name for name in infos if os.path.isdir(f"{self.site}/{name}")]

    @property
    def names(self) -> list[str]:
        """What of the folder is the package's: its own name and its dist-infos'."""
        return ([self._package] if self._package else []) + self.dist_infos

    @property
    def tops(self) -> list[str]:
        """The package's folder, if there is one."""
        return [f"{self.site}/{self._package}"] if self._package else []

    def _take(self, ground: Ground, found: Found) -> None:
        """Of a package that is there."""
        cells = ground.cells([])
        self.version = _text(cells.get("version"))
        self.dist_version = _text(cells.get("dist_version"))
        self.site = ground.home
        if found.folders:
            self._package = os.path.basename(ground.where)
        where = shown(ground.where)
        if cells.get("kind") == "editable":
            self.state = "editable"
            self.problem = f"an editable install, from {_text(cells.get('editable_from')) or where}"
        elif found.folders is None:
            self.state, self.problem = "module", f"a single file, {shown(str(found.origin))}"
        elif found.origin is None and not os.access(ground.where, os.R_OK | os.X_OK):
            self.state, self.problem = "broken", f"{where} may not be read"
        elif ground.home not in ground.interpreter.sites:
            self.state, self.problem = "outside", f"it comes from {where}, outside of the environment"
        elif os.path.islink(ground.where):
            self.state = "outside"
            self.problem = f"{where} is a link to {shown(os.path.realpath(ground.where))}"
        elif found.origin is None:
            self.state, self.problem = "namespace", f"a folder without __init__.py, {where}"
        else:
            self.state = "whole"


def _python(ground: Ground) -> dict[str, Any]:
    if ground.problem is not None:
        return {}
    compiled = loader_details(ground.interpreter)[0][1]
    soabi = next((suffix[1:-3] for suffix in compiled if suffix.startswith(".cpython-")), "")
    return {
        "python": _text(ground.interpreter.python),
        "soabi": soabi,
        "glibc": ".".join(map(str, host_glibc())),
    }


def _text(value: object) -> str:
    """A cell's text; empty for a reason why there is none."""
    return shown(value) if isinstance(value, str) else ""
