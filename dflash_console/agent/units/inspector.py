"""What the processes of a unit tell: its real Python, its command line, and whether it listens on its port.

Runs in a child: reading a process that is stuck in a driver, or a script on a dead mount, may never end.
"""

from __future__ import annotations

import os
import re

from ..child import OneShot, Outcome
from ..procs import find_venv, read_process
from ..section import missing
from .command import find_interpreter, find_port, is_python, parse_environment
from .text import split_command

__all__ = ["Inspector", "inspect_unit"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..child import Channel

DEADLINE = 5.0
SLOW_PACE, FAST_PACE = 30.0, 10.0
"""Seconds between two looks: when all is known; while a unit does not listen on its port yet."""
GAP, LOOP_GAP = 2.0, 10.0
"""Least seconds between two looks at a unit that has changed; the second when it keeps changing."""
SETTLE = 2.0
"""Seconds after a start in which a process becomes what it will be: a shell execs its Python."""
TOGETHER = 5.0
"""Seconds by which a look may come early to share a child with another."""
NEVER = float("inf")
PROCESS_LIMIT = 256
DESCRIPTOR_LIMIT = 20_000
TABLE_LIMIT = 32 << 20
CGROUP_ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")


class _Look:
    """What is known of one unit's processes, and when to look again."""

    __slots__ = ("at", "block", "changed", "facts", "gap", "has_ended", "looked", "text")

    def __init__(self, block: dict[str, str]) -> None:
        self.block = block
        self.text: tuple[str, ...] = ()
        self.facts: dict[str, object] = {}
        self.has_ended = False
        """Whether a look came to its end, with facts or without."""
        self.at = NEVER
        self.looked = -NEVER
        self.changed = -NEVER
        self.gap = GAP


class Inspector:
    """Keeps what `inspect_unit` says of each unit, by the unit's Id."""

    def __init__(self) -> None:
        self._looks: dict[str, _Look] = {}
        self._order: list[str] = []
        self._stuck: set[str] = set()
        self._shot = OneShot(DEADLINE)

    def facts(self, name: str) -> dict[str, object]:
        """What is known of a unit; empty when nothing is yet."""
        look = self._looks.get(name)
        return look.facts if look else {}

    @property
    def is_complete(self) -> bool:
        """Whether every unit was looked at, as far as that can be done."""
        return all(look.has_ended for look in self._looks.values())

    def consider(self, blocks: list[dict[str, str]], now: float) -> None:
        """Take the units as they are now; those that started or were edited are looked at next."""
        looks: dict[str, _Look] = {}
        for block in blocks:
            if block.get("LoadState") == "not-found" and not _is_running(block):
                continue
            name = block["Id"]
            look = looks[name] = self._looks.get(name) or _Look(block)
            text = (block.get("ExecStart", ""), block.get("Environment", ""))
            is_other = _process(look.block) != _process(block)
            if is_other:
                # Interpreter and port mostly outlive a restart; command and socket are a process's own.
                look.facts = {**look.facts, "listening": None, "command": None}
            if look.text != text or (is_other and _is_running(block)):
                look.gap = LOOP_GAP if now < look.changed + LOOP_GAP else GAP
                look.at = min(look.at, max(now, look.looked + look.gap))
                look.changed = now
            look.block, look.text = block, text
        self._looks = looks

    def refresh(self) -> None:
        """Look at all units in the next tick."""
        for look in self._looks.values():
            look.at = 0.0

    def fds(self) -> list[int]:
        """What to wait on for reading."""
        return self._shot.fds()

    def ready(self, now: float) -> bool:
        """Take what the child says; whether any facts are new."""
        return self._take(self._shot.ready(now), now)

    def tick(self, now: float) -> bool:
        """Start what is due and mind the deadline; whether any facts are new."""
        is_new = self._take(self._shot.tick(now), now)
        if self._shot.is_busy or all(look.at > now for look in self._looks.values()):
            return is_new
        due = [name for name, look in self._looks.items() if look.at <= now + TOGETHER]
        self._order = sorted(due, key=lambda name: name in self._stuck)
        blocks = [self._looks[name].block for name in self._order]

        def look_at(channel: Channel) -> None:
            for block in blocks:
                channel.send(inspect_unit(block))

        for name in self._order:
            self._looks[name].looked, self._looks[name].at = now, NEVER
        self._shot.start(look_at, now)
        return is_new

    def close(self) -> None:
        """End the child, if any."""
        self._shot.close()

    def _take(self, outcome: Outcome | None, now: float) -> bool:
        if outcome is None:
            return False
        found = dict(zip(self._order, outcome.values))
        self._stuck.difference_update(found)
        if outcome.timed_out and len(found) < len(self._order):
            name = self._order[len(found)]
            hung = missing("hung", "a process or file of the unit does not answer")
            self._stuck.add(name)
            found[name] = {"interpreter": hung, "venv": None, "port": hung, "listening": None}
        for name in self._order:
            look = self._looks.get(name)
            if look is None:
                continue
            # Of a unit that has changed meanwhile, this is not the newest; the next look is due already.
            look.facts = found.get(name, look.facts)
            look.has_ended = True
            is_waiting = look.facts.get("listening") is False or name not in found
            is_settled = look.looked >= look.changed + SETTLE
            settled = NEVER if is_settled else max(look.changed + SETTLE, look.looked + look.gap)
            look.at = min(look.at, settled, now + (FAST_PACE if is_waiting else SLOW_PACE))
        return True


def _is_running(block: dict[str, str]) -> bool:
    return bool(block.get("ControlGroup")) or block.get("MainPID", "0") != "0"


def _process(block: dict[str, str]) -> tuple[str, ...]:
    return tuple(block.get(key, "") for key in ("MainPID", "InvocationID", "ControlGroup"))


def inspect_unit(block: dict[str, str]) -> dict[str, object]:
    """`interpreter`, `venv`, `real_venv`, `port`, `listening`, and `command` of a running unit, as model.Unit has them.

    Of a running unit they come from its main process, else from the first Python among its processes; of one
    that does not run, or runs no Python, from ExecStart.
    """
    program, command = split_command(block.get("ExecStart", ""))
    environment = parse_environment(block.get("Environment", ""))
    pids, has_more = _unit_pids(block)
    main = read_process(pids[0]) if pids else None
    python = next(_pythons(pids), None)
    facts: dict[str, object] = {}
    if python is not None:
        interpreter, venv = _running_interpreter(python)
        facts["interpreter"], facts["venv"] = interpreter, venv
    elif program:
        told = find_interpreter(program, command, environment)
        facts["interpreter"] = told
        facts["venv"] = find_venv([told], None, None, "") if isinstance(told, str) else None
    else:
        facts["interpreter"], facts["venv"] = missing("not_found", "the unit starts no command"), None
    if isinstance(facts["venv"], str):
        facts["real_venv"] = os.path.realpath(facts["venv"])
    facts["port"] = _port([process for process in (python, main) if process], command.split(), environment)
    if pids and isinstance(facts["port"], int):
        # What was not looked at may be the one that listens.
        listening = _is_listening(pids, facts["port"])
        facts["listening"] = listening or (None if has_more else listening)
    else:
        facts["listening"] = None
    if main is not None and int(block.get("MainPID", "0") or 0) == pids[0]:
        facts["command"] = main["command"]
    return facts


def _port(processes: list[dict[str, Any]], words: list[str], environment: dict[str, str]) -> object:
    """The port by the processes' command lines, else by the unit's."""
    lines = [process["argv"] for process in processes if not process["is_cut"]]
    ports = [find_port(line, environment) for line in [*lines, words] if line]
    if len(lines) < len(processes):
        return missing("error", "the command line is too long to be read whole")
    found = next((port for port in ports if isinstance(port, int)), None)
    return found or (ports[-1] if ports else missing("not_found", "the unit starts no command"))


def _running_interpreter(process: dict[str, Any]) -> tuple[str | dict[str, str], str | None]:
    first = process["argv"][0] if process["argv"] else ""
    venv: str | None = process["venv"]
    if first.startswith("/") and is_python(first):
        return first, venv
    if venv:
        return os.path.join(venv, "bin", os.path.basename(first) if is_python(first) else "python"), venv
    if process["unsearched"]:
        return missing("error", f"{process['unsearched']} more folders on its PATH not looked at"), None
    return process["exe"] or missing("permission", f"may not read /proc/{process['pid']}/exe"), None


def _pythons(pids: list[int]) -> Iterator[dict[str, Any]]:
    for pid in pids:
        process = read_process(pid)
        if process and (is_python(process["exe"] or "") or is_python("".join(process["argv"][:1]))):
            yield process


# ---- processes


def _unit_pids(block: dict[str, str]) -> tuple[list[int], bool]:
    """The main process, then the others in the unit's cgroup and those below it; and whether there are more."""
    main = block.get("MainPID", "0")
    found = dict.fromkeys([int(main)] if main.isdigit() and main != "0" else [])
    group = block.get("ControlGroup", "")
    if not group.startswith("/") or group == "/" or ".." in group.split("/"):
        return list(found), False
    root = next((root for root in CGROUP_ROOTS if os.path.exists(f"{root}{group}/cgroup.procs")), None)
    for folder, _, files in os.walk(root + group) if root else ():
        if "cgroup.procs" not in files:
            continue
        try:
            with open(os.path.join(folder, "cgroup.procs"), encoding="ascii") as file:
                found.update(dict.fromkeys(map(int, file.read().split())))
        except OSError:
            continue
        found.pop(0, None)  # one that this PID namespace can't see
        if len(found) > PROCESS_LIMIT:
            return list(found)[:PROCESS_LIMIT], True
    return list(found), False


# ---- sockets


def _is_listening(pids: list[int], port: int) -> bool | None:
    """Whether one of the processes holds a listening TCP socket on `port`; None when that is hidden from us.

    The table of the first process is read, since a unit may have a network namespace of its own.
    """
    sockets = _listening_sockets(pids[0], port)
    if not sockets:
        return None if sockets is None else False
    hidden, left = False, DESCRIPTOR_LIMIT
    for pid in pids:
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError as error:
            hidden = hidden or isinstance(error, PermissionError)
            continue
        if any(_link(f"/proc/{pid}/fd/{name}") in sockets for name in descriptors[: max(0, left)]):
            return True
        left -= len(descriptors)
    return None if hidden or left < 0 else False


def _listening_sockets(pid: int, port: int) -> set[str] | None:
    """The sockets that listen (state 0A) on `port` as /proc/PID/fd names them, by proc(5)'s net/tcp and
    net/tcp6; None when neither can be read, or one is too long."""
    row = re.compile(rb"^ *\d+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A(?: +\S+){5} +(\d+)" % port, re.MULTILINE)
    tables = [_table(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6")]
    if not any(tables) or any(len(table) > TABLE_LIMIT for table in tables):
        return None
    return {f"socket:[{inode.decode()}]" for table in tables for inode in row.findall(table)}


def _table(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(TABLE_LIMIT + 1)
    except OSError:
        return b""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
