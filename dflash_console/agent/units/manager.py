"""The watched units of one systemd manager, the system's or the login user's: read when due, told as rows.

systemd's signals, changed unit files and the clock say that a reading is due.
"""

from __future__ import annotations

import os
import time
from fnmatch import fnmatchcase

from ..redact import redact_text
from ..section import missing
from .bus import MANAGER, Bus
from .files import FileWatch, unit_folders
from .inspector import Inspector
from .pace import POLL_PACE, Pace
from .show import UnitReader
from .text import (
    describe_unit,
    escape_path,
    is_glob,
    match_names,
    refusal,
    split_command,
    steady_at,
    system_name,
)

__all__ = ["UnitManager"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .dbus import Message

GRACE_SECONDS = 1.5
"""For so long what was known stands while systemd does not answer, as when it executes itself anew."""
NAME_LIMIT = 128
EPOCH_DRIFT = 0.5
"""Seconds that the wall clock may drift off the monotonic one before times are told anew."""


class UnitManager:
    """One systemd manager. `rows` gives for each asked name the rows of the units that it stands for."""

    def __init__(self, *, is_user: bool) -> None:
        runtime = f"/run/user/{os.geteuid()}" if is_user else ""
        self.rows: dict[str, list[dict[str, object]]] = {}
        self.has_read = False
        """Whether `rows` says something yet."""
        self._asked: list[str] = []
        self._globs: list[str] = []
        self._folders = unit_folders(runtime)
        self._bus = Bus(_sockets(runtime))
        self._files = FileWatch()
        self._pace = Pace()
        self._reader = UnitReader(runtime, self._folders)
        self._inspector = Inspector()
        self._blocks: list[dict[str, str]] = []
        self._problem: dict[str, str] | None = None
        self._failing_since = float("inf")
        self._was_live = False
        self._remembered: list[str] = []
        self._known: set[str] = set()
        self._watched: frozenset[str] = frozenset()
        self._looping: frozenset[str] = frozenset()
        self._stamps: dict[str, tuple[object, float | None]] = {}
        self._epoch = 0.0

    @property
    def note(self) -> str:
        """What no row says: why a glob stands for nothing, or why changes are polled for; mostly empty."""
        if not self.has_read:
            return ""
        if self._problem is not None:
            return self._problem["detail"] if len(self._globs) == len(self._asked) else ""
        if self._bus.is_live:
            return ""
        return f"no signals from systemd ({self._bus.problem}): units are read every {POLL_PACE:g} s"

    @property
    def is_whole(self) -> bool:
        """Whether `rows` says all that it is going to say of the units as they are now."""
        return self.has_read and self._inspector.is_complete

    def configure(self, names: list[str]) -> None:
        """Watch these names and globs (without the `user:` before them)."""
        self._asked = names[:NAME_LIMIT]
        self._globs = [name for name in self._asked if is_glob(name)]
        self._remembered = [name for name in self._remembered if self._matches(name)]
        self.rows = {name: self.rows[name] for name in self._asked if name in self.rows}
        self._listen([])
        self.refresh()

    def refresh(self) -> None:
        """Read all anew in the next tick."""
        self._reader.forget()
        self._inspector.refresh()
        self._pace.ask(scan=True)

    def fds(self) -> list[int]:
        """What to wait on for reading."""
        return [*self._bus.fds(), *self._reader.fds(), *self._inspector.fds()]

    def ready(self, fd: int, now: float) -> bool:
        """Take what is readable; whether `rows` is new."""
        if fd in self._bus.fds():
            for message in self._bus.ready(now):
                self._hear(message)
            self._mind_bus()
            return self._read_if_due(now)
        if fd in self._reader.fds():
            return self._reader.ready(now) and self._take(now)
        return fd in self._inspector.fds() and self._inspector.ready(now) and self._tell(now)

    def tick(self, now: float) -> bool:
        """Start what is due; whether `rows` is new."""
        self._bus.tick(now)
        self._mind_bus()
        if self._files.has_changed():
            self._pace.ask(scan=True)
        problem = self._reader.problem
        is_calm = self._bus.is_live if problem is None else problem["missing"] == "not_found"
        self._pace.tick(now, is_calm=is_calm)
        is_new = self._reader.tick(now) and self._take(now)
        is_new |= self._read_if_due(now)
        return (self._inspector.tick(now) and self._tell(now)) or is_new

    def close(self) -> None:
        """Let go of the bus and end the children."""
        self._bus.close()
        self._reader.close()
        self._inspector.close()

    # ---- when to read

    def _hear(self, message: Message) -> None:
        if message.member == "PropertiesChanged":
            if message.path in self._looping:
                self._pace.ask_lazily()
            elif message.path in self._watched:
                self._pace.ask()
        elif message.interface != MANAGER:
            return
        elif message.member in ("Reloading", "UnitFilesChanged"):
            self._reader.forget()
            self._pace.ask(scan=True)
        elif (
            message.member == "UnitNew" and message.first not in self._known and self._matches(message.first)
        ):
            # Our own reading loads units too, so those that are known say nothing.
            self._pace.ask()

    def _mind_bus(self) -> None:
        if self._bus.is_live and not self._was_live:
            self._reader.forget()
            self._pace.ask()
        self._was_live = self._bus.is_live

    def _matches(self, name: str) -> bool:
        return any(fnmatchcase(name, glob) for glob in self._globs)

    def _read_if_due(self, now: float) -> bool:
        if self._reader.is_busy or not self._pace.may_start(now):
            return False
        must_scan = self._pace.start(now)
        if must_scan:
            self._reader.forget()
        plain = [system_name(name) for name in self._asked if not is_glob(name)]
        names = [name for name in dict.fromkeys([*plain, *self._remembered]) if not refusal(name)]
        return self._reader.start([*names, *self._globs], now, find_installed=must_scan) and self._take(now)

    # ---- what came

    def _take(self, now: float) -> bool:
        self._failing_since = float("inf") if self._reader.problem is None else min(self._failing_since, now)
        if self._reader.problem is not None and self._blocks and now < self._failing_since + GRACE_SECONDS:
            self._pace.ask()
            return False
        self.has_read = True
        self._blocks, self._problem = self._reader.blocks, self._reader.problem
        if self._problem is None:
            self._attend(now)
        self._tell(now)
        # What changed while systemd was being asked.
        self._read_if_due(now)
        return True

    def _attend(self, now: float) -> None:
        """Listen to, watch and inspect what was read."""
        there = [block for block in self._blocks if block.get("LoadState") != "not-found"]
        self._remembered = [block["Id"] for block in there if self._matches(block["Id"])][:NAME_LIMIT]
        self._known = {
            name for block in self._blocks for name in (block["Id"], *block.get("Names", "").split())
        }
        self._stamps = {name: stamp for name, stamp in self._stamps.items() if name in self._known}
        self._listen(self._blocks)
        self._files.watch([*self._folders, *(path for block in there for path in _files_of(block))])
        self._inspector.consider(self._blocks, now)
        self._inspector.tick(now)

    def _listen(self, blocks: list[dict[str, str]]) -> None:
        names = {system_name(name) for name in self._asked if not is_glob(name)}
        watched = frozenset(map(escape_path, names.union(block["Id"] for block in blocks)))
        if not watched <= self._watched and blocks:
            # A change between the reading and this wish would go unheard.
            self._pace.ask()
        self._watched = watched
        self._bus.watch(watched, new_units=bool(self._globs))

    def _tell(self, now: float) -> bool:
        epoch = time.time() - time.monotonic()
        if abs(epoch - self._epoch) > EPOCH_DRIFT:
            self._epoch = epoch
        self.rows = {name: [] for name in self._asked}
        if self._problem is not None:
            for name in self._asked:
                if not is_glob(name):
                    self.rows[name].append(_unreadable(name, self._problem))
            return True
        looping = set()
        for asked, name, block in match_names(self._blocks, self._asked):
            row = self._row(name, block, now)
            self.rows[asked].append(row)
            if block and row.get("is_looping"):
                looping.add(escape_path(block["Id"]))
        self._looping = frozenset(looping)
        steady = [steady_at(block) for block in self._blocks]
        self._pace.steady_at = min([at for at in steady if at is not None and at > now], default=float("inf"))
        return True

    def _row(self, name: str, block: dict[str, str] | None, now: float) -> dict[str, object]:
        if block is None:
            system = system_name(name)
            words = refusal(system) or self._reader.refused.get(system) or "systemctl does not answer for it"
            return _unreadable(name, missing("error", words))
        facts = self._inspector.facts(block["Id"])
        row = {"name": name, **describe_unit(block, monotonic=now, epoch=self._epoch), **facts}
        row["since"] = self._since(block["Id"], row["active"], row["since"], now)
        if not row.get("command"):
            command = split_command(block.get("ExecStart", ""))[1]
            words = " ".join(command.split())
            row["command"] = redact_text(words) if words else missing("not_found", "no ExecStart")
        return row

    def _since(self, name: str, active: object, told: object, now: float) -> float | None:
        """When the state changed. A unit that stops cleanly is unloaded, and the time with it: then, when we
        saw it change."""
        before = self._stamps.get(name, (active, None))
        since = told if isinstance(told, float) else before[1]
        if before[0] != active and not isinstance(told, float):
            since = round(self._epoch + now, 2)
        self._stamps[name] = (active, since)
        return since


def _unreadable(name: str, reason: dict[str, str]) -> dict[str, object]:
    cells: dict[str, object] = dict.fromkeys(("load", "active", "sub", "result", "restarts"), reason)
    return {"name": name, **cells, "main_pid": None, "since": None, "problem": reason["detail"]}


def _files_of(block: dict[str, str]) -> list[str]:
    name = block["Id"]
    extra = [f"{root}/systemd/system/{name}.d" for root in ("/etc", "/run")]
    return [
        path for path in [block.get("FragmentPath", ""), *block.get("DropInPaths", "").split()] if path
    ] + extra


def _sockets(runtime: str) -> list[str]:
    if runtime:
        return [runtime + "/bus", runtime + "/systemd/private"]
    return ["/run/dbus/system_bus_socket", *(["/run/systemd/private"] if os.geteuid() == 0 else [])]
