"""Which processes run from an environment or its package, by /proc: what a swap would take the files from."""

from __future__ import annotations

import os

from ..procs import parent_of, read_process
from ..verify.checks import check, first_few, one_line
from .processes import ProcessSearch

__all__ = ["Importers", "importers_check"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

MOST = 256
FDS_LIMIT = 4096
MAPS_LIMIT = 16 << 20
GENERATIONS = 4
"""From a process that an agent has started up to the agent."""
AGENT = "exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
"""In the command line of every agent (link/bundle.py)."""


class Importers:
    """One search, begun here so that it goes on beside other work. `tops` are the package's folders."""

    def __init__(self, venv: str, tops: list[str]) -> None:
        place = os.stat(venv) if os.path.isdir(venv) else None
        folders = list(dict.fromkeys([*tops, *map(os.path.realpath, tops)]))
        self._search = ProcessSearch(lambda pid: _row(pid, venv, place, folders))

    def read(self, mind: Callable[[], object]) -> list[str]:
        """What was found: `process 812 (python -m sglang.launch_server), sglang.service`; `mind` as for
        `ProcessSearch.read`."""
        rows = [str(row) for _, row in self._search.read(mind)]
        rows += [
            f"process {pid} hangs in the kernel and can't be looked at: it may be one"
            for pid in self._search.hung
        ]
        if self._search.unasked:
            rows.append(
                f"{self._search.unasked} processes were not come to for those that hang: any may be one"
            )
        if len(rows) > MOST:
            rows[MOST - 1 :] = [f"and {len(rows) - MOST + 1:,} more"]
        return rows

    def close(self) -> None:
        """End the search."""
        self._search.close()


def importers_check(rows: list[str]) -> dict[str, Any]:
    """What `read` found, as a check."""
    if not rows:
        return check("importers", "pass", "nothing runs from this environment")
    return check("importers", "warn", f"{first_few(rows)} runs from what is replaced", rows)


def _row(pid: int, venv: str, place: os.stat_result | None, tops: list[str]) -> str:
    facts = read_process(pid)
    if facts is None or not (_is_of(pid, facts, venv, place) or _uses(pid, tops)) or _is_agents(pid, facts):
        return ""
    command = facts["command"] if isinstance(facts["command"], str) else "no command line"
    unit = f", {facts['unit']}" if facts["unit"] else ""
    return one_line(f"process {pid} ({command}){unit}", 1000)


def _is_agents(pid: int, facts: dict[str, Any] | None) -> bool:
    """Whether it is an agent, or was started by one: the interpreter that it asks for an import."""
    for _ in range(GENERATIONS):
        if facts is None:
            return False
        if any(AGENT in word for word in facts["argv"]):
            return True
        pid = parent_of(pid)
        facts = read_process(pid) if pid > 1 else None
    return False


def _is_of(pid: int, facts: dict[str, Any], venv: str, place: os.stat_result | None) -> bool:
    """Whether a process runs an executable of the environment."""
    exe = facts["exe"]
    if isinstance(exe, str) and exe.startswith(f"{venv}/"):
        return True
    its = facts["venv"]
    if its is None or place is None:
        return False
    for root in (f"/proc/{pid}/root", ""):
        try:
            status = os.stat(root + its)
        except OSError:
            continue
        return (status.st_dev, status.st_ino) == (place.st_dev, place.st_ino)
    return bool(its == venv)


def _uses(pid: int, tops: list[str]) -> bool:
    """Whether it works in the package's folder, or has one of its files open or mapped."""
    if not tops:
        return False
    folder = f"/proc/{pid}"
    wanted = tuple(f"{top}/" for top in tops)
    if _leads(f"{folder}/cwd", wanted):
        return True
    try:
        with open(f"{folder}/maps", "rb", buffering=0) as file:
            data = b""
            while len(data) < MAPS_LIMIT:
                part = file.read(1 << 16)
                if not part:
                    break
                data += part
        if any(os.fsencode(top) in data for top in wanted):
            return True
    except OSError:
        pass
    try:
        with os.scandir(f"{folder}/fd") as entries:
            for number, entry in enumerate(entries):
                if number > FDS_LIMIT:
                    break
                if _leads(entry.path, wanted):
                    return True
    except OSError:
        pass
    return False


def _leads(link: str, wanted: tuple[str, ...]) -> bool:
    try:
        return (os.readlink(link) + "/").startswith(wanted)
    except OSError:
        return False
