"""Plans, runs and comparisons as real hosts give them, and a desk that a test fills."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from dflash_console.copies import (
    Backup,
    Comparison,
    Consent,
    CopyPlan,
    Difference,
    Entry,
    Look,
    Need,
    NeedCode,
    Provenance,
    Side,
    TargetPlan,
    TargetRun,
)
from dflash_console.errors import ConsoleError
from dflash_console.fleet import HostView
from dflash_console.operations.comparing import folders_of
from dflash_console.verdict import Check
from tests.ui import verdicts
from tests.ui.builders import MIB, WALL

SOURCE = Side("ct129", "/root/ml-env")
TARGET = Side("ct200", "/root/venv_sglang")
OTHER = Side("ct202", "/opt/env")


def entry(path: str, size: int = 4_000) -> Entry:
    """A file."""
    return Entry(path, "file", size, 0o644, "ab" * 32)


def difference(added: int = 12, changed: int = 3, removed: int = 5, same: int = 6_376) -> Comparison:
    """So many files in a few folders."""
    folders = (
        "sglang/srt/speculative",
        "sglang/srt/layers/attention",
        "sglang/srt/models",
        "sglang/srt",
        "sglang/lang/backend",
        "sglang/test",
        "sglang/srt/managers",
    )

    def files(count: int, word: str) -> tuple[Entry, ...]:
        return tuple(
            sorted(
                (entry(f"{folders[at % len(folders)]}/{word}_{at:02d}.py") for at in range(count)),
                key=lambda item: item.path,
            )
        )

    return Comparison(files(added, "dflash"), files(changed, "server"), files(removed, "old"), same)


def differs(found: Comparison) -> Difference:
    """As a plan has it."""
    sums = (len(found.added), len(found.changed), len(found.removed))
    return Difference(*sums, found.same, folders_of(found))


def provenance(hours: float = 3.1) -> Provenance:
    """From ct129."""
    return Provenance("ct129", "/root/ml-env", "0.5.11", WALL - hours * 3600, "kim@laptop", "ab" * 32, 6_390)


def backup(number: int, version: str = "0.5.9", *, in_use: str = "") -> Backup:
    """The older the higher its number."""
    at = WALL - 3_600 * (number * 7 + 2)
    return Backup(
        f"20260802T0{number}1244Z-{number:04x}",
        at,
        version,
        1_940 if version else 0,
        98 * MIB if version else 0,
        "rollback" if number % 3 == 2 else "copy",
        provenance=provenance(40) if number == 0 else None,
        in_use=in_use,
    )


def look(side: Side = TARGET, version: str = "0.5.9", backups: int = 3) -> Look:
    """What is in an environment."""
    return Look(
        venv=side.venv,
        site=f"{side.venv}/lib/python3.12/site-packages",
        state="whole" if version else "absent",
        version=version,
        dist_infos=(f"sglang-{version}.dist-info",) if version else (),
        dist_version=version,
        tree="cd" * 32,
        stamp="s",
        files=6_391 if version else 0,
        size=121 * MIB if version else 0,
        python="3.12.3",
        soabi="cpython-312-x86_64-linux-gnu",
        glibc="2.36",
        free=400_000 * MIB,
        filesystem="ext4",
        provenance=provenance() if side != SOURCE and version else None,
        backups=tuple(backup(number) for number in range(backups)),
    )


PREFLIGHT = (
    Check("source", "pass", "ready, verified 3 min ago; no file changed while it was read"),
    Check("place", "pass", "/root/venv_sglang/lib/python3.12/site-packages/sglang, an ordinary folder"),
    Check("versions", "pass", "python 3.12 on both sides"),
    Check("compiled", "pass", "2 compiled files, both for cpython-312-x86_64-linux-gnu"),
    Check(
        "pins",
        "warn",
        "2 of 113 pins are not met: torch 2.9.1+cu128 (wants 2.11.0), xgrammar 0.1.25 (wants 0.1.27)",
        ("torch==2.11.0   installed 2.9.1+cu128", "xgrammar==0.1.27   installed 0.1.25"),
    ),
    Check("editable", "pass", "no editable install"),
    Check("mount", "pass", "nothing is mounted there"),
    Check("filesystem", "pass", "ext4, the stage is on the same"),
    Check("links", "pass", "1,942 files have other names; none is written through"),
    Check("space", "pass", "121M needed, 391G free"),
    Check("inodes", "pass", "6,400 needed, 24,102,114 free"),
    Check("writable", "pass", "as root"),
    Check("importers", "pass", "no process runs from it"),
    Check("lock", "pass", "free"),
    Check("interrupted", "pass", "no copy was interrupted"),
    Check("names", "pass", "all names are ordinary"),
)
RUNNING = Need("running", "sglang-dflash.service (process 9981) runs from this environment")
PRODUCTION = Need("production", "ct200 is in production")
BESIDE = (
    "sglang-0.5.11.dist-info comes with it, so that pip tells the truth",
    "sglang-0.5.9.dist-info goes into the backup with the old package; dependencies are left as they are",
)


def target(
    side: Side = TARGET,
    *,
    needs: Sequence[Need] = (PRODUCTION,),
    checks: Sequence[Check] = PREFLIGHT,
    version: str = "0.5.9",
    problem: str = "",
) -> TargetPlan:
    """A target that may be copied to, or not."""
    if problem:
        return TargetPlan(side, problem=problem, is_unreachable=True)
    files = differs(difference() if version else difference(6_391, 0, 0, 0))
    return TargetPlan(
        side,
        look(side, version),
        files,
        4_300_000 if version else 121 * MIB,
        tuple(checks),
        tuple(needs),
        BESIDE[: 2 if version else 1],
    )


def plan(*targets: TargetPlan) -> CopyPlan:
    """From ct129."""
    return CopyPlan(
        SOURCE,
        targets or (target(),),
        look(SOURCE, "0.5.11", 0),
        (),
        verdicts.ready(),
        at=WALL - 4,
    )


def failing(side: Side = OTHER) -> TargetPlan:
    """No room, another Python, an editable install."""
    bad = {
        "space": Check("space", "fail", "121M needed, 14M free on /: free space, or use another environment"),
        "versions": Check("versions", "fail", "python 3.12 there, 3.10 here: compiled files would not load"),
        "editable": Check("editable", "warn", "installed from /root/src/sglang: the link is replaced"),
    }
    checks = [bad.get(check.name, check) for check in PREFLIGHT]
    return target(side, checks=checks, needs=(RUNNING,))


def sending(side: Side = TARGET, part: float = 0.62) -> TargetRun:
    """On its way."""
    return TargetRun(
        side,
        "sending",
        "",
        round(6_396 * part),
        6_396,
        round(121 * MIB * part),
        121 * MIB,
        43_000_000.0,
        1.2,
        began=WALL - 3,
    )


def done(side: Side = TARGET) -> TargetRun:
    """In its place."""
    return TargetRun(
        side,
        "done",
        "",
        15,
        15,
        4_300_000,
        4_300_000,
        bytes_sent=1_400_000,
        added=12,
        changed=3,
        removed=5,
        backup="20260802T031240Z-7f3a",
        swap="exchange",
        checks=(Check("hashes", "pass"), Check("import", "pass"), Check("swap", "pass")),
        verdict=verdicts.ready(side.host, side.venv, age=1),
        began=WALL - 12,
        seconds=8.2,
        notes=("an interrupted copy of 02:14 was undone first: the old package was in place",),
    )


def undone(side: Side = OTHER) -> TargetRun:
    """It did not verify."""
    return TargetRun(
        side,
        "undone",
        "not ready in its place: find_spec: sglang itself does not import",
        added=12,
        changed=3,
        removed=5,
        checks=(Check("import", "fail", "ImportError: libcudart.so.13", ("Traceback", "ImportError")),),
        verdict=verdicts.not_ready(side.host, side.venv, age=1),
        began=WALL - 12,
        seconds=9.0,
    )


def failed(side: Side = TARGET) -> TargetRun:
    """The link was cut after the swap began."""
    return TargetRun(
        side,
        "failed",
        "the connection was lost while it was swapped; the next copy or rollback finds out and settles it",
        backup="20260802T031240Z-7f3a",
        began=WALL - 40,
        seconds=31.0,
    )


class StubCopies:
    """Stands for `Copies`: shows what a test gives it, and notes what it is asked."""

    def __init__(self) -> None:
        self.plan_now: CopyPlan | None = None
        self.steps = ""
        self.is_planning = False
        self.runs: tuple[TargetRun, ...] = ()
        self.refusal = ""
        self.planned: list[tuple[Side, tuple[Side, ...]]] = []
        self.started: list[Consent] = []
        self.rolled_back: list[tuple[Side, str, Consent, Look | None]] = []
        self.cancelled = 0
        self.notices: list[str] = []
        self.next_plan: CopyPlan | None = None
        """Is there as soon as one is asked for."""

    @property
    def is_running(self) -> bool:
        """As the runs are."""
        return any(not run.is_over for run in self.runs)

    def plan(self, source: Side, targets: Sequence[Side]) -> str:
        """Noted."""
        if self.refusal:
            return self.refusal
        self.planned.append((source, tuple(targets)))
        self.plan_now, self.is_planning = self.next_plan, self.next_plan is None
        self.steps = "" if self.next_plan else "listing 6,396 files on ct129"
        return ""

    def start(self, consent: Consent) -> str:
        """Noted; every target begins to be sent to."""
        if self.refusal:
            return self.refusal
        self.started.append(consent)
        assert self.plan_now is not None
        self.runs = tuple(sending(item.side, 0.1) for item in self.plan_now.targets)
        return ""

    def roll_back(self, side: Side, backup: str, consent: Consent, look: Look | None) -> str:
        """Noted; it begins."""
        if self.refusal:
            return self.refusal
        self.rolled_back.append((side, backup, consent, look))
        self.runs = (TargetRun(side, "claiming", began=WALL),)
        return ""

    def cancel(self) -> None:
        """Noted."""
        self.cancelled += 1
        self.is_planning = False

    def take_notice(self) -> str:
        """The next one."""
        return self.notices.pop(0) if self.notices else ""


class StubDesk:
    """Stands for the operations. Answers to what is awaited come when the test lets them."""

    package = "sglang"

    def __init__(self, copies: StubCopies | None = None) -> None:
        self.copies = copies or StubCopies()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.rollback_plan = target()
        self.comparison: tuple[Look | None, Look | None, Comparison | None, str] = (
            look(SOURCE, "0.5.11", 0),
            look(),
            difference(),
            "",
        )
        self.texts: dict[tuple[str, str], str] = {}
        self.asked: list[tuple[object, ...]] = []

    def side_of(self, view: HostView, venv: str | None) -> Side | str:
        """The first environment that has a package."""
        name = view.config.name
        if venv is not None:
            return Side(name, venv)
        if view.snapshot is None or not view.snapshot.venvs:
            return f"{name} has no environment that is known; name it in the config: package_venv"
        return Side(name, view.snapshot.venvs[0].path)

    def refusal(self, plan: TargetPlan, consent: Consent) -> str:
        """As the gate does."""
        if plan.problem:
            return plan.problem
        if plan.failed:
            return f"{plan.failed[0].name}: {plan.failed[0].detail}"
        codes: set[NeedCode] = {need.code for need in plan.needs} - {"production"}
        return "" if consent.yes and codes <= consent.allowed else "not confirmed"

    async def plan_roll_back(self, side: Side) -> TargetPlan:
        """What the test set."""
        self.asked.append(("backups", side))
        await self.may_answer.wait()
        return msgspec.structs.replace(self.rollback_plan, side=side)

    async def compare(
        self, left: Side, right: Side
    ) -> tuple[Look | None, Look | None, Comparison | None, str]:
        """What the test set."""
        self.asked.append(("compare", left, right))
        await self.may_answer.wait()
        return self.comparison

    async def read_text(self, side: Side, path: str) -> str:
        """What the test set; else it is no text."""
        self.asked.append(("read", side, path))
        await self.may_answer.wait()
        text = self.texts.get((side.host, path))
        if text is None:
            raise ConsoleError(f"{side.host}: {path} is no text")
        return text
