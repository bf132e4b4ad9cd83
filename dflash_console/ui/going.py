"""A copy or rollback as the screens speak of it."""

from __future__ import annotations

from typing import NamedTuple

from dflash_console.copies import TargetRun

__all__ = ["Going"]


class Going(NamedTuple):
    """A run, and what it is."""

    run: TargetRun
    doing: str
    """While it is under way: `copying from ct129`, `rolling back to 0.5.9`."""
    what: str
    """Once it is over: `copy from ct129`, `rollback to 0.5.9`."""

    @property
    def words(self) -> str:
        """What it is, or was."""
        return self.what if self.run.is_over else self.doing
