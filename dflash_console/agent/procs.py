"""Facts about processes from /proc: who runs what since when, in which virtual environment and systemd unit.

Call this from a child where a process may be stuck: /proc/PID/cmdline and maps wait for a lock that a process
inside a hung driver may hold for ever, and a virtual environment may lie on a dead mount.
"""

from __future__ import annotations

import os
import time

from .redact import redact
from .section import missing

__all__ = ["boot_id", "find_venv", "parent_of", "read_process", "start_ticks", "unit_of", "user_name"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
FRESH = 2.0
SETTLED = 10.0
"""Seconds for which facts are reused: of a process younger than a minute (it may exec, or set its title), of
others."""
COMMAND_LIMIT = 1 << 16
MAPS_LIMIT = 16 << 20
"""Twice the maps of as many areas as a process may have (proc_sys_vm(5), max_map_count)."""
SEARCH_LIMIT = 512
"""Folders of programs on a PATH, each counted once; one that names more is made to keep us busy."""

_cache: dict[int, tuple[int, float, dict[str, Any]]] = {}
_users: dict[int, str] = {}


def read_process(pid: int) -> dict[str, Any] | None:
    """What is known of a process; None when it is gone.

    `user` and `command` (redacted; a name in brackets when there is no command line) are text or
    missing(...), `started` is seconds since 1970 by the host's clock, `venv` the environment's folder or
    None, `unit` the systemd unit or None, `exe` the executable's path or None, `argv` the raw command line,
    `is_cut` whether that is only its beginning: it holds secrets, never send it; `unsearched` how many folders of
    its PATH the venv was not looked for in. The same dict comes back until
    it is read anew: copy it before changing it.
    """
    ticks = start_ticks(pid)
    if ticks is None:
        _cache.pop(pid, None)
        return None
    now = time.monotonic()
    known = _cache.get(pid)
    if known and known[0] == ticks and now < known[1]:
        return known[2]
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / TICKS
    facts = _read(pid, known[2] if known and known[0] == ticks else None, age)
    # Whatever was read may belong to a later process of the same number, unless the start is still the same.
    if facts is None or start_ticks(pid) != ticks:
        _cache.pop(pid, None)
        return None
    if len(_cache) > 512:
        _cache.clear()
    _cache[pid] = (ticks, now + (FRESH if age < 60 else SETTLED), facts)
    return facts


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot: with the pid its identity. None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read(4096).rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def parent_of(pid: int) -> int:
    """Who started a process, or took it over; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read(4096).rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def user_name(uid: int) -> str:
    """The name of a user, else the number as text. May ask a directory service for one that /etc/passwd
    lacks."""
    name = _users.get(uid)
    if name is None:
        import pwd

        try:
            name = pwd.getpwuid(uid).pw_name
        except (KeyError, ValueError):
            name = str(uid)
        _users[uid] = name
    return name


def boot_id() -> str:
    """The kernel's random name of this boot, empty when it can't be read."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def unit_of(cgroups: str) -> str | None:
    """The innermost service in the text of /proc/PID/cgroup (v2, or v1's name=systemd); None outside any.

    A service of a user's own manager is `user:NAME`, as the config names it.
    """
    # systemd keeps one of the two hierarchies, and the other may be there and hold nothing of it.
    named: list[str] = []
    unified: list[str] = []
    for line in cgroups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        services = [part for part in path.split("/") if part.endswith(".service") and part != ".service"]
        if controllers == "name=systemd":
            named = services
        elif number == "0" and not controllers:
            unified = services
    services = named or unified
    if not services:
        return None
    # systemd puts "_" before a name that the kernel could take for a control file of its own.
    name = services[-1].lstrip("_")
    of_user = len(services) > 1 and services[-2].startswith("user@")
    return f"user:{name}" if of_user else name


def find_venv(argv: list[str], exe: str | None, cwd: str | None, search: str, root: str = "") -> str | None:
    """The virtual environment that a Python process runs in, by its command line and executable.

    `search` is the process's PATH; `root` is a folder to look under, such as /proc/PID/root.
    """
    candidates = [exe] if exe else []
    # A script's first line makes the kernel start `python /venv/bin/script`: the interpreter comes first in
    # argv by its own path there, and the script beside it says the same when that path went through a link.
    for word in argv[:1] + [word for word in argv[1:2] if word.startswith("/")]:
        if "/" in word:
            candidates.append(word if word.startswith("/") else os.path.join(cwd or "/", word))
        elif word:
            candidates += [os.path.join(folder, word) for folder in _searched(search)[:SEARCH_LIMIT]]
    for candidate in candidates:
        folder = os.path.dirname(os.path.normpath(candidate))
        if os.path.basename(folder) in ("bin", "Scripts") and os.path.lexists(root + candidate):
            prefix = os.path.dirname(folder)
            if _is_venv(root + prefix):
                return prefix
            if candidate != exe and "/" not in argv[0]:
                # The first hit on PATH is what was started.
                return None
    return None


def _read(pid: int, before: dict[str, Any] | None, age: float) -> dict[str, Any] | None:
    folder = f"/proc/{pid}"
    try:
        status = _text(f"{folder}/status", 8192)
        raw = _bytes(f"{folder}/cmdline", COMMAND_LIMIT + 1)
    except OSError:
        return None
    raw, is_cut = raw[:COMMAND_LIMIT], len(raw) > COMMAND_LIMIT
    argv = [_clean(word) for word in raw.rstrip(b"\0").split(b"\0")] if raw.strip(b"\0") else []
    exe = _link(f"{folder}/exe")
    if exe and exe.endswith(" (deleted)"):
        exe = exe[: -len(" (deleted)")]
    try:
        cgroups = _text(f"{folder}/cgroup", 1 << 16)
    except OSError:
        cgroups = ""
    uid = _field(status, "Uid:")
    name = _field(status, "Name:")
    same = before is not None and before["argv"] == argv and before["exe"] == exe
    if before is not None and same:
        command = before["command"]
        # A server that has not imported its libraries yet may still show its environment.
        venv, unsearched = before["venv"], before["unsearched"]
        if not venv and age < 120:
            venv, unsearched = _venv_of(pid, argv, exe)
    else:
        command = redact(argv) if argv else f"[{name}]" if name else missing("not_found", "no command line")
        venv, unsearched = _venv_of(pid, argv, exe)
    return {
        "pid": pid,
        "user": user_name(int(uid.split()[1])) if uid else missing("error", "no Uid in /proc/PID/status"),
        "command": command,
        "started": before["started"] if before else round(time.time() - age, 2),
        "venv": venv,
        "unit": unit_of(cgroups),
        "exe": exe,
        "argv": argv,
        "is_cut": is_cut,
        "unsearched": unsearched,
    }


def _searched(search: str) -> list[str]:
    """The folders of a PATH that can be an environment's."""
    folders = dict.fromkeys(
        os.path.normpath(folder) for folder in search.split(":") if folder.startswith("/")
    )
    return [folder for folder in folders if os.path.basename(folder) in ("bin", "Scripts")]


def _venv_of(pid: int, argv: list[str], exe: str | None) -> tuple[str | None, int]:
    """The environment, and how many folders of the PATH were left out in looking for it."""
    folder = f"/proc/{pid}"
    root = f"{folder}/root"
    if not os.access(root + "/", os.X_OK):
        root = ""
    search = ""
    if argv and "/" not in argv[0]:
        try:
            environ = _bytes(f"{folder}/environ", 1 << 20).split(b"\0")
        except OSError:
            environ = []
        search = next((_clean(word[5:]) for word in environ if word.startswith(b"PATH=")), "")
    venv = find_venv(argv, exe, _link(f"{folder}/cwd"), search, root) or _mapped_venv(f"{folder}/maps", root)
    return venv, 0 if venv else max(0, len(_searched(search)) - SEARCH_LIMIT)


def _mapped_venv(maps: str, root: str) -> str | None:
    """The environment whose site-packages a process has mapped a library from: what is left to see when a
    process has overwritten its command line (setproctitle: `sglang::scheduler_TP0`)."""
    try:
        data = _bytes(maps, MAPS_LIMIT)
    except OSError:
        return None
    seen: set[bytes] = set()
    at = data.find(b"/site-packages/")
    while at >= 0:
        path = data[data.rfind(b"\n", 0, at) + 1 : at].partition(b"/")[2]
        if path not in seen:
            seen.add(path)
            prefix, python = os.path.split("/" + _clean(path))
            prefix, library = os.path.split(prefix)
            if python.startswith("python") and library.startswith("lib") and _is_venv(root + prefix):
                return prefix
        at = data.find(b"/site-packages/", data.find(b"\n", at))
    return None


def _is_venv(folder: str) -> bool:
    return os.path.isfile(folder + "/pyvenv.cfg")


def _bytes(path: str, limit: int) -> bytes:
    """Up to `limit` bytes; /proc gives a page or so at a time."""
    parts: list[bytes] = []
    with open(path, "rb", buffering=0) as file:
        while limit > 0:
            part = file.read(limit)
            if not part:
                break
            parts.append(part)
            limit -= len(part)
    return b"".join(parts)


def _text(path: str, limit: int) -> str:
    return _clean(_bytes(path, limit))


def _clean(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _link(path: str) -> str | None:
    try:
        return _clean(os.readlink(os.fsencode(path)))
    except OSError:
        return None


def _field(status: str, key: str) -> str:
    at = status.find("\n" + key) + 1
    if not at and not status.startswith(key):
        return ""
    return status[at + len(key) : status.find("\n", at)].strip()
