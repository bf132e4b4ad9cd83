"""Environments, packages, units and paths of a host, the host itself, and the whole picture of it."""

from __future__ import annotations

from abc import ABCMeta
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from dflash_console.bounds import MOST_NAMES, Bytes, Count, Load, Pid, Port, Seconds, Time
from dflash_console.model.cells import Missing, Text
from dflash_console.model.gpus import GpuReport

__all__ = [
    "Copied",
    "Filesystem",
    "HostInfo",
    "Origin",
    "Package",
    "PathInfo",
    "Snapshot",
    "Unit",
    "Venv",
    "decode_cell",
]

Origin: TypeAlias = str | Missing | None


class Package(msgspec.Struct, frozen=True, gc=False):
    """A package as the venv's interpreter would find it, learnt without importing anything."""

    name: str
    origin: Text
    """The `__init__.py` that an import would run; Missing for a namespace package, which has none."""
    kind: Literal["regular", "namespace", "editable"]
    """`namespace`: a folder without `__init__.py`, as leftovers and failed uninstalls make."""
    version: Text
    """Of the tree itself (its `_version.py` or `version.py`)."""
    dist_version: Text
    """Of the dist-info beside it; another than `version` says that the tree was copied."""
    nested: bool
    """The tree holds a second copy of itself (`sglang/sglang/__init__.py`): what `scp -r` onto a folder does."""
    modules: Annotated[dict[str, Origin], Meta(max_length=MOST_NAMES)]
    """Each configured module, by the name of the alternative that is there: its origin, or None when none is.
    Missing when the file is there and can't serve (zero bytes, unreadable)."""
    editable_from: str | None = None
    """Where an editable install points, or the URL of a direct install."""
    outside: bool = False
    """The origin lies outside the venv's own site-packages."""


class Copied(msgspec.Struct, frozen=True, gc=False):
    """Where a venv's package was copied from. Texts are empty where the copy's own record does not tell."""

    from_host: str
    from_venv: str
    from_version: str
    at: Time | Missing
    """When it was laid, by the host's clock."""
    by: str
    """Such as `kim@laptop`."""
    changed: Count | Missing = Missing("not_found")
    """Files that were changed, removed or added since, by size, time and inode; told anew about once a minute."""
    verified: bool = True
    """Whether the console that copied it saw it verified in its place; False when that console was gone by then."""


class Venv(msgspec.Struct, frozen=True, gc=False):
    """A virtual environment on a host."""

    path: str
    source: Literal["config", "found", "unit"]
    """Why it is listed: named in the config, found in a usual place, or the interpreter of a watched unit."""
    python: Text
    """`3.12.3`; Missing(not_found) when the venv is not there."""
    packages: Annotated[dict[str, str], Meta(max_length=MOST_NAMES)]
    """Distribution name to version, from metadata; only those of `WatchSpec.distributions` that are there."""
    package: PackageCell
    torch_build: Text = Missing("not_found")
    """`2.11.0+cu130`, read as text from torch/version.py."""
    copied: Copied | None = None
    """None when the package was not copied here by this console."""
    interrupted: str = ""
    """Which copy into it is not settled, by whom and since when; empty when none is, and while one runs."""


# ---- units, paths, the host itself


class Unit(msgspec.Struct, frozen=True, gc=False):
    """A systemd unit, by `systemctl show`. `name` is as in the config (`user:NAME` for the login user's manager)."""

    name: str
    load: Text
    """`loaded`, `not-found`, `masked`, `bad-setting`, ...; Missing when systemd itself does not answer."""
    active: Text
    sub: Text
    result: Text
    restarts: Count | Missing
    """Automatic restarts (NRestarts) since the unit was last started by hand."""
    main_pid: Pid | None
    since: Time | None
    """The host's clock at the last change of state."""
    description: str = ""
    exit_status: str = ""
    """How the last main process ended, such as `exited 1` or `killed 9`; empty when it never ran or still runs."""
    enabled: str = ""
    """UnitFileState: enabled, disabled, static, ..."""
    needs_reload: bool = False
    """The unit file was edited since systemd read it (NeedDaemonReload)."""
    is_looping: bool = False
    """systemd restarts it again and again: waiting for the next try, or up for less than a minute after one."""
    invocation_id: str = ""
    fragment: str = ""
    """The unit file's path."""
    command: Text = Missing("not_found")
    """What the main process runs, else ExecStart; secrets redacted, at most 400 characters."""
    interpreter: Text = Missing("not_found")
    """The Python that the unit really starts; Missing with the reason when it is hidden behind a shell."""
    venv: str | None = None
    real_venv: str = ""
    """`venv` with all links followed on the host, for two paths may lead to one folder; empty without one."""
    port: Port | Missing = Missing("not_found")
    listening: bool | None = None
    """Whether a process of the unit listens on `port`; None when that can't be told."""
    memory: Bytes | Missing = Missing("not_found")
    tasks: Count | Missing = Missing("not_found")
    problem: str = ""
    """Why the unit can't be read or loaded, in systemd's words."""


class Filesystem(msgspec.Struct, frozen=True, gc=False):
    """Where a path lives."""

    mount: str
    kind: str
    total: Bytes
    free: Bytes
    """For an ordinary user, without the blocks reserved for root."""


class PathInfo(msgspec.Struct, frozen=True, gc=False):
    """A configured path: there or not, what it is, and the room around it."""

    path: str
    kind: Literal["folder", "file", "other"] | Missing
    size: Bytes | Missing
    """Of a file; of a folder, the files directly in it. In bytes."""
    entries: Count | Missing = Missing("unsupported")
    """Entries directly in a folder."""
    filesystem: FilesystemCell = Missing("not_found")
    """Of the nearest parent that is there."""


class HostInfo(msgspec.Struct, frozen=True, gc=False):
    """The machine itself."""

    hostname: str
    boot_id: str
    uptime: Seconds
    load: tuple[Load, Load, Load]
    cpus: Count
    memory_total: Bytes
    memory_available: Bytes
    root: FilesystemCell
    shm: FilesystemCell
    """/dev/shm."""
    system: str = ""
    """Such as `Debian GNU/Linux 12 (bookworm)`."""
    kernel: str = ""
    python: str = ""
    """Of the agent's interpreter, which is not the venvs'."""
    user: str = ""
    home: str = ""
    """The login user's: what `~/` in the config means here."""


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """All that is known of a host at one time; each section as it was last sent."""

    at: float
    """The host's clock."""
    host: HostInfo
    gpu: GpuReport
    venvs: list[Venv]
    units: list[Unit]
    paths: list[PathInfo]


# ---- a struct or the reason why there is none

if TYPE_CHECKING:
    PackageCell: TypeAlias = Package | Missing
    FilesystemCell: TypeAlias = Filesystem | Missing
else:
    # msgspec tells two structs in a union apart by a tag only, and the wire has none here. So to msgspec
    # these are types of their own, which it hands to `decode_cell`; the values stay what they are.
    PackageCell = ABCMeta("PackageCell", (), {})
    FilesystemCell = ABCMeta("FilesystemCell", (), {})
    for _cell, _kind in ((PackageCell, Package), (FilesystemCell, Filesystem)):
        _cell.register(_kind)
        _cell.register(Missing)


def decode_cell(kind: type, value: object) -> object:
    """The `dec_hook` for msgspec: every decoder of a type that holds a Package or a Filesystem needs it."""
    struct = {"PackageCell": Package, "FilesystemCell": Filesystem}.get(kind.__name__)
    if struct is None:
        raise NotImplementedError(kind)
    try:
        return msgspec.convert(value, Missing if isinstance(value, dict) and "missing" in value else struct)
    except msgspec.ValidationError as error:
        # Only to another error does msgspec add where in the message the cell stands.
        raise ValueError(str(error)) from None
