"""Lines of a page of which some can be opened."""

from __future__ import annotations

from typing import NamedTuple

from dflash_console.ui.drawing.line import Line

__all__ = ["Opens", "Shown"]


class Opens(NamedTuple):
    """What a line opens."""

    kind: str
    """`check`, `backup`, `file`: a screen knows what to do with its own."""
    of: str
    name: str
    """Together with `kind` and `of` it tells the line from others while the page is drawn anew."""
    what: object = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Stays the same while what it opens changes."""
        return self.kind, self.of, self.name


class Shown(NamedTuple):
    """A line, and what it opens."""

    line: Line
    opens: Opens | None = None
