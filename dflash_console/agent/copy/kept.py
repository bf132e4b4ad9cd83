"""What earlier copies left in an environment, for the look: lock, journal, provenance, backups, hashes. Read only."""

from __future__ import annotations

import os
import select
import time

from ..child import OneShot
from . import backups, place, recover
from .hashing import FINE

__all__ = ["facts", "take_hashes"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..child import Channel
    from .hashing import Cache

LIMIT = 20.0
"""Seconds."""
TURN = 0.05


def facts(venv: str, package: str, mind: Callable[[], object]) -> dict[str, Any]:
    """The fields of copies.Look about it; `mind` is called while a child is waited for.

    In a child, for who uses a backup is asked of all processes, and one may hang.
    """
    if not os.path.isdir(f"{venv}/{place.FOLDER}"):
        return {}
    shot = OneShot(LIMIT)
    shot.start(lambda channel: _read(channel, venv, package), time.monotonic())
    outcome = None
    while outcome is None:
        fds = shot.fds()
        ready = select.select(fds, [], [], TURN)[0] if fds else []
        outcome = shot.ready(time.monotonic()) if ready else shot.tick(time.monotonic())
        mind()
    shot.close()
    if not outcome.values:
        raise place.Fault(f"what earlier copies left in {venv} can't be read: {outcome.error}")
    return {key: value for part in outcome.values for key, value in part.items()}


def _read(channel: Channel, venv: str, package: str) -> None:
    channel.send(
        {
            "lock": place.holder(venv),
            "provenance": place.read_provenance(venv),
            "unsettled": recover.unsettled(venv, package),
        }
    )
    channel.send({"backups": backups.listing(venv)})


def take_hashes(venv: str, site: str, cache: Cache) -> None:
    """Take the hashes of what a copy laid, of files that are still the same. Without any, all is hashed anew."""
    try:
        written = os.stat(f"{venv}/{place.FOLDER}/{place.MANIFEST}").st_mtime_ns
        device = os.stat(site).st_dev
    except OSError:
        return
    for _, size, _, mtime, ctime, inode, digest in place.read_manifest(venv):
        # One that was changed right after its hash was taken may bear the same times.
        if ctime + FINE < written:
            cache.know((device, inode, size, mtime, ctime), digest)
