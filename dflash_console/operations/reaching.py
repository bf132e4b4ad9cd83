"""What copies need of the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from dflash_console.fleet import HostView
from dflash_console.link import Channel
from dflash_console.operations.verify import Asking

__all__ = ["MOST_ON_A_HOST", "Reaching"]

MOST_ON_A_HOST = 3
"""Copy processes at a time: a connection has four channels, and one of them watches."""


class Reaching(Asking, Protocol):
    """A fleet that also starts copy processes."""

    def views(self) -> Sequence[HostView]:
        """Every host, in the config's order."""
        ...

    def channel(self, name: str, /) -> AbstractAsyncContextManager[Channel]:
        """A copy process of its own on a host, over the host's connection. Entering it raises a LinkError, also when
        the host is not connected; KeyError for a name that is not in the config."""
        ...
