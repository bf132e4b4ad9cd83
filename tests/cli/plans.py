"""Plans, looks and runs as the operations give them."""

from __future__ import annotations

import msgspec

from dflash_console.copies import (
    Backup,
    Comparison,
    CopyPlan,
    Difference,
    Entry,
    Look,
    Need,
    Provenance,
    Side,
    TargetPlan,
    TargetRun,
)
from dflash_console.operations.comparing import folders_of
from dflash_console.verdict import NEEDED, Check, Verdict

__all__ = [
    "SITE",
    "SOURCE",
    "TARGET",
    "backup",
    "difference",
    "differs",
    "entry",
    "look",
    "plan",
    "run",
    "target",
    "verdict",
]

SITE = "/root/venv/lib/python3.11/site-packages"
SOURCE = Side("ct129", "/root/ml-env")
TARGET = Side("ct200", "/root/venv_sglang")
RUNNING = Need("running", "process 812 (python -m sglang.launch_server) runs from there")
PRODUCTION = Need("production", "ct200 is a production host: type its name")


def entry(path: str) -> Entry:
    return Entry(path, "file", 100, 0o644, "0" * 64)


def difference(added: int = 2, changed: int = 1, removed: int = 1) -> Comparison:
    def entries(word: str, count: int) -> tuple[Entry, ...]:
        return tuple(entry(f"sglang/srt/{word}/{number:03}.py") for number in range(count))

    return Comparison(entries("added", added), entries("changed", changed), entries("removed", removed), 40)


def differs(added: int = 2, changed: int = 1, removed: int = 1) -> Difference:
    """As a plan has it."""
    return Difference(added, changed, removed, 40, folders_of(difference(added, changed, removed)))


def look(version: str = "0.5.9", **more: object) -> Look:
    whole = Look("/root/venv", SITE, "whole", version=version, tree=f"tree of {version}", files=44, size=4400)
    return msgspec.structs.replace(whole, **more)


def backup(number: int = 1, **more: object) -> Backup:
    one = Backup(f"b{number}", 1e9 + number, "0.5.8", 40, 4000, "copy")
    return msgspec.structs.replace(one, **more)


def target(side: Side = TARGET, **more: object) -> TargetPlan:
    checks = (
        Check("space", "pass", "9G free"),
        Check("pins", "warn", "2 not met", ("torch==2.9", "numpy<2")),
    )
    one = TargetPlan(side, look(), differs(), 300, checks, (), ("sglang-0.5.13.dist-info comes",))
    return msgspec.structs.replace(one, **more)


def plan(*targets: TargetPlan, **more: object) -> CopyPlan:
    one = CopyPlan(SOURCE, targets or (target(),), look("0.5.13"), (), verdict(SOURCE), at=1e9)
    return msgspec.structs.replace(one, **more)


def verdict(side: Side = TARGET, *checks: Check) -> Verdict:
    return Verdict(side.host, side.venv, (*(Check(name, "pass") for name in NEEDED), *checks))


def run(side: Side = TARGET, state: str = "done", **more: object) -> TargetRun:
    one = TargetRun(side, began=1e9, seconds=1.25, added=2, changed=1, removed=1, bytes_sent=250)
    done = msgspec.structs.replace(one, backup="b1", swap="exchange", verdict=verdict(side))
    return msgspec.structs.replace(done, state=state, **more)


def provenance() -> Provenance:
    return Provenance("kpro6", "/root/x", "0.5.8", 1e9, "kim@laptop", "tree", 40)
