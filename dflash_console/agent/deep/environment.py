"""An environment as the deep parts look at it: its package, torch, what is installed, and the unit that starts it."""

from __future__ import annotations

import os
import re

from ..venvs.importing import loader_details
from ..venvs.packages import read_packages
from ..verify.ground import Ground
from ..verify.unit_facts import read_start

__all__ = ["Environment", "Unit", "find_environment", "find_unit"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..venvs.distributions import Distribution

METADATA_LIMIT = 1 << 20
TORCH_CUDA = re.compile(r"^cuda\b[^=\n]*=[ \t]*['\"](\d+(?:\.\d+)*)['\"]", re.MULTILINE)
"""Of torch/version.py: `cuda: Optional[str] = '13.0'`; None there for a build without CUDA."""


class Environment:
    """One environment, looked at once. There is one: `ground.problem` is None."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.package = ground.package
        self.interpreter = ground.interpreter
        self.look = ground.look
        spec = {"package": ground.package, "modules": [], "distributions": []}
        self._read = read_packages(ground.interpreter, spec, ground.look)

    @property
    def tree(self) -> str | None:
        """The package's folder; None when there is none."""
        return self.folder(self.package)

    @property
    def tree_version(self) -> str:
        """What the package's own files say; empty when they don't."""
        return _text(self._read["package"], "version")

    @property
    def dist_version(self) -> str:
        """What the package's dist-info says; empty without one, or with several."""
        return _text(self._read["package"], "dist_version")

    @property
    def torch(self) -> str:
        """torch's version with its build, `2.11.0+cu130`; empty without torch."""
        build = self._read["torch_build"]
        return build if isinstance(build, str) else ""

    @property
    def torch_cuda(self) -> str:
        """The CUDA that torch was built for, `13.0`; empty when it was built without."""
        folder = self.folder("torch")
        text = (self.look.text(f"{folder}/version.py") if folder else None) or ""
        found = TORCH_CUDA.search(text)
        return found[1] if found else ""

    @property
    def suffixes(self) -> list[str]:
        """How the names of compiled modules end that the interpreter takes."""
        return list(loader_details(self.interpreter)[0][1])

    def folder(self, name: str) -> str | None:
        """Where a top-level package lies."""
        found = self.ground.finder.find(name)
        return found.folders[0] if found is not None and found.folders else None

    def installed(self, name: str) -> list[Distribution]:
        """What an import of its metadata would find: more than one only in a spoilt environment."""
        return self.ground.distributions.find(name)

    def metadata(self, name: str) -> str | None:
        """The text of a distribution's METADATA."""
        texts = (self.look.text(f"{item.path}/METADATA", METADATA_LIMIT) for item in self.installed(name))
        return next((text for text in texts if text is not None), None)

    def shown(self, path: str) -> str:
        """A path without the folder of the search path before it."""
        for folder in self.ground.path.folders:
            if path.startswith(folder + "/"):
                return path[len(folder) + 1 :]
        return path


class Unit:
    """What of the unit that starts an environment decides over its package; empty when no unit does."""

    def __init__(self, name: str, variables: dict[str, str], arguments: list[str]) -> None:
        self.name = name
        self.variables = variables
        """Its environment. Never shown: it may hold secrets."""
        self.arguments = arguments
        """Its command line, word by word."""


def find_environment(message: dict[str, Any]) -> Environment | str:
    """The environment that a message is about, or why there is none. Raises OSError when the disk fails."""
    ground = Ground(str(message["venv"]), str(message["package"]))
    return Environment(ground) if ground.problem is None else str(ground.problem["detail"])


def find_unit(environment: Environment, message: dict[str, Any]) -> Unit:
    """The first of the message's units that starts this environment's Python. Blocks: systemd is asked."""
    here = os.path.realpath(environment.ground.folder)
    for name in message.get("units") or []:
        start = read_start(str(name))
        if start.interpreter and os.path.realpath(start.prefix) == here:
            return Unit(start.name, start.environment, start.command.split())
    return Unit("", {}, [])


def _text(package: dict[str, Any], key: str) -> str:
    value = package.get(key)
    return value if isinstance(value, str) else ""
