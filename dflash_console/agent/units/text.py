"""What `systemctl show` says, as rows: unit names made as systemctl makes them, blocks of properties taken
apart, and a block turned into the facts of a unit. Pure; systemd 219 and newer."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from ..section import missing, shortened

__all__ = [
    "PROPERTIES",
    "describe_unit",
    "escape_path",
    "is_glob",
    "match_names",
    "parse_show",
    "refusal",
    "split_command",
    "steady_at",
    "system_name",
]

PROPERTIES = (
    "Id",
    "Names",
    "Description",
    "LoadState",
    "LoadError",
    "ActiveState",
    "SubState",
    "Result",
    "NRestarts",
    "MainPID",
    "ExecMainPID",
    "ExecMainCode",
    "ExecMainStatus",
    "StateChangeTimestampMonotonic",
    "ActiveEnterTimestampMonotonic",
    "ActiveExitTimestampMonotonic",
    "InactiveEnterTimestampMonotonic",
    "InactiveExitTimestampMonotonic",
    "InvocationID",
    "MemoryCurrent",
    "TasksCurrent",
    "FragmentPath",
    "DropInPaths",
    "UnitFileState",
    "NeedDaemonReload",
    "ControlGroup",
    "ExecStart",
    "Environment",
)
"""Asked of every unit. systemd leaves out those that it does not know (NRestarts came with v235)."""

LOOP_SECONDS = 60
"""A unit that was restarted and is up for less than this is still looping."""

SUFFIXES = frozenset(
    ["service", "socket", "device", "mount", "automount", "swap", "target", "path", "timer", "slice", "scope"]
)
UNIT_CHARACTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\@")
NUMBER_LIMIT = 1 << 63

# systemd.exec(5), "Process exit codes": those above 199 are systemd's own, before the program ran.
SETUP_FAILURES = {
    200: "CHDIR", 203: "EXEC", 206: "STDIN", 208: "OOM_ADJUST", 209: "STDOUT", 214: "SETSCHEDULER", 215:
    "CPUAFFINITY", 216: "GROUP", 217: "USER", 218: "CAPABILITIES", 219: "CGROUP", 222: "STDERR", 224: "PAM",
    226: "NAMESPACE", 227: "NO_NEW_PRIVILEGES", 228: "SECCOMP", 233: "RUNTIME_DIRECTORY", 238:
    "STATE_DIRECTORY", 240: "LOGS_DIRECTORY", 243: "CREDENTIALS",
}  # fmt: skip
EXITS = {"1": "exited", "2": "killed", "3": "dumped"}

_EXEC_TAIL = r" ; start_time=\[.*\] ; stop_time=.* }$"
_EXEC_END = re.compile(_EXEC_TAIL)
_EXEC = re.compile(
    r"\{ path=(.*?) ; argv\[\]=(.*?)(?: ; (?:ignore_errors|flags)=[^;]*)?" + _EXEC_TAIL, re.DOTALL
)
_PROPERTY = re.compile(r"([A-Za-z0-9]+)=(.*)", re.DOTALL)


# ---- names


def is_glob(name: str) -> bool:
    """Whether systemctl takes `name` as a pattern."""
    return any(mark in name for mark in "*?[")


def system_name(name: str) -> str:
    """The unit name that systemctl makes of what was asked: `sglang` is `sglang.service`, and characters that
    no unit name can have are escaped (systemd-escape(1), "mangle"). A glob stays as it is."""
    if is_glob(name):
        return name
    if any(byte not in UNIT_CHARACTERS for byte in name.encode("utf-8", "surrogateescape")):
        name = "".join(_escape_byte(byte) for byte in name.encode("utf-8", "surrogateescape"))
    _, dot, suffix = name.rpartition(".")
    return name if dot and suffix in SUFFIXES else name + ".service"


def _escape_byte(byte: int) -> str:
    if byte == ord("/"):
        return "-"
    return chr(byte) if byte in UNIT_CHARACTERS else f"\\x{byte:02x}"


def refusal(name: str) -> str:
    """Why systemctl would refuse a unit name as made by `system_name` (and lose the names after it); empty
    when it would not."""
    stem = name.rpartition(".")[0]
    if is_glob(name):
        return ""
    if not stem or stem.startswith("@") or len(name) > 255:
        return f"not a unit name: {shortened(name, 80)}"
    if stem.endswith("@"):
        return f"{name} is a template: name an instance of it, such as {stem}1.{name.rpartition('.')[2]}"
    return ""


def escape_path(name: str) -> str:
    """The D-Bus object path of a unit."""
    kept = (
        char if char.isalnum() and char.isascii() and (index or not char.isdigit()) else f"_{ord(char):02x}"
        for index, char in enumerate(name)
    )
    return "/org/freedesktop/systemd1/unit/" + "".join(kept)


# ---- blocks


def parse_show(text: str) -> list[dict[str, str]]:
    """The property blocks of `systemctl show`, in its order. Of ExecStart, which comes once a command, the
    first is kept. A command may hold any text, also empty lines and lines that look like properties: it ends
    where systemctl closes its brace."""
    blocks: list[dict[str, str]] = []
    block: dict[str, str] = {}
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line:
            blocks.append(block)
            block = {}
            continue
        if line.startswith("ExecStart={ "):
            end = next(
                (index for index in range(at - 1, len(lines)) if _EXEC_END.search(lines[index])), at - 1
            )
            line = "\n".join(lines[at - 1 : end + 1])
            at = end + 1
        match = _PROPERTY.fullmatch(line)
        if match:
            block.setdefault(match[1], match[2])
    return [block for block in [*blocks, block] if block.get("Id")]


def split_command(exec_start: str) -> tuple[str, str]:
    """Executable and command line of an ExecStart value; the quotes between its words are lost. Empty when
    there is no command."""
    match = _EXEC.match(exec_start)
    return (match[1], match[2]) if match else ("", "")


def match_names(
    blocks: list[dict[str, str]], asked: list[str]
) -> list[tuple[str, str, dict[str, str] | None]]:
    """Triples of what was asked, the unit's name for it, and its block, in the order of `asked`.

    A plain name that no block answers stands with None. A glob stands once for each unit that it matches and
    that nobody asked for before, by the unit's own name.
    """
    by_name: dict[str, dict[str, str]] = {}
    for block in blocks:
        for name in [block["Id"], *block.get("Names", "").split()]:
            by_name.setdefault(name, block)
    taken = {by_name[name]["Id"] for name in map(system_name, asked) if name in by_name}
    found: list[tuple[str, str, dict[str, str] | None]] = []
    for name in asked:
        if not is_glob(name):
            found.append((name, name, by_name.get(system_name(name))))
            continue
        matching = {by_name[known]["Id"]: by_name[known] for known in by_name if fnmatchcase(known, name)}
        for identity in sorted(matching):
            if identity not in taken and matching[identity].get("LoadState") != "not-found":
                taken.add(identity)
                found.append((name, identity, matching[identity]))
    return found


# ---- a block as facts


def describe_unit(block: dict[str, str], *, monotonic: float, epoch: float) -> dict[str, object]:
    """What systemd itself tells of a unit: the fields of model.Unit but its name, command, interpreter and
    port.

    `monotonic` is the host's monotonic clock now, `epoch` what to add to it for the wall clock. The
    wall-clock stamps that systemctl prints depend on locale and version; the monotonic ones do not.
    """
    restarts = _number(block, "NRestarts")
    changed = _changed(block)
    main_pid = _number(block, "MainPID") or None
    load = block.get("LoadState", "")
    return {
        "load": load,
        "active": block.get("ActiveState", ""),
        "sub": block.get("SubState", ""),
        "result": block.get("Result", "") or missing("not_found", "systemd gives no result"),
        "restarts": missing("unsupported", "systemd does not count restarts")
        if restarts is None
        else restarts,
        "main_pid": main_pid,
        "since": round(epoch + changed, 2) if changed else None,
        "description": _description(block),
        "exit_status": _exit_status(block),
        "enabled": block.get("UnitFileState", ""),
        "needs_reload": block.get("NeedDaemonReload") == "yes",
        "is_looping": _is_looping(block, monotonic),
        "invocation_id": block.get("InvocationID", ""),
        "fragment": block.get("FragmentPath", ""),
        "memory": _accounted(block, "MemoryCurrent", "memory"),
        "tasks": _accounted(block, "TasksCurrent", "tasks"),
        "problem": _problem(block),
    }


def steady_at(block: dict[str, str]) -> float | None:
    """The monotonic time from which a restarted unit that stays up no longer counts as looping; None when it
    does not hang on time."""
    if not _number(block, "NRestarts") or block.get("ActiveState") not in (
        "active",
        "activating",
        "reloading",
    ):
        return None
    is_up = block["ActiveState"] != "activating"
    start = _seconds(block, "ActiveEnterTimestampMonotonic") if is_up else _changed(block)
    return start + LOOP_SECONDS


def _is_looping(block: dict[str, str], monotonic: float) -> bool:
    if block.get("SubState", "").startswith("auto-restart"):
        return True
    steady = steady_at(block)
    return steady is not None and monotonic < steady


def _changed(block: dict[str, str]) -> float:
    """Monotonic seconds of the last change of state. StateChangeTimestamp came with v228."""
    state = _seconds(block, "StateChangeTimestampMonotonic")
    return state or max(
        _seconds(block, f"{which}TimestampMonotonic")
        for which in ("ActiveEnter", "ActiveExit", "InactiveEnter", "InactiveExit")
    )


def _exit_status(block: dict[str, str]) -> str:
    ended = block.get("ExecMainPID", "0") not in ("0", block.get("MainPID", "0"))
    word = EXITS.get(block.get("ExecMainCode", ""))
    status = _number(block, "ExecMainStatus")
    if not ended or word is None or status is None:
        return ""
    setup = SETUP_FAILURES.get(status, "") if word == "exited" else ""
    return f"{word} {status} {setup}".rstrip()


def _problem(block: dict[str, str]) -> str:
    words = block.get("LoadError", "")
    first, last = words.find('"'), words.rfind('"')
    text = words[first + 1 : last] if 0 <= first < last else ""
    load = block.get("LoadState", "")
    if text or load in ("", "loaded", "merged", "stub"):
        return shortened(text, 400)
    return f"Unit {block['Id']} is {load}."


def _description(block: dict[str, str]) -> str:
    words = block.get("Description", "")
    return "" if words == block["Id"] else shortened(words, 400)


def _accounted(block: dict[str, str], key: str, what: str) -> object:
    value = _number(block, key)
    if value is not None:
        return value
    if block.get("ActiveState") in ("inactive", "failed"):
        return missing("not_found", "not running")
    return missing("unsupported", f"systemd does not account {what} for it")


def _number(block: dict[str, str], key: str) -> int | None:
    """None for what systemd leaves out, `[not set]` (v235 and newer) and the number that older ones print for
    it (2^64 - 1), or any that is no count."""
    value = block.get(key, "")
    is_number = value.isascii() and value.isdigit() and len(value) <= 20 and int(value) < NUMBER_LIMIT
    return int(value) if is_number else None


def _seconds(block: dict[str, str], key: str) -> float:
    return (_number(block, key) or 0) / 1e6
