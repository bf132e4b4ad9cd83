"""What a deep verification needs on a host beside the agent: libraries as source, for the agent's memory.

They are sent once they are asked for, in one request: a third of a megabyte that most connections never need.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path

from dflash_console.errors import AgentFailed
from dflash_console.link.bundle import sources

__all__ = ["LIBRARIES", "deep_modules"]

LIBRARIES = ("packaging", "elftools")
"""Packages of this environment that are shipped whole."""

_packing = threading.Lock()


def deep_modules(libraries: Sequence[str] = LIBRARIES) -> dict[str, str]:
    """The field `modules` of the request `ship`: a module's full name (a package's ends with a dot) to its source,
    packed by zlib and written as base64. The whole fits into one frame to the agent.

    Blocks for some 0.02 s when called for the first time. Raises AgentFailed when a library is not installed here.
    """
    with _packing:
        return {module: text for name in libraries for module, text in _packed(name).items()}


@functools.cache
def _packed(name: str) -> dict[str, str]:
    return {
        module: base64.b64encode(zlib.compress(source)).decode("ascii")
        for module, source in sources(_folder_of(name), name)
    }


def _folder_of(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        raise AgentFailed(
            f"The {name} package is not installed beside the console: install the console again."
        )
    return Path(next(iter(folders)))
