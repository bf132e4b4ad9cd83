"""The vocabulary of the console, and its wire format.

The agent's JSON decodes straight into these frozen structs, and nothing beyond their bounds does. Sizes are
bytes, temperatures Celsius, power watts, shares percent, durations seconds; points in time are seconds since 1970
(UTC) of the clock that the docstring names.
"""

from __future__ import annotations

from abc import ABCMeta
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dflash_console.bounds import (
    MOST_GPUS,
    MOST_ITEMS,
    MOST_NAMES,
    MOST_PROCESSES,
    Bytes,
    Celsius,
    Count,
    Index,
    Load,
    Percent,
    Pid,
    Port,
    Seconds,
    Time,
    Watts,
)

# gc=False throughout: none of these can be part of a cycle, and a fleet holds a hundred thousand of them.

__all__ = [
    "PROTOCOL",
    "SECTIONS",
    "Answer",
    "Filesystem",
    "Finding",
    "FromAgent",
    "Gpu",
    "GpuProcess",
    "GpuReport",
    "Health",
    "Hello",
    "HostInfo",
    "Level",
    "LinkState",
    "LinkStatus",
    "Missing",
    "Note",
    "Package",
    "PathInfo",
    "Reason",
    "Role",
    "Sample",
    "Section",
    "Snapshot",
    "Unit",
    "Venv",
    "WatchSpec",
    "decode_cell",
    "gpu_key",
    "is_missing",
]

PROTOCOL = 1
"""Version of the frames' contents; agent and console always come from the same build, this catches a mix-up."""

Reason = Literal[
    "unsupported", "lost", "reset_required", "permission", "mismatch", "hung", "stale", "not_found", "error"
]
Role = Literal["source", "target", "observe"]
Level = Literal["critical", "warning", "note"]
LinkState = Literal[
    "connecting",
    "up",
    "stale",
    "unreachable",
    "refused",
    "host_key_unknown",
    "host_key_changed",
    "no_python",
    "agent_failed",
]
Section = Literal["host", "gpu", "venvs", "units", "paths"]
"""The sections of a snapshot, by their names in `Sample`."""
SECTIONS: tuple[Section, ...] = get_args(Section)
Health = Literal["ok", "attention", "lost", "reset_required", "hung", "unreadable"]
"""`attention`: usable, but the driver asks for something (recovery action, row remap, uncorrected ECC errors)."""


class Missing(msgspec.Struct, frozen=True, gc=False):
    """Stands where a value could be, and says why there is none."""

    missing: Reason
    detail: str = ""
    """For people; never parsed."""


Text: TypeAlias = str | Missing
Bool: TypeAlias = bool | Missing


def is_missing(value: object) -> bool:
    """Whether a cell holds a reason instead of a value."""
    return isinstance(value, Missing)


# ---- GPUs


class GpuProcess(msgspec.Struct, frozen=True, gc=False):
    """A process that holds memory on a GPU. Its identity is (pid, started, the GPU's UUID)."""

    pid: Pid
    memory: Bytes | Missing
    kind: Literal["compute", "graphics"] = "compute"
    started: Time | Missing = Missing("not_found")
    """The host's clock."""
    user: Text = Missing("not_found")
    command: Text = Missing("not_found")
    """The command line with secrets redacted, at most 400 characters."""
    venv: str | None = None
    """The virtual environment's folder; None when the interpreter is in none."""
    unit: str | None = None
    """The systemd unit by its cgroup, such as `sglang.service`; None outside any service."""


class Gpu(msgspec.Struct, frozen=True, gc=False):
    """One GPU as the driver tells it. A GPU that was seen once keeps its row, whatever befalls it."""

    index: Index
    """NVML's index, which is PCI order; CUDA's order differs unless CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    uuid: Text
    bus: Text
    """As sysfs writes it: `0000:c9:00.0`."""
    name: Text
    utilization: Percent | Missing
    memory_used: Bytes | Missing
    """Without what the driver reserves, where the driver tells the two apart."""
    memory_total: Bytes | Missing
    temperature: Celsius | Missing
    power: Watts | Missing
    power_limit: Watts | Missing
    health: Health
    health_detail: str = ""
    """Why `health` is not ok, worst first, with the driver's own words."""
    processes: Annotated[list[GpuProcess], Meta(max_length=MOST_PROCESSES)] | Missing = Missing("not_found")
    hidden_memory: Bytes = 0
    """Bytes in use that no visible process accounts for while the process list is empty (other PID namespace)."""
    memory_reserved: Bytes | Missing = Missing("unsupported")
    power_limit_default: Watts | Missing = Missing("unsupported")
    slowdowns: Annotated[list[str], Meta(max_length=MOST_NAMES)] | Missing = Missing("unsupported")
    """The active clocks event reasons by name, such as `sw_power_cap` or `hw_thermal_slowdown`; not `gpu_idle`."""
    pcie_width: Count | Missing = Missing("unsupported")
    pcie_width_max: Count | Missing = Missing("unsupported")
    pcie_generation: Count | Missing = Missing("unsupported")
    pcie_generation_max: Count | Missing = Missing("unsupported")
    ecc_corrected: Count | Missing = Missing("unsupported")
    """Volatile count: since the driver was loaded."""
    ecc_uncorrected: Count | Missing = Missing("unsupported")
    remap_pending: Bool = Missing("unsupported")
    remap_failed: Bool = Missing("unsupported")
    recovery_action: Text = Missing("unsupported")
    """NVML field 230 by name: none, reset, reboot, drain_p2p, drain_and_reset, ...; an unknown one is `action N`."""
    persistence: Bool = Missing("unsupported")
    mig: Bool = Missing("unsupported")
    pstate: Count | Missing = Missing("unsupported")
    good_at: Time | None = None
    """The host's clock at the last sample in which the driver answered for this GPU; None if it never did."""


def gpu_key(gpu: Gpu) -> str:
    """What names a GPU over time and across hosts: its UUID, else its bus, else its index."""
    for value in (gpu.uuid, gpu.bus):
        if isinstance(value, str) and value:
            return value
    return f"index {gpu.index}"


class GpuReport(msgspec.Struct, frozen=True, gc=False):
    """All GPUs of a host, and what stands between them and us."""

    gpus: Annotated[list[Gpu], Meta(max_length=MOST_GPUS)]
    source: Literal["nvml", "nvidia-smi", "none"]
    driver: Text
    """The kernel module's version from /proc/driver/nvidia/version, else what NVML says."""
    library: Text = Missing("not_found")
    """NVML's own version; another than `driver` is the driver/library mismatch."""
    cuda: Text = Missing("not_found")
    """The newest CUDA that the driver supports, such as `13.0`."""
    kernel_count: Count | Missing = Missing("not_found")
    """NVIDIA display controllers on the PCI bus, also those that NVML does not list. Those bound to vfio-pci
    belong to a virtual machine and are counted in `passed_through`, not here."""
    passed_through: Count = 0
    trouble: Missing | None = None
    """Why the driver as a whole does not answer (no driver, mismatch, hung); None when it does."""
    read_at: Time | None = None
    """The host's clock when the values were read; older than the sample while the driver hangs."""


# ---- virtual environments and packages

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


# ---- what travels: console to agent


class WatchSpec(msgspec.Struct, frozen=True, gc=False, tag_field="do", tag="watch"):
    """What the agent is to watch; sent once after hello, and again when the config changes."""

    interval: float
    package: str
    modules: list[list[str]]
    """Each entry lists accepted alternatives, most wanted first."""
    distributions: list[str]
    venvs: list[str] | None
    """Paths of the config; None to look for them in the usual places only. Those found are added either way."""
    units: list[str]
    """Names or globs; `user:` before one asks the login user's own manager."""
    paths: list[str]


# ---- what travels: agent to console


class Hello(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="hello"):
    """The agent's first frame."""

    protocol: Count
    python: str
    pid: Pid


class Sample(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="sample"):
    """What changed since the last sample; the first one of each section is whole. A section that is not there is as
    it was. Sections arrive as soon as each is known: the first samples lack the slow ones."""

    at: Time
    host: HostInfo | UnsetType = UNSET
    gpu: GpuReport | UnsetType = UNSET
    venvs: Annotated[list[Venv], Meta(max_length=MOST_ITEMS)] | UnsetType = UNSET
    units: Annotated[list[Unit], Meta(max_length=MOST_ITEMS)] | UnsetType = UNSET
    paths: Annotated[list[PathInfo], Meta(max_length=MOST_ITEMS)] | UnsetType = UNSET


class Answer(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="answer"):
    """The answer to a request, by its number; exactly one of `ok` and `error` is set."""

    id: Count
    ok: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None


class Note(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="note"):
    """A fault inside the agent that does not end it: one section could not be read, with the reason."""

    section: Section
    text: str


FromAgent: TypeAlias = Hello | Sample | Answer | Note


# ---- what the console adds


class LinkStatus(msgspec.Struct, frozen=True, gc=False):
    """How a host is reached right now."""

    state: LinkState
    detail: str = ""
    """What happened and what to do about it; empty while all is well."""
    latency_ms: float | Missing = Missing("not_found", "not connected")
    """Round trip of the last heartbeat."""
    since: float = 0.0
    """The console's clock."""
    next_try: float | None = None
    """The console's clock; None while connected or trying."""


class Finding(msgspec.Struct, frozen=True, gc=False):
    """Something wrong, or worth knowing, on one host."""

    code: str
    level: Level
    subject: str
    """What it is about: `gpu 1`, a venv's path, a unit's name."""
    text: str
    """One line that says what it means."""
    next_step: str = ""
    """A key of the console or an exact command."""
