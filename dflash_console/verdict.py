"""What a verification says: checks with their evidence, and whether the package is ready.

The agent's answers decode straight into `PartAnswer`. Points in time are seconds since 1970 (UTC) of the console's
clock, unless the docstring names another.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

__all__ = [
    "DEEP_KINDS",
    "DEEP_PARTS",
    "NEEDED",
    "NEEDED_DEEP",
    "QUICK_PARTS",
    "Check",
    "CheckState",
    "Facts",
    "Part",
    "PartAnswer",
    "Verdict",
    "in_order",
]

CheckState = Literal["pass", "warn", "fail", "unknown"]
"""`unknown`: it could not be told, and the detail says why."""

Part = Literal["files", "find_spec", "service", "pins", "abi", "import", "cuda"]
"""What is asked of the agent at a time; each part answers one or more checks."""

QUICK_PARTS: tuple[Part, ...] = ("files", "find_spec", "service")
DEEP_PARTS: tuple[Part, ...] = ("pins", "abi", "import", "cuda")

NEEDED = ("python", "origin", "modules", "find_spec")
"""The checks without which nothing is ready, whatever the others say."""
NEEDED_DEEP = "import"
"""The kind of check that a deep verdict needs besides: one for each module."""

DEEP_KINDS = (
    "source",
    "requires",
    "minimums",
    "python_abi",
    "torch",
    "symbols",
    "libraries",
    "driver",
    "import",
    "cuda",
)
"""The kinds of checks that only a deep verification makes."""

_ORDER = (
    *NEEDED,
    *("shadow", "nested", "version", "record", "leftovers", "bytecode", "links", "copy", "service"),
    *DEEP_KINDS,
)

Line: TypeAlias = Annotated[str, msgspec.Meta(max_length=4096)]


class Check(msgspec.Struct, frozen=True, gc=False):
    """One thing that was looked at."""

    name: Line
    """The kind, then what it is about where there are several: `origin`, `service sglang.service`."""
    state: CheckState
    detail: Line = ""
    """One line: what, where, the exact error."""
    evidence: Annotated[tuple[Line, ...], msgspec.Meta(max_length=256)] = ()
    """The whole proof, line by line."""

    @property
    def kind(self) -> str:
        """The first word of the name."""
        return self.name.partition(" ")[0]


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What a part learnt beside its checks; a part fills in what it knows."""

    fingerprint: Line = ""
    """Of the package's tree: another one says that a file changed."""
    metadata: Annotated[tuple[Line, ...], msgspec.Meta(max_length=4096)] = ()
    """Lines of the installed distribution's METADATA, for another host's deep verification."""


class PartAnswer(msgspec.Struct, frozen=True, gc=False):
    """The agent's answer to one part."""

    checks: Annotated[tuple[Check, ...], msgspec.Meta(max_length=512)] = ()
    facts: Facts = Facts()


class Verdict(msgspec.Struct, frozen=True):
    """What is known of one environment's package, whole or while it fills in."""

    host: str
    venv: str
    checks: tuple[Check, ...] = ()
    waiting: tuple[str, ...] = ()
    """Parts that have not answered yet."""
    is_deep: bool = False
    at: float = 0.0
    """When the last part answered."""
    stale: str = ""
    """What has changed since; empty while it still holds."""
    fingerprint: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether the package can be expected to start: all that is needed was seen to be right, and nothing that was
        looked at is wrong."""
        if self.waiting or any(check.state == "fail" for check in self.checks):
            return False
        good = {check.name for check in self.checks if check.state in ("pass", "warn")}
        if not good.issuperset(NEEDED):
            return False
        imports = [check for check in self.checks if check.kind == NEEDED_DEEP]
        return not self.is_deep or (bool(imports) and all(check.name in good for check in imports))

    @property
    def reasons(self) -> tuple[Check, ...]:
        """The checks that keep it from being ready, failures first."""
        failed = [check for check in self.checks if check.state == "fail"]
        needed = (*NEEDED, NEEDED_DEEP)
        return (
            *failed,
            *(check for check in self.checks if check.state == "unknown" and check.kind in needed),
        )

    @property
    def warnings(self) -> tuple[Check, ...]:
        """The checks that warn."""
        return tuple(check for check in self.checks if check.state == "warn")


def in_order(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """The checks as they are shown: what is needed first, those of a kind together, unknown kinds last."""
    places = {kind: place for place, kind in enumerate(_ORDER)}
    return tuple(sorted(checks, key=lambda check: places.get(check.kind, len(places))))
