"""The steps of a rollback on one target."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dflash_console.config import Config
from dflash_console.copies import Look, Side, TargetRun
from dflash_console.link import Channel
from dflash_console.operations import remote
from dflash_console.operations.reaching import Reaching
from dflash_console.operations.target import Stopped, Target

__all__ = ["RollBackTarget"]


class RollBackTarget(Target):
    """An environment whose backup is put back."""

    def __init__(
        self,
        fleet: Reaching,
        config: Config,
        look: Look,
        side: Side,
        backup: str,
        by: str,
        changed: Callable[[TargetRun], None],
    ) -> None:
        super().__init__(fleet, config, side, by, changed)
        self._look = look
        self._backup = backup

    async def change(self, channel: Channel) -> str:
        is_broken_off = not self._backup and self._look.unsettled is not None
        # Settling what was broken off may change the package, and leave the backup that is to be put back.
        look = None if is_broken_off else self._look
        await self.claim(channel, what="rollback", origin=None, look=look, ours=None)
        if is_broken_off:
            await self._see_backup(channel)
        return ""

    async def _see_backup(self, channel: Channel) -> None:
        """Raises Stopped when there is none to put back."""
        look, _ = await remote.look(channel, self.side.venv, self._config.package.name, entries=False)
        if any(backup.reason == "copy" for backup in look.backups):
            return
        await remote.release(channel)
        kept = ", ".join(backup.id for backup in look.backups) or "none"
        now = f"{look.version or 'a package'} is in place" if look.state == "whole" else f"now {look.state}"
        raise Stopped(
            f"what was broken off is settled ({now}); no backup that a copy replaced is there to be put back; all that "
            f"are kept: {kept}"
        )

    async def complete(self, channel: Channel) -> str:
        self.tell("swapping", f"putting back {self._backup or 'the newest backup'}")
        # Only that it imports: what was there before the copy need not have the modules that were copied for.
        swapped = await remote.restore(channel, self._backup, [])
        self.take_swap(swapped)
        self.tell("verifying", "verifying the package in its place")
        verdict = await self.prove(channel)
        why = "; ".join(f"{check.name}: {check.detail}" for check in verdict.reasons[:2])
        note = self.unverified(verdict)
        if not note and not verdict.is_ready:
            note = f"not ready: {why or 'checks are missing'}"
        settled = await remote.settle(channel, keep=True, note=note)
        if settled.undone:
            raise Stopped(settled.detail, undone=True)
        self.run = msgspec.structs.replace(self.run, verdict=verdict)
        return f"put back{f'; {note}' if note else ''}"
