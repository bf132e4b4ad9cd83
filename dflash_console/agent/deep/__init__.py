"""What find_spec can't see: pins, compiled files, the import itself, CUDA. Each part runs in a child of the agent.

A part's module has `work(channel, message)`, which sends {"checks": [...], "facts": {...}} once. They need
`packaging` and `elftools`, which the console ships before it asks. Nothing here may run in the agent itself: the
modules of a part are imported in its child.

What a message has beside `venv`, `package`, `modules` and `limit`; each of it may be missing or None:
    source           {"host", "venv", "torch", "python"}: where the package comes from, as far as that is known
    source_metadata  text of the METADATA of that package on its source host
    source_problem   why there is none
    is_planned       whether that package is to be copied over what is here now
    units            names of the host's units; the one that starts the environment decides with its variables
    driver           {"version", "cuda"} as the GPU section tells them
    gpus             [{"index", "uuid", "busy"}]
    force            whether a GPU in use may be disturbed
"""

from __future__ import annotations

__all__ = ["PARTS", "work_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..child import Channel

    Work = Callable[[Channel, "dict[str, Any]"], None]

PARTS = ("pins", "abi", "import", "cuda", "metadata")
"""What `work_of` knows."""


def work_of(part: str) -> Work:
    """A part's work, to be called in a child. Raises KeyError for an unknown part."""
    return {"pins": _pins, "abi": _abi, "import": _import, "cuda": _cuda, "metadata": _metadata}[part]


def _pins(channel: Channel, message: dict[str, Any]) -> None:
    from .pins import work

    work(channel, message)


def _metadata(channel: Channel, message: dict[str, Any]) -> None:
    from .pins import tell_metadata

    tell_metadata(channel, message)


def _abi(channel: Channel, message: dict[str, Any]) -> None:
    from .abi import work

    work(channel, message)


def _import(channel: Channel, message: dict[str, Any]) -> None:
    from .importing import work

    work(channel, message)


def _cuda(channel: Channel, message: dict[str, Any]) -> None:
    from .cuda import work

    work(channel, message)
