"""The watched units of one systemd manager, the system's or the login user's: read when due, told as rows.

Changed unit files, the clock and systemd's words about itself say that systemctl is to be asked for all; the signal
of a unit that its state is to be asked over the bus.
"""

from __future__ import annotations

import os
import time
from fnmatch import fnmatchcase

from ..redact import redact_text
from ..section import missing
from .bus import MANAGER, Bus
from .changes import Changes
from .dbus import SIGNAL, BusError
from .files import FileWatch, unit_folders
from .inspector import Inspector
from .pace import POLL_PACE, Pace
from .properties import read_states
from .show import FOUND_LIMIT, UnitReader
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
ANSWER_SECONDS = 2.0
"""For so long a state that was asked over the bus is waited for; then systemctl is asked."""
ALWAYS_MOVING = frozenset(["MemoryCurrent", "TasksCurrent"])
"""What says nothing of whether a unit is calm."""
ANOTHER_UNIT = ("LoadState", "FragmentPath")
"""What changes only when a unit was loaded anew, and with it all that the bus is not asked for."""
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
        self._changes = Changes()
        self._due_answers: dict[str, float] = {}
        """The units whose state was asked for, by path, and when it is to have come."""
        self._reader = UnitReader(runtime, self._folders)
        self._inspector = Inspector()
        self._blocks: dict[str, dict[str, str]] = {}
        """What is known of each unit, by its path on the bus."""
        self._left_out = 0
        """How many units that globs name are not among the rows."""
        self._problem: dict[str, str] | None = None
        self._failing_since = float("inf")
        self._was_live = False
        self._remembered: list[str] = []
        self._known: set[str] = set()
        self._watched: frozenset[str] = frozenset()
        self._muted: frozenset[str] = frozenset()
        self._stamps: dict[str, tuple[object, float | None]] = {}
        self._epoch = 0.0

    @property
    def note(self) -> str:
        """What no row says: why a glob stands for nothing or not for all that it names, or why changes are polled
        for; mostly empty."""
        if not self.has_read:
            return ""
        if self._problem is not None:
            return self._problem["detail"] if len(self._globs) == len(self._asked) else ""
        notes = []
        if self._left_out:
            notes.append(
                f"{self._left_out} more units not shown (limit {FOUND_LIMIT}): name them in the config"
            )
        if not self._bus.is_live:
            problem = self._bus.problem
            notes.append(f"no signals from systemd ({problem}): units are read every {POLL_PACE:g} s")
        return "; ".join(notes)

    @property
    def is_whole(self) -> bool:
        """Whether `rows` says all that it is going to say of the units as they are now."""
        return self.has_read and self._inspector.is_complete

    def configure(self, names: list[str]) -> None:
        """Watch these names and globs (without the `user:` before them)."""
        self._asked = names
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
            is_new = self._listen_in(now)
            self._mind_bus()
            return self._read_if_due(now) or is_new
        if fd in self._reader.fds():
            return self._reader.ready(now) and self._take(now)
        return fd in self._inspector.fds() and self._inspector.ready(now) and self._tell(now)

    def tick(self, now: float) -> bool:
        """Start what is due; whether `rows` is new."""
        self._bus.tick(now)
        is_new = self._listen_in(now)
        self._changes.tick(now)
        self._mind_bus()
        if self._files.has_changed():
            self._pace.ask(scan=True)
        self._mind_answers(now)
        problem = self._reader.problem
        is_calm = self._bus.is_live if problem is None else problem["missing"] == "not_found"
        self._pace.tick(now, is_calm=is_calm)
        is_new |= self._reader.tick(now) and self._take(now)
        is_new |= self._read_if_due(now)
        return (self._inspector.tick(now) and self._tell(now)) or is_new

    def close(self) -> None:
        """Let go of the bus and end the children."""
        self._bus.close()
        self._reader.close()
        self._inspector.close()

    # ---- when to read

    def _listen_in(self, now: float) -> bool:
        """Take what has come over the bus; whether `rows` is new."""
        changed = [self._hear(message, now) for message in self._bus.ready(now)]
        return any(changed) and self._tell(now)

    def _hear(self, message: Message, now: float) -> bool:
        """Take a signal or an answer; whether it has changed what is known of a unit."""
        if message.kind != SIGNAL:
            return self._take_state(message, now)
        if message.member == "PropertiesChanged":
            if message.path in self._watched:
                self._changes.hear(message.path, now)
        elif message.interface != MANAGER:
            return False
        elif message.member in ("Reloading", "UnitFilesChanged"):
            self._reader.forget()
            self._pace.ask(scan=True)
        elif (
            message.member == "UnitNew" and message.first not in self._known and self._matches(message.first)
        ):
            # Our own reading loads units too, so those that are known say nothing.
            self._pace.ask()
        return False

    def _mind_bus(self) -> None:
        if self._bus.is_live and not self._was_live:
            self._reader.forget()
            self._pace.ask()
        elif self._was_live and not self._bus.is_live:
            self._changes.keep(())
        self._was_live = self._bus.is_live
        if self._muted != self._changes.muted:
            self._muted = self._changes.muted
            self._wish()

    def _mind_answers(self, now: float) -> None:
        overdue = [path for path, by in self._due_answers.items() if now >= by]
        for path in overdue:
            del self._due_answers[path]
        if overdue:
            self._pace.ask()

    def _matches(self, name: str) -> bool:
        return any(fnmatchcase(name, glob) for glob in self._globs)

    def _read_if_due(self, now: float) -> bool:
        if self._reader.is_busy:
            return False
        if not self._pace.may_start(now):
            self._ask_states(now)
        if not self._pace.may_start(now):
            return False
        must_scan = self._pace.start(now)
        if must_scan:
            self._reader.forget()
        plain = [system_name(name) for name in self._asked if not is_glob(name)]
        names = [name for name in dict.fromkeys([*plain, *self._remembered]) if not refusal(name)]
        return self._reader.start([*names, *self._globs], now, find_installed=must_scan) and self._take(now)

    def _ask_states(self, now: float) -> None:
        """Ask for the states of the units that have changed; never beside systemctl, whose answer comes later and
        may be the older one."""
        for path in self._changes.take(now):
            block = self._blocks.get(path)
            if not self._bus.is_live or block is None or block.get("LoadState") == "not-found":
                self._pace.ask()
            elif path not in self._due_answers:
                self._due_answers[path] = now + ANSWER_SECONDS
                self._bus.ask(path)

    # ---- what came

    def _take_state(self, message: Message, now: float) -> bool:
        path = message.path
        if self._due_answers.pop(path, None) is None or path not in self._blocks:
            return False
        if self._reader.is_busy:
            self._changes.add(path)
            return False
        try:
            states = read_states(message)
        except BusError:
            states = {}
        block = self._blocks[path]
        if not states or any(states.get(name, "") != block.get(name, "") for name in ANOTHER_UNIT):
            # Refused, too long, or another unit than it was.
            self._pace.ask()
            return False
        is_other = any(
            block.get(name) != value for name, value in states.items() if name not in ALWAYS_MOVING
        )
        self._changes.see(path, is_other=is_other, now=now)
        self._blocks[path] = {**block, **states}
        self._inspector.consider(list(self._blocks.values()), now)
        self._inspector.tick(now)
        return True

    def _take(self, now: float) -> bool:
        self._failing_since = float("inf") if self._reader.problem is None else min(self._failing_since, now)
        if self._reader.problem is not None and self._blocks and now < self._failing_since + GRACE_SECONDS:
            self._pace.ask()
            return False
        self.has_read = True
        self._blocks = {escape_path(block["Id"]): block for block in self._reader.blocks}
        self._problem = self._reader.problem
        if self._problem is None:
            self._attend(now)
        self._tell(now)
        # What changed while systemd was being asked.
        self._read_if_due(now)
        return True

    def _attend(self, now: float) -> None:
        """Listen to, watch and inspect what was read."""
        blocks = list(self._blocks.values())
        there = [block for block in blocks if block.get("LoadState") != "not-found"]
        plain = {system_name(name) for name in self._asked if not is_glob(name)}
        found = {block["Id"] for block in there if self._matches(block["Id"])}
        # In the rows' order: those that are shown are those that are asked for again.
        self._remembered = sorted(found - plain)[:FOUND_LIMIT]
        self._known = {name for block in blocks for name in (block["Id"], *block.get("Names", "").split())}
        self._stamps = {name: stamp for name, stamp in self._stamps.items() if name in self._known}
        self._listen(blocks)
        self._files.watch([*self._folders, *(path for block in there for path in _files_of(block))])
        self._inspector.consider(blocks, now)
        self._inspector.tick(now)

    def _listen(self, blocks: list[dict[str, str]]) -> None:
        names = {system_name(name) for name in self._asked if not is_glob(name)}
        watched = frozenset(map(escape_path, names.union(block["Id"] for block in blocks)))
        if not watched <= self._watched and blocks:
            # A change between the reading and this wish would go unheard.
            self._pace.ask()
        self._watched = watched
        self._changes.keep(watched)
        self._muted = self._changes.muted
        self._wish()

    def _wish(self) -> None:
        self._bus.watch(self._watched - self._muted, new_units=bool(self._globs))

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
        blocks = list(self._blocks.values())
        found = 0
        for asked, name, block in match_names(blocks, self._asked):
            found += is_glob(asked)
            if not is_glob(asked) or found <= FOUND_LIMIT:
                self.rows[asked].append(self._row(name, block, now))
        self._left_out = self._reader.left_out + max(0, found - FOUND_LIMIT)
        steady = [steady_at(block) for block in blocks]
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
