"""What a key does, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Action", "Place"]

Place = Literal[
    "everywhere", "fleet", "host", "overview", "environments", "evidence", "page", "copy", "compare", "diff"
]
"""Where a key works; `overview` and `environments` are tabs of the host screen, whose own keys are in `host`. `page` is
a copy's plan and progress, a list of backups or a comparison; `copy` and `compare` have keys of their own besides."""


@dataclass(frozen=True)
class Action:
    """Something that a key does."""

    id: str
    """Names the action in keymaps and tests."""
    keys: tuple[str, ...]
    """As Textual spells them."""
    shown: str
    """The keys as people read them."""
    run: str
    """The Textual action."""
    help: str
    place: Place
    footer: tuple[str, str] | None = None
    """Key and word in the footer; None when it is only in the help."""
    rank: int = 50
    """Order in the footer: the lowest first, the last ones are dropped where room lacks."""
    title: str = ""
    """Its name in the palette; empty for what makes no sense there."""
