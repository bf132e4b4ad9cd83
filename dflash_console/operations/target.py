"""One environment that is changed: what a copy and a rollback have in common, told as it is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from dflash_console.config import Config
from dflash_console.copies import Claim, Look, RunState, Side, Swapped, TargetRun
from dflash_console.errors import CopyError, LinkError
from dflash_console.link import Channel
from dflash_console.operations import remote
from dflash_console.operations.ending import since_words
from dflash_console.operations.judging import of_package
from dflash_console.operations.orders import LIMITS, order
from dflash_console.operations.reaching import Reaching
from dflash_console.operations.verify import prove
from dflash_console.verdict import Verdict

__all__ = ["Refused", "Stopped", "Target"]


class Refused(Exception):
    """The host does not let itself be changed now; the text says why."""


class Stopped(Exception):
    """The change did not come about; the text says why. `undone`: it had, and the old package is back."""

    def __init__(self, why: str, *, undone: bool = False) -> None:
        super().__init__(why)
        self.is_undone = undone


class Target:
    """One environment that is changed. Its `run` is what is told of it."""

    def __init__(
        self, fleet: Reaching, config: Config, side: Side, by: str, changed: Callable[[TargetRun], None]
    ) -> None:
        self.run = TargetRun(side)
        self.is_committed = False
        """Whether it must not be interrupted any more: it is swapped, or may be."""
        self.side = side
        self.may_copy = False
        """Whether a package that can't be renamed may be copied aside and removed."""
        self._unasked: LinkError | None = None
        """What ended the last verification's questions before they were answered."""
        self._fleet = fleet
        self._config = config
        self._by = by
        self._changed = changed

    def tell(self, state: RunState, detail: str = "", **fields: Any) -> None:
        """Notes how far it is."""
        began = self.run.began or time.time()
        self.run = msgspec.structs.replace(
            self.run, state=state, detail=detail, began=began, seconds=time.time() - began, **fields
        )
        self._changed(self.run)

    def note(self, words: str) -> None:
        """Adds to what else happened."""
        self.run = msgspec.structs.replace(self.run, notes=(*self.run.notes, words))

    async def change(self, channel: Channel) -> str:
        """Does it, over a channel of its own, up to the swap; empty when it is to be completed, else how it is now,
        with nothing to complete. Raises Refused, Stopped, CopyError, a LinkError."""
        raise NotImplementedError

    async def complete(self, channel: Channel) -> str:
        """Swaps, proves and settles; not to be interrupted. Says how it is now; raises as `change`."""
        raise NotImplementedError

    def begin(self) -> None:
        """Called when its turn has come."""

    def end(self) -> None:
        """Called at its end, however that was."""

    async def claim(
        self, channel: Channel, *, what: str, origin: Side | None, look: Look | None, ours: Look | None
    ) -> Claim:
        """Takes the lock, if all is as it was seen in `look`; `ours` is what comes there."""
        self.tell("claiming", "taking the lock")
        claim: Claim = await remote.claim(
            channel,
            self.side,
            self._config.package.name,
            by=self._by,
            what=what,
            origin=origin,
            version=ours.version if ours is not None else "",
            stamp=look.stamp if look is not None else "",
            tree=ours.tree if ours is not None else "",
            keep_backups=self._config.package.keep_backups,
            may_copy=self.may_copy,
        )
        if claim.recovered:
            self.note(claim.recovered)
        if claim.locked is not None:
            holder = claim.locked
            since = since_words(holder.since, time.time())
            raise Refused(
                f"held by {holder.by} since {since} ({holder.what or 'a copy'}): wait for its end and plan again"
            )
        if claim.changed:
            raise Refused(claim.changed)
        return claim

    async def prove(self, channel: Channel) -> Verdict:
        """Verifies what is at the place now; `channel` is the one it was claimed over."""
        views = self._fleet.views()
        view = next(view for view in views if view.config.name == self.side.host)
        what = order(view, self._config, self.side.venv, views, is_deep=False)
        asking = _Asking(self._fleet, channel)
        verdict = await prove(asking, what, lambda verdict: None)
        self._unasked = asking.failure
        # That a copy runs there just now is about this one.
        checks = tuple(check for check in verdict.checks if (check.kind, check.state) != ("copy", "warn"))
        return msgspec.structs.replace(verdict, checks=checks)

    def unverified(self, verdict: Verdict) -> str:
        """Says that the last verification could not be carried out, and that nothing was seen to be wrong; empty when
        it is not so."""
        if self._unasked is None or any(check.state == "fail" for check in of_package(verdict).checks):
            return ""
        return f"not verified, verify it again: {self._unasked}"

    def take_swap(self, swapped: Swapped) -> None:
        """Notes how the swap went. Raises Stopped when the host undid it."""
        checks = (*self.run.checks, *swapped.checks)
        self.run = msgspec.structs.replace(self.run, checks=checks, swap=swapped.swap, backup=swapped.backup)
        if swapped.is_undone:
            raise Stopped(swapped.detail, undone=bool(swapped.swap))


class _Asking:
    """A fleet that remembers what kept a question from being answered. The copy process may have an interpreter that
    is ready for one of them."""

    def __init__(self, fleet: Reaching, channel: Channel) -> None:
        self._fleet = fleet
        self._channel = channel
        self.failure: LinkError | None = None

    async def request(self, name: str, do: str, wait: float, /, **fields: object) -> msgspec.Raw:
        if fields.get("part") == "find_spec":
            with suppress(LinkError, CopyError):
                answer = await remote.find_spec(self._channel, fields["modules"], LIMITS["find_spec"])
                if answer is not None:
                    return answer
        try:
            return await self._fleet.request(name, do, wait, **fields)
        except LinkError as error:
            self.failure = error
            raise
