"""systemd units: read by `systemctl show` when the bus says that one changed, with what they really start."""

from __future__ import annotations

from .section import UnitSection

__all__ = ["UnitSection"]
