"""What the screens need of the operations on copies, and how it is had from a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dflash_console.config import Config
from dflash_console.copies import Comparison, Consent, CopyPlan, Look, Side, TargetPlan, TargetRun
from dflash_console.fleet import HostView
from dflash_console.operations import gate, planning, sides
from dflash_console.operations.reaching import Reaching

__all__ = ["CopySource", "Desk", "FleetDesk"]


class CopySource(Protocol):
    """`operations.copies.Copies`: nothing of it waits for a host."""

    @property
    def plan_now(self) -> CopyPlan | None: ...
    @property
    def steps(self) -> str: ...
    @property
    def is_planning(self) -> bool: ...
    @property
    def is_running(self) -> bool: ...
    @property
    def runs(self) -> tuple[TargetRun, ...]: ...
    def plan(self, source: Side, targets: Sequence[Side]) -> str: ...
    def start(self, consent: Consent) -> str: ...
    def roll_back(self, side: Side, backup: str, consent: Consent, look: Look | None) -> str:
        """`look` is what the operator was shown."""
        ...

    def cancel(self) -> None: ...
    def take_notice(self) -> str: ...


class Desk(Protocol):
    """All that is asked of the operations. What is awaited is awaited in workers, never by a key."""

    @property
    def copies(self) -> CopySource: ...
    @property
    def package(self) -> str:
        """Such as `sglang`."""
        ...

    def side_of(self, view: HostView, venv: str | None) -> Side | str:
        """The end of a copy on a host, or why it can't be told."""
        ...

    def refusal(self, plan: TargetPlan, consent: Consent) -> str:
        """Why this may not be done, as `operations.gate.refusal`; it does not ask for read-only mode."""
        ...

    async def plan_roll_back(self, side: Side) -> TargetPlan: ...
    async def compare(
        self, left: Side, right: Side
    ) -> tuple[Look | None, Look | None, Comparison | None, str]: ...
    async def read_text(self, side: Side, path: str) -> str:
        """Raises a ConsoleError."""
        ...


class FleetDesk:
    """The real one."""

    def __init__(self, fleet: Reaching, config: Config, copies: CopySource) -> None:
        self._fleet = fleet
        self._config = config
        self.copies = copies
        self.package = config.package.name

    def side_of(self, view: HostView, venv: str | None) -> Side | str:
        """As `operations.sides.side_of`."""
        return sides.side_of(view, self._config, venv)

    def refusal(self, plan: TargetPlan, consent: Consent) -> str:
        """As `operations.gate.refusal`; the keys look after read-only mode."""
        return gate.refusal(plan, consent, read_only=False)

    async def plan_roll_back(self, side: Side) -> TargetPlan:
        """As `operations.planning.plan_roll_back`."""
        return await planning.plan_roll_back(self._fleet, self._config, side)

    async def compare(
        self, left: Side, right: Side
    ) -> tuple[Look | None, Look | None, Comparison | None, str]:
        """As `operations.planning.compare`."""
        return await planning.compare(self._fleet, self._config, left, right)

    async def read_text(self, side: Side, path: str) -> str:
        """As `operations.planning.read_text`."""
        return await planning.read_text(self._fleet, self._config, side, path)
