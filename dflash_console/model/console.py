"""What the console adds to the picture of a host."""

from __future__ import annotations

import msgspec

from dflash_console.model.cells import Level, LinkState, Missing

__all__ = ["Finding", "LinkStatus"]


class LinkStatus(msgspec.Struct, frozen=True, gc=False):
    """How a host is reached right now."""

    state: LinkState
    detail: str = ""
    """What happened and what to do about it; empty while all is well."""
    latency_ms: float | Missing = Missing("not_found", "not connected")
    """Round trip of the last heartbeat."""
    since: float = 0.0
    """The console's clock."""
    next_try: float | None = None
    """The console's clock; None while connected or trying."""


class Finding(msgspec.Struct, frozen=True, gc=False):
    """Something wrong, or worth knowing, on one host."""

    code: str
    level: Level
    subject: str
    """What it is about: `gpu 1`, a venv's path, a unit's name."""
    text: str
    """One line that says what it means."""
    next_step: str = ""
    """A key of the console or an exact command."""
