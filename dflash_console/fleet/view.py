"""What the fleet knows of one host right now, as one frozen value."""

from __future__ import annotations

import msgspec

from dflash_console.config import HostConfig
from dflash_console.link import ssh_command
from dflash_console.model import SECTIONS, LinkStatus, Section, Snapshot

__all__ = ["HostView"]


class HostView(msgspec.Struct, frozen=True):
    """One host as the console knows it; a new object for every change, the same one while nothing changed."""

    config: HostConfig
    link: LinkStatus
    snapshot: Snapshot | None = None
    """The last good picture, kept for ever; None until the host has told its name."""
    heard: float | None = None
    """`time.monotonic()` at the last sample."""
    utilization: dict[str, tuple[int | None, ...]] = {}
    """GPU key (`model.gpu_key`) to the last minute up to the newest sample, oldest first, one cell an
    interval, at most 240; None where no value came."""
    shared: dict[str, tuple[str, ...]] = {}
    """GPU UUID to the names of the other hosts that show the same card."""
    unread: frozenset[Section] = frozenset(SECTIONS)
    """Sections that never came: their lists in the snapshot are empty because nothing is known."""
    notes: dict[str, str] = {}
    """Section to why the agent could not read it last time; gone once it could."""
    failures: int = 0
    """Failed tries in a row."""
    rebooted_at: float | None = None
    """The console's clock when the host came back with another boot id; None if it never did."""
    ssh_config: str | None = None
    """As in `config.ConsoleConfig`."""
    revision: int = 0
    """Grows with each change."""

    @property
    def ssh_command(self) -> str:
        """The command that reaches the host by hand, on the way that the console takes; empty for this
        machine."""
        return ssh_command(self.config, self.ssh_config)
