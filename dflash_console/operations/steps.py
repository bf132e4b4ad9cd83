"""The steps of a copy on one target, from its claim to its settled end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from dflash_console.config import Config
from dflash_console.copies import (
    Consent,
    CopyPlan,
    Entry,
    TargetPlan,
    TargetRun,
)
from dflash_console.errors import AgentFailed, CopyError, LinkError
from dflash_console.link import Channel
from dflash_console.operations import remote
from dflash_console.operations.gate import refusal
from dflash_console.operations.ground import few
from dflash_console.operations.judging import importable, is_there_already, of_package
from dflash_console.operations.progress import Rate
from dflash_console.operations.pump import END, Feed, Pump
from dflash_console.operations.reaching import Reaching
from dflash_console.operations.sides import units_of
from dflash_console.operations.target import Refused, Stopped, Target
from dflash_console.verdict import Verdict

__all__ = ["CopyTarget"]

MOST_PASSES = 4
"""Times that a target may say that something is missing although all was brought to it."""


SLOWER = "slower than the others: it was left behind and got a pass of its own"


class CopyTarget(Target):
    """A target of a copy."""

    def __init__(
        self,
        fleet: Reaching,
        config: Config,
        plan: CopyPlan,
        target: TargetPlan,
        consent: Consent,
        by: str,
        changed: Callable[[TargetRun], None],
        pump: Pump,
        whole: Callable[[], Awaitable[CopyPlan]] | None = None,
    ) -> None:
        super().__init__(fleet, config, target.side, by, changed)
        differs = target.difference
        if differs is not None:
            counts = {name: getattr(differs, name) for name in ("added", "changed", "removed")}
            self.run = msgspec.structs.replace(self.run, **counts)
        self._plan = plan
        self._target = target
        self._consent = consent
        self.may_copy = "layer" in consent.allowed
        self._pump = pump
        self._whole = whole
        self._rate = Rate()
        self._is_announced = False

    def begin(self) -> None:
        self._is_announced = True
        self._pump.announce()

    def end(self) -> None:
        """Has the pump not wait for it any more; as often as one likes."""
        if self._is_announced:
            self._is_announced = False
            self._pump.excuse()

    async def change(self, channel: Channel) -> str:
        plan = self._plan
        claim = await self.claim(
            channel,
            what=f"copy from {plan.source.host}",
            origin=plan.source,
            look=self._target.look,
            ours=plan.look,
        )
        await self._refuse_running(channel, claim.importers)
        if is_there_already(plan.look, self._target):
            await self._judge_source(channel)
            if words := await self._leave(channel):
                return words
        self.tell("sending", "comparing with what is there")
        await remote.expect(channel, plan.entries)
        wanted = await remote.want(channel)
        await self._receive(channel, plan.entries, wanted.wanted)
        # What is checked depends on what is wrong with the source, and who runs from here by now is seen by the check.
        await self._judge_source(channel)
        self.tell("checking", "checking every file again, its owner, the import", rate=0.0, left=None)
        checks = await remote.check(channel, self._to_import())
        self.run = msgspec.structs.replace(self.run, checks=checks)
        if failed := [check for check in checks if check.state == "fail"]:
            raise Stopped(f"nothing was changed: {failed[0].name}: {failed[0].detail}")
        # Much may have begun while the files came.
        importers = next((check.evidence for check in checks if check.name == "importers"), ())
        await self._refuse_running(channel, importers)
        return ""

    async def _judge_source(self, channel: Channel) -> None:
        """Has the gate see the plan once its source is verified. Raises Refused when it does not let it pass."""
        if self._whole is None or not self._plan.is_proving:
            return
        self.tell(self.run.state, f"waiting for the verification of {self._plan.source}")
        self._plan = await self._whole()
        self._target = next(target for target in self._plan.targets if target.side == self.side)
        if why := refusal(self._target, self._consent, read_only=False):
            await remote.release(channel)
            raise Refused(why)

    async def _refuse_running(self, channel: Channel, importers: Sequence[str]) -> None:
        """Raises Refused when something runs from there now that was not there to say yes to."""
        if "running" in self._consent.allowed:
            return
        view = next((view for view in self._fleet.views() if view.config.name == self.side.host), None)
        units = units_of(view, self.side.venv, self._target.look)
        if who := (*(f"unit {unit}" for unit in units), *importers):
            await remote.release(channel)
            raise Refused(
                f"{few(who)} began to run from {self.side} after the plan was made: make a new plan"
            )

    async def _leave(self, channel: Channel) -> str:
        """Proves what is there, the same as what would come, and leaves it: how it is now. Empty when it is not right
        as it lies there, so that it has to be laid anew (bytecode and leftovers are none of a package's files)."""
        self.end()
        self.tell("verifying", "already the same: verifying it as it is")
        verdict = await self.prove(channel)
        keep, note = self._judge(verdict)
        if not keep:
            self.note(f"already the same, but {note}: laid anew")
            return ""
        self.run = msgspec.structs.replace(self.run, verdict=verdict)
        await remote.release(channel)
        return f"already the same, nothing was changed{f'; {note}' if note else ''}"

    @property
    def _is_unproved(self) -> bool:
        """Whether it comes from a source that is not ready, and may all the same."""
        source = self._plan.verdict
        return "unverified" in self._consent.allowed and (source is None or not source.is_ready)

    def _to_import(self) -> list[list[str]]:
        modules = self._config.package.alternatives
        if self._is_unproved:
            modules, words = importable(modules, self._plan.entries, self._plan.verdict)
            if words:
                self.note(words)
        return modules

    async def _receive(self, channel: Channel, entries: Sequence[Entry], wanted: Sequence[int]) -> None:
        before = channel.sent
        self._see_files(entries, wanted)
        files, size = len(wanted), sum(entries[index].size for index in wanted)
        self.tell("sending", f"receiving from {self._plan.source}", all_files=files, all_bytes=size)
        feed = Feed(channel, wanted)
        try:
            # Even when nothing has to come: what is reused may turn out to be another file by now.
            missing = await self._pass(channel, feed) if wanted else await self._empty_pass(channel)
            passes = 1
            while missing:
                self._see_files(entries, missing)
                feed.wanted = frozenset(missing)
                if feed.is_left_behind:
                    if SLOWER not in self.run.notes:
                        self.note(SLOWER)
                elif passes >= MOST_PASSES:
                    path = entries[missing[0]].path
                    raise CopyError(
                        f"{self.side}: {len(missing)} files do not arrive as they were sent, such as {path}"
                    )
                else:
                    passes += 1
                missing = await self._pass(channel, feed)
        finally:
            self.end()
            self._pump.leave(feed)
        sent = channel.sent - before
        self.tell("sending", f"receiving from {self._plan.source}", files=files, bytes=size, bytes_sent=sent)

    def _see_files(self, entries: Sequence[Entry], indexes: Sequence[int]) -> None:
        """Raises AgentFailed when one is no file of the plan: asked of the source, it would end the copy for all."""
        for index in indexes:
            if index >= len(entries) or entries[index].kind != "file":
                raise AgentFailed(f"{self.side.host}: the copy's agent wants what is no file of the plan")

    async def _pass(self, channel: Channel, feed: Feed) -> tuple[int, ...]:
        """One reading of the source; what is still missing. Raises what ended the source."""
        self._pump.join(feed)
        self.end()
        await feed.begun.wait()
        self._raise_source()
        number = channel.ask("fill", order=list(feed.order))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(feed.carry(self._pump.taken))
                missing = await remote.fill(
                    channel, number, lambda files, size: self._progress(channel, files, size)
                )
        except BaseExceptionGroup as group:
            raise _first_of(group) from None
        if missing.missing:
            self._raise_source()
        return missing.missing

    async def _empty_pass(self, channel: Channel) -> tuple[int, ...]:
        number = channel.ask("fill", order=[])
        channel.write(END)
        return (await remote.fill(channel, number, lambda files, size: None)).missing

    def _progress(self, channel: Channel, files: int, size: int) -> None:
        run = self.run
        rate = self._rate.note(time.monotonic(), size)
        self.tell(
            "sending",
            run.detail,
            files=min(files, run.all_files),
            bytes=min(size, run.all_bytes),
            rate=rate,
            left=Rate.left(rate, size, run.all_bytes),
        )

    def _raise_source(self) -> None:
        failure = self._pump.failure
        if isinstance(failure, LinkError):
            raise type(failure)(f"the source: {failure}")
        if failure is not None:
            raise Stopped(f"nothing was changed: the source: {failure}")

    async def complete(self, channel: Channel) -> str:
        self.tell("swapping", "exchanging the package")
        self.take_swap(await remote.swap(channel))
        self.tell("verifying", "verifying the package in its place")
        verdict = await self.prove(channel)
        self.run = msgspec.structs.replace(self.run, verdict=verdict)
        keep, note = self._judge(verdict)
        if not keep:
            self.tell("undoing", f"undoing it: {note}")
        settled = await remote.settle(channel, keep=keep, note=note)
        if settled.undone or not keep:
            raise Stopped(settled.detail or note, undone=True)
        version = self._plan.look.version if self._plan.look is not None else ""
        return f"{version or 'the package'} from {self._plan.source}{f'; {note}' if note else ''}"

    def _judge(self, verdict: Verdict) -> tuple[bool, str]:
        """Whether the new package stays, and what has to be said of it."""
        if verdict.is_ready:
            return True, ""
        if of_package(verdict).is_ready:
            service = next(
                check for check in verdict.checks if check.kind == "service" and check.state == "fail"
            )
            return True, f"{service.name}: {service.detail}"
        why = (
            "; ".join(f"{check.name}: {check.detail}" for check in verdict.reasons[:2])
            or "checks are missing"
        )
        if words := self.unverified(verdict):
            # Nothing was seen to be wrong, and the host has checked every file and the import by itself.
            return True, words
        if self._is_unproved:
            return True, f"not ready, as its source: {why}"
        return False, f"not ready: {why}"


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended a group of two tasks: what the host said before what the link said."""
    leaves: list[BaseException] = []
    queue: list[BaseException] = [group]
    while queue:
        error = queue.pop(0)
        if isinstance(error, BaseExceptionGroup):
            queue.extend(error.exceptions)
        else:
            leaves.append(error)
    for kind in (CopyError, LinkError):
        for leaf in leaves:
            if isinstance(leaf, kind):
                return leaf
    return leaves[0]
