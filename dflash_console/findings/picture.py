"""What a rule may look at."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from dflash_console.model import Finding, LinkStatus, Role, Snapshot

__all__ = ["Picture", "Rule", "is_same_path", "numbers"]


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """One host as the rules see it. The fields are those of a fleet's HostView and its config."""

    snapshot: Snapshot
    link: LinkStatus
    role: Role = "observe"
    package_venv: str | None = None
    shared: Mapping[str, tuple[str, ...]] = {}
    """GPU UUID to the other hosts that show the card."""
    utilization: Mapping[str, tuple[int | None, ...]] = {}
    """GPU key to the last minute of utilization, oldest first."""
    unread: frozenset[str] = frozenset()
    notes: Mapping[str, str] = {}
    rebooted_at: float | None = None

    def is_package_venv(self, path: str) -> bool:
        """Whether a venv's path is the one that the config calls `package_venv`."""
        return is_same_path(self.package_venv, path, self.snapshot.host.home)


Rule: TypeAlias = Callable[[Picture], Iterator[Finding]]
"""A rule gives the findings of one kind; it takes no host, keeps nothing and never raises on a Missing."""


def is_same_path(configured: str | None, path: str | None, home: str = "") -> bool:
    """Whether a path of the config is that path of the host, which has `~/` expanded to the login user's `home`.

    Where the home is not known, any path that ends so is taken for it.
    """
    if configured is None or path is None:
        return False
    configured, path = posixpath.normpath(configured), posixpath.normpath(path)
    if not configured.startswith("~/"):
        return path == configured
    return path == posixpath.normpath(home + configured[1:]) if home else path.endswith(configured[1:])


def numbers(indexes: list[int]) -> str:
    """Indexes as people write them: `0-3, 7`."""
    runs: list[list[int]] = []
    for index in sorted(set(indexes)):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
