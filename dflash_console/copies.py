"""What a copy of the package is spoken of with: listings, backups, plans, how far a copy has come, and its result.

The answers of a copy's agent decode straight into the first half. Points in time are seconds since 1970 (UTC): of
the host's clock in what an agent says, else of the console's. Sizes are bytes.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from dflash_console.bounds import Bytes, Count, Pid, Seconds, Time
from dflash_console.verdict import Check, Verdict

__all__ = [
    "LISTED_AT_ONCE",
    "MOST_FILES",
    "Backup",
    "Claim",
    "Comparison",
    "Consent",
    "CopyPlan",
    "Difference",
    "Entry",
    "FolderCount",
    "Holder",
    "Look",
    "Need",
    "NeedCode",
    "Outcome",
    "Provenance",
    "RunState",
    "Side",
    "Swapped",
    "TargetPlan",
    "TargetRun",
    "Unsettled",
]

MOST_FILES = 100_000
"""Of a package; sglang 0.5.23 has 6,396."""
LISTED_AT_ONCE = 4_000
"""Entries in one frame."""

Text: TypeAlias = Annotated[str, Meta(max_length=4096)]
Texts: TypeAlias = Annotated[tuple[Text, ...], Meta(max_length=512)]


# ---- what an agent says


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A file of the package or of its dist-info."""

    path: Text
    """Relative to the folder that the package is in: `sglang/srt/x.py`, `sglang-0.5.9.dist-info/METADATA`."""
    kind: Literal["file", "link"]
    size: Bytes
    mode: Annotated[int, Meta(ge=0, le=0o7777)]
    content: Text
    """sha256 of a file in hexadecimal, or what a link leads to."""


class Holder(msgspec.Struct, frozen=True, gc=False):
    """Who holds the lock of an environment."""

    by: Text
    """Such as `kim@laptop`."""
    since: Time
    what: Text = ""
    """Such as `copy from ct129`."""
    pid: Pid = 0
    """On the host."""


class Unsettled(msgspec.Struct, frozen=True, gc=False):
    """A copy that was not brought to its end, as its journal tells."""

    what: Text
    """Such as `copy from ct129 by kim@laptop`."""
    step: Text
    """The last one that was begun."""
    since: Time
    outlook: Text
    """What the next copy or rollback does about it: `will be undone: the old package is in place`."""


class Provenance(msgspec.Struct, frozen=True, gc=False):
    """Where the package in an environment was copied from."""

    from_host: Text
    from_venv: Text
    from_version: Text
    at: Time
    by: Text
    tree: Text
    """As `Look.tree`, when it was laid."""
    files: Count
    verified: bool = True
    """False when nobody looked at it in its place: the console was gone before, or the next copy finished it."""


class Backup(msgspec.Struct, frozen=True, gc=False):
    """A package that was replaced and kept."""

    id: Text
    at: Time
    """When it was replaced."""
    version: Text
    """Empty for none: there was no package."""
    files: Count
    size: Bytes
    reason: Literal["copy", "rollback"]
    """What replaced it."""
    tree: Text = ""
    provenance: Provenance | None = None
    """Where it had come from, if a copy had laid it."""
    in_use: Text = ""
    """Who still uses it, such as `process 4711 (python)`; such a one is not pruned."""


class Look(msgspec.Struct, frozen=True, gc=False):
    """All that a plan needs to know of a package and its place; the entries come apart."""

    venv: Text
    """Absolute."""
    site: Text
    """The folder that the package is in, or would be laid in."""
    state: Literal["whole", "absent", "editable", "namespace", "module", "outside", "broken"]
    """`whole`: an ordinary package folder. `module`: a single file. `outside`: it comes from another place than the
    environment's own site-packages. `broken`: no environment, or one that can't be read; `problem` says why."""
    problem: Text = ""
    """What to say about any state but `whole` and `absent`."""
    version: Text = ""
    dist_infos: Texts = ()
    """Names of the folders beside the package that pip knows it by."""
    dist_version: Text = ""
    real: Text = ""
    """`venv` with all links followed on the host, for two paths may lead to one folder."""
    tree: Text = ""
    """One hash over all entries: equal trees have equal ones, on whatever host."""
    stamp: Text = ""
    """Another one when a file changed here (inode, size, times)."""
    files: Count = 0
    size: Bytes = 0
    strange: Texts = ()
    """What can't be copied, with the reason: special files, names with control characters, folders that may not be
    read."""
    followed: Texts = ()
    """Links that lead out of the package; their content would be copied."""
    restless: Texts = ()
    """Paths that changed, came or went while the files were read; they were read again."""
    python: Text = ""
    """`3.11.7`."""
    soabi: Text = ""
    """`cpython-311-x86_64-linux-gnu`, what a compiled file's name may end with there."""
    glibc: Text = ""
    """`2.36`; empty where it can't be told (musl)."""
    free: Bytes = 0
    """For the login user, where the stage would be."""
    free_inodes: Count | None = None
    """None where the filesystem has no such limit."""
    filesystem: Text = ""
    """The type, such as `ext4`, `overlay`, `nfs4`."""
    layer: Literal["own", "lower", "unknown"] = "own"
    """On an overlay, whether what is there can be renamed; what a `lower` layer holds can't. `own` elsewhere."""
    mount: Text = ""
    """What is mounted at the package's place or below; empty when nothing is."""
    is_same_filesystem: bool = True
    """Whether the stage is on the package's filesystem."""
    is_writable: bool = True
    denied: Text = ""
    """Why it can't be written to."""
    importers: Texts = ()
    """Processes that run from this package: `process 812 (python -m sglang.launch_server), sglang.service`."""
    hard_linked: Count = 0
    """Files with other names elsewhere."""
    lock: Holder | None = None
    unsettled: Unsettled | None = None
    provenance: Provenance | None = None
    backups: Annotated[tuple[Backup, ...], Meta(max_length=256)] = ()
    """Newest first."""
    seconds: Seconds = 0.0
    """That the look took."""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """The answer to `claim`: whether the lock is ours now."""

    locked: Holder | None = None
    """Who has it instead."""
    changed: Text = ""
    """What is not as it was when the plan was made."""
    recovered: Text = ""
    """What was done about an interrupted copy that was found."""
    importers: Texts = ()
    """As Look.importers, now."""


class Swapped(msgspec.Struct, frozen=True, gc=False):
    """The answer to `swap` and `restore`."""

    swap: Literal["exchange", "two-step", "copied", "placed", ""]
    """`exchange`: in one step. `two-step`: two renames. `copied`: the folder can't be renamed, so its files were
    copied aside, and it was removed for the new one. `placed`: nothing was there. Empty: nothing was done."""
    backup: Text = ""
    checks: Annotated[tuple[Check, ...], Meta(max_length=64)] = ()
    is_undone: bool = False
    detail: Text = ""


# ---- what the console makes of it


class Side(NamedTuple):
    """One end of a copy."""

    host: str
    venv: str

    def __str__(self) -> str:
        return f"{self.host}:{self.venv}"


class Comparison(msgspec.Struct, frozen=True):
    """Which files differ; paths in order. `added`: only in the source."""

    added: tuple[Entry, ...]
    changed: tuple[Entry, ...]
    """As the source has them."""
    removed: tuple[Entry, ...]
    """Only in the target."""
    same: int
    """How many."""


class FolderCount(NamedTuple):
    """How many files differ in a folder."""

    path: str
    added: int
    changed: int
    removed: int


class Difference(msgspec.Struct, frozen=True):
    """How much differs, and where. The files themselves are not in it: there may be 100,000 on each of many targets,
    and `d` shows them."""

    added: int
    """Files that are only in the source."""
    changed: int
    removed: int
    """Only in the target."""
    same: int
    folders: tuple[FolderCount, ...] = ()
    """By the first names of their paths, those with most files first; as many as any would read."""
    more_folders: int = 0
    """That are not among them."""


NeedCode = Literal["onto_source", "running", "unverified", "production", "warned", "layer", "python"]


class Need(msgspec.Struct, frozen=True):
    """A yes of its own that a copy or rollback needs."""

    code: NeedCode
    """`production` is given by the host's typed name, the others by a yes each."""
    text: str
    """What one says yes to."""


class Consent(msgspec.Struct, frozen=True):
    """What an operator has said yes to."""

    yes: bool = False
    allowed: frozenset[NeedCode] = frozenset()
    typed: frozenset[str] = frozenset()
    """Names of production hosts."""


class TargetPlan(msgspec.Struct, frozen=True):
    """What a copy would do to one environment."""

    side: Side
    look: Look | None = None
    """None where it could not be had; `problem` says why."""
    difference: Difference | None = None
    bytes: int = 0
    """To be sent, before compression."""
    checks: tuple[Check, ...] = ()
    """The preflight."""
    needs: tuple[Need, ...] = ()
    beside: tuple[str, ...] = ()
    """What is copied beside the package: its dist-info; and what is taken away with the old one."""
    problem: str = ""
    """Why nothing can be copied there."""
    is_unreachable: bool = False

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that forbid the copy."""
        return tuple(check for check in self.checks if check.state == "fail")


class CopyPlan(msgspec.Struct, frozen=True):
    """What a copy would do; nothing on any host has been changed for it."""

    source: Side
    targets: tuple[TargetPlan, ...]
    look: Look | None = None
    entries: tuple[Entry, ...] = ()
    """Of the source."""
    verdict: Verdict | None = None
    """On the source."""
    is_proving: bool = False
    """Whether that verdict is still to come."""
    problem: str = ""
    """Why nothing can be copied from there."""
    is_unreachable: bool = False
    at: float = 0.0


RunState = Literal[
    "waiting",
    "claiming",
    "sending",
    "checking",
    "swapping",
    "verifying",
    "undoing",
    "done",
    "undone",
    "refused",
    "failed",
    "cancelled",
    "unreachable",
]
"""The first line is under way, the second is the end."""  # fmt: skip

Outcome = Literal["planned", "done", "undone", "refused", "failed", "cancelled", "unreachable"]


class TargetRun(msgspec.Struct, frozen=True):
    """How far a copy or a rollback has come on one host, and how it ended."""

    side: Side
    state: RunState = "waiting"
    detail: str = ""
    """One line: what is done, why it ended."""
    files: int = 0
    """Received of `all_files`."""
    all_files: int = 0
    bytes: int = 0
    """Received of `all_bytes`, before compression."""
    all_bytes: int = 0
    rate: float = 0.0
    """Bytes a second over the last seconds."""
    left: float | None = None
    """Seconds until all is received, as far as can be told."""
    bytes_sent: int = 0
    """Over the link, compressed."""
    added: int = 0
    changed: int = 0
    removed: int = 0
    backup: str = ""
    swap: str = ""
    checks: tuple[Check, ...] = ()
    """Of the stage, the swap and the place itself."""
    verdict: Verdict | None = None
    began: float = 0.0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """What else happened: an interrupted copy that was undone, a slow link that got a pass of its own."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.state in ("done", "undone", "refused", "failed", "cancelled", "unreachable")
