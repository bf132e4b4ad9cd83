"""The section `units`: the configured systemd units of system and login user, in the config's order."""

from __future__ import annotations

from ..section import Section
from .inspector import DEADLINE
from .manager import UnitManager

__all__ = ["UnitSection"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

USER = "user:"
NAMES_LIMIT = 700
"""Names and globs that are watched. With the units that the globs of both managers find, they stay below what the
console takes (bounds.MOST_ITEMS)."""
LONG_AGO = float("-inf")


class UnitSection(Section):
    """Reads units by `systemctl show` every 30 s, and one over the bus when systemd says that it changed; where
    systemd's signals can't be had, all every 2 s. `value` is a list of rows as model.Unit has them."""

    name = "units"

    def __init__(self) -> None:
        self.value: list[dict[str, object]] | None = None
        self._names: list[str] = []
        self._dropped = 0
        """How many names NAMES_LIMIT leaves out."""
        self._system: UnitManager | None = None
        self._user: UnitManager | None = None
        self._told_by: float | None = None
        """When the first value is told, whole or not; None before the first tick."""

    @property
    def note(self) -> str:
        """What the operator should know of how the units are read; empty when all is well, and without a value."""
        if self.value is None:
            return ""
        notes = [manager.note for manager in self._managers() if manager.note]
        if self._dropped:
            notes.append(f"{self._dropped} more units not shown (limit {NAMES_LIMIT})")
        return "; ".join(notes)

    def configure(self, spec: dict[str, Any]) -> None:
        """Watch the names and globs of the spec's `units`."""
        names = list(dict.fromkeys(name for name in spec.get("units", []) if name not in ("", USER)))
        self._names, self._dropped = names[:NAMES_LIMIT], len(names[NAMES_LIMIT:])
        system = [name for name in self._names if not name.startswith(USER)]
        user = [name[len(USER) :] for name in self._names if name.startswith(USER)]
        self._system = _configured(self._system, system, is_user=False)
        self._user = _configured(self._user, user, is_user=True)
        self._tell(LONG_AGO)

    def fds(self) -> list[int]:
        return [fd for manager in self._managers() for fd in manager.fds()]

    def ready(self, fd: int, now: float) -> None:
        changed = [manager.ready(fd, now) for manager in self._managers()]
        if any(changed):
            self._tell(now)

    def tick(self, now: float) -> None:
        if self._told_by is None:
            self._told_by = now + DEADLINE
        changed = [manager.tick(now) for manager in self._managers()]
        if any(changed) or self.value is None:
            self._tell(now)

    def refresh(self) -> None:
        for manager in self._managers():
            manager.refresh()

    def close(self) -> None:
        for manager in self._managers():
            manager.close()

    def _managers(self) -> list[UnitManager]:
        return [manager for manager in (self._system, self._user) if manager is not None]

    def _tell(self, now: float) -> None:
        if not self._may_tell(now):
            return
        rows: list[dict[str, object]] = []
        for name in self._names:
            is_user = name.startswith(USER)
            manager = self._user if is_user else self._system
            found = manager.rows.get(name[len(USER) :] if is_user else name, []) if manager else []
            rows += [{**row, "name": f"{USER}{row['name']}"} if is_user else row for row in found]
        if rows != self.value:
            self.value = rows

    def _may_tell(self, now: float) -> bool:
        """Whether there is something to tell. The first time that is all or, later, what there is: who looks
        once must not take a unit that was not looked at yet for one without a Python."""
        managers = self._managers()
        if all(manager.is_whole for manager in managers):
            return True
        is_first = self.value is None
        has_waited = self._told_by is not None and now >= self._told_by
        return (has_waited or not is_first) and any(manager.has_read for manager in managers)


def _configured(manager: UnitManager | None, names: list[str], *, is_user: bool) -> UnitManager | None:
    if not names:
        if manager is not None:
            manager.close()
        return None
    manager = manager or UnitManager(is_user=is_user)
    manager.configure(names)
    return manager
