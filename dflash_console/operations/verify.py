"""Proves a package: asks a host's agent for all parts side by side and puts the verdict together as they answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from dflash_console.errors import LinkError
from dflash_console.link.shipment import deep_modules
from dflash_console.operations.orders import LIMITS, Order
from dflash_console.verdict import Check, Facts, Part, PartAnswer, Verdict, in_order

__all__ = ["AT_ONCE", "FAULT_LENGTH", "FILES_AT_ONCE", "Asking", "Turns", "fingerprint_of", "prove"]

SPARE = 10.0
"""Seconds beyond a part's own limit within which the agent must have said that it was reached."""
FAULT_LENGTH = 300
"""Characters that are shown of a fault of our own."""
SHIPPING = 30.0
ASKING = 10.0
LOOKING = 30.0
"""Seconds within which a look at all files of a package must be answered."""

AT_ONCE, FILES_AT_ONCE = 8, 4
"""Parts of one host that are asked at once, and of those `files` besides: as many as its agent does (agent/jobs.py)."""

_decoder = msgspec.json.Decoder(PartAnswer)
_facts = msgspec.json.Decoder(Facts)


class Asking(Protocol):
    """What is needed of the fleet."""

    async def request(self, name: str, do: str, wait: float, /, **fields: object) -> msgspec.Raw:
        """What a host's agent answers. Raises a LinkError."""
        ...


class Turns:
    """Keeps what is asked of each host to what its agent does at once. What waited there would use up its own time, so
    that of many environments the last ones would seem to hang."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, bool], asyncio.Semaphore] = {}

    def of(self, host: str, part: Part) -> asyncio.Semaphore:
        """What to hold while a part is asked."""
        is_quick = part == "files"
        key = (host, is_quick)
        if key not in self._places:
            self._places[key] = asyncio.Semaphore(FILES_AT_ONCE if is_quick else AT_ONCE)
        return self._places[key]


async def prove(
    fleet: Asking,
    order: Order,
    changed: Callable[[Verdict], None],
    *,
    turns: Turns | None = None,
    clock: Callable[[], float] = time.time,
) -> Verdict:
    """The verdict on one environment; `changed` gets each state of it on the way, the last one too. `turns` is shared
    by all that are proved at a time.

    It never raises a LinkError: what could not be asked is a check in the state `unknown`.
    """
    proof = _Proof(fleet, order, changed, turns or Turns(), clock)
    async with asyncio.TaskGroup() as tasks:
        prepared = tasks.create_task(proof.prepare())
        for part in order.parts:
            tasks.create_task(proof.ask(part, prepared))
    return proof.verdict


async def fingerprint_of(fleet: Asking, host: str, venv: str, package: str) -> str:
    """As `Verdict.fingerprint`, of the files as they are now; empty when the host does not tell."""
    try:
        raw = await fleet.request(host, "fingerprint", LOOKING, venv=venv, package=package)
        return _facts.decode(raw).fingerprint
    except (LinkError, msgspec.MsgspecError):
        return ""


class _Proof:
    def __init__(
        self,
        fleet: Asking,
        order: Order,
        changed: Callable[[Verdict], None],
        turns: Turns,
        clock: Callable[[], float],
    ) -> None:
        self._fleet = fleet
        self._turns = turns
        self._order = order
        self._changed = changed
        self._clock = clock
        self._deep_fields = dict(order.deep_fields)
        self.verdict = Verdict(order.host, order.venv, waiting=order.parts, is_deep=order.is_deep, at=clock())
        changed(self.verdict)

    async def prepare(self) -> str:
        """What the deep parts stand on: the libraries on the host, and the metadata of the package's source.

        Gives back why they can't be asked; empty when all is well.
        """
        if not self._order.is_deep:
            return ""
        try:
            await self._fleet.request(self._order.host, "ship", SHIPPING, modules=deep_modules())
        except LinkError as error:
            return f"the libraries for a deep verification could not be brought to the host: {error}"
        if self._order.source is not None:
            host, venv = self._order.source
            try:
                answer = await self._fleet.request(
                    host,
                    "verify",
                    ASKING,
                    **{**self._order.fields, "part": "metadata", "venv": venv, "limit": ASKING},
                )
                self._deep_fields["source_metadata"] = "\n".join(_decoder.decode(answer).facts.metadata)
            except (LinkError, msgspec.MsgspecError) as error:
                self._deep_fields["source_problem"] = f"{host} could not be asked: {error}"
        return ""

    async def ask(self, part: Part, prepared: asyncio.Task[str]) -> None:
        limit = LIMITS[part]
        is_deep = part not in ("files", "find_spec", "service")
        problem = await prepared if is_deep else ""
        answer = PartAnswer((Check(part, "unknown", problem),))
        if not problem:
            fields = {**self._order.fields, **(self._deep_fields if is_deep else {})}
            try:
                async with self._turns.of(self._order.host, part):
                    raw = await self._fleet.request(
                        self._order.host, "verify", limit + SPARE, part=part, limit=limit, **fields
                    )
                answer = _decoder.decode(raw)
            except LinkError as error:
                answer = PartAnswer((Check(part, "unknown", str(error)),))
            except msgspec.MsgspecError as error:
                answer = PartAnswer((Check(part, "unknown", f"the agent answered with nonsense: {error}"),))
            except Exception as error:  # noqa: BLE001 - a fault of ours in one part must not hide the others' answers
                words = f"a fault of the console itself: {type(error).__name__}: {error}"
                answer = PartAnswer((Check(part, "unknown", words[:FAULT_LENGTH]),))
        self._take(part, answer)

    def _take(self, part: Part, answer: PartAnswer) -> None:
        verdict = self.verdict
        self.verdict = msgspec.structs.replace(
            verdict,
            checks=in_order((*verdict.checks, *answer.checks)),
            waiting=tuple(waiting for waiting in verdict.waiting if waiting != part),
            at=self._clock(),
            fingerprint=answer.facts.fingerprint or verdict.fingerprint,
        )
        self._changed(self.verdict)
