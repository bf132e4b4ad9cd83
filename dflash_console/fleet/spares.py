"""Copy processes that wait a while for their next use: a plan is mostly followed by its copy."""

from __future__ import annotations

import asyncio

from dflash_console.link import Channel

__all__ = ["Spares"]

KEPT = 120.0
"""Seconds: an operator reads a plan before saying yes."""


class Spares:
    """The idle copy processes of one host's link."""

    def __init__(self) -> None:
        self._kept: list[tuple[float, Channel]] = []
        self._news = asyncio.Event()

    def take(self) -> Channel | None:
        """One that still runs, if there is any."""
        while self._kept:
            _, channel = self._kept.pop()
            if not channel.has_failed:
                return channel
        return None

    def keep(self, channel: Channel) -> bool:
        """Keeps one for its next use; False for one that has to be closed instead."""
        # More than one would only hold up the few channels of a connection.
        if channel.has_failed or channel.is_used_up or self._kept:
            return False
        self._kept.append((asyncio.get_running_loop().time() + KEPT, channel))
        self._news.set()
        return True

    def forget(self) -> None:
        """Lets all go: their link has ended, and they with it."""
        self._kept.clear()

    async def mind(self) -> None:
        """Closes those that waited too long, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._news.clear()
            if not self._kept:
                await self._news.wait()
            await asyncio.sleep(self._kept[0][0] - loop.time() if self._kept else 0.0)
            due = [channel for until, channel in self._kept if until <= loop.time()]
            self._kept = [kept for kept in self._kept if kept[1] not in due]
            for channel in due:
                await channel.close()
