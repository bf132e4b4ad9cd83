"""What stands in place of a section that holds nothing, and why it does."""

from __future__ import annotations

from dflash_console.fleet import HostView, Section
from dflash_console.ui.drawing.line import Piece

__all__ = ["is_reading", "lacking"]


def lacking(view: HostView, section: Section, has_any: bool) -> Piece | None:
    """Why nothing can be said of a section yet; None when what came may be shown, be it empty."""
    if section in view.notes and not has_any:
        return "can't be read", "warn"
    return ("reading…", "faint") if section in view.unread else None


def is_reading(view: HostView) -> bool:
    """Whether the host answers and not everything was read yet."""
    return view.link.state == "up" and bool(view.unread)
