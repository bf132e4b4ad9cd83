"""Where a package is, or would be laid, in an environment, and why nothing can be put there."""

from __future__ import annotations

import os

from ..mounts import mount_of, read_mounts
from ..venvs.distributions import Distributions
from ..venvs.look import Look
from ..verify.ground import Ground
from .place import FOLDER, Fault

__all__ = ["Spot", "infos_in"]


class Spot:
    """The environment's folder, its site-packages and interpreter. Raises Fault where no copy may go."""

    def __init__(self, venv: str, package: str) -> None:
        ground = Ground(venv, package)
        self.venv, self.package = ground.folder, package
        if ground.problem is not None:
            raise Fault(f"{self.venv}: {ground.problem['detail']}")
        self.sites = ground.interpreter.sites
        """All of the environment's own."""
        if not self.sites:
            raise Fault(f"{self.venv} has no lib/{ground.interpreter.library}/site-packages")
        found = ground.found
        if found is not None and (found.is_mapped or ground.home in ground.path.editable):
            raise Fault(f"{package} is an editable install of {ground.where}: a copy beside it would hide it")
        if found is not None and found.folders is None and ground.home in self.sites:
            raise Fault(f"{found.origin} is a single file: it would stay beside a copied package")
        self.site = ground.home if ground.home in self.sites else self.sites[0]
        self.python = ground.python()
        self.check_mounts()

    def origin(self) -> str:
        """Where an import of the package would come from now; empty for nowhere."""
        found = Ground(self.venv, self.package).found
        return str(found.origin or "") if found is not None else ""

    def check_mounts(self) -> None:
        """Raises Fault where a mount keeps the package from being replaced."""
        mounts = read_mounts()
        real = f"{os.path.realpath(self.site)}/{self.package}"
        for mount, _ in mounts:
            if f"{mount}/".startswith(f"{real}/"):
                words = "it can't be replaced in one piece: unmount it, or copy where it is mounted from"
                raise Fault(f"{mount} is a mount point: {words}")
        here, there = (mount_of(os.path.realpath(path), mounts)[0] for path in (self.site, self.venv))
        if here != there:
            words = f"not of {self.venv}/{FOLDER}: nothing can be swapped across"
            raise Fault(f"{self.site} is on the filesystem mounted at {here}, {words}")


def infos_in(site: str, package: str) -> list[str]:
    """Names of the package's dist-infos (and egg-infos) in a site-packages folder."""
    return sorted(item.name for item in Distributions([site], Look()).find(package))
