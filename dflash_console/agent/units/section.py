"""The section `units`: the configured systemd units of system and login user, in the config's order."""

from __future__ import annotations

from ..section import Section
from .manager import UnitManager

__all__ = ["UnitSection"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

USER = "user:"


class UnitSection(Section):
    """Reads units by `systemctl show`: when systemd says that one changed, else every 30 s; where systemd's
    signals can't be had, every 2 s. `value` is a list of rows as model.Unit has them."""

    name = "units"

    def __init__(self) -> None:
        self.value: list[dict[str, object]] | None = None
        self._names: list[str] = []
        self._system: UnitManager | None = None
        self._user: UnitManager | None = None

    @property
    def note(self) -> str:
        """What the operator should know of how the units are read; empty when all is well."""
        return "; ".join(manager.note for manager in self._managers() if manager.note)

    def configure(self, spec: dict[str, Any]) -> None:
        """Watch the names and globs of the spec's `units`."""
        self._names = list(dict.fromkeys(name for name in spec.get("units", []) if name not in ("", USER)))
        system = [name for name in self._names if not name.startswith(USER)]
        user = [name[len(USER) :] for name in self._names if name.startswith(USER)]
        self._system = _configured(self._system, system, is_user=False)
        self._user = _configured(self._user, user, is_user=True)
        self._tell()

    def fds(self) -> list[int]:
        return [fd for manager in self._managers() for fd in manager.fds()]

    def ready(self, fd: int, now: float) -> None:
        changed = [manager.ready(fd, now) for manager in self._managers()]
        if any(changed):
            self._tell()

    def tick(self, now: float) -> None:
        changed = [manager.tick(now) for manager in self._managers()]
        if any(changed):
            self._tell()

    def refresh(self) -> None:
        for manager in self._managers():
            manager.refresh()

    def close(self) -> None:
        for manager in self._managers():
            manager.close()

    def _managers(self) -> list[UnitManager]:
        return [manager for manager in (self._system, self._user) if manager is not None]

    def _tell(self) -> None:
        if not any(manager.has_read for manager in self._managers()) and self._managers():
            return
        rows: list[dict[str, object]] = []
        for name in self._names:
            is_user = name.startswith(USER)
            manager = self._user if is_user else self._system
            found = manager.rows.get(name[len(USER) :] if is_user else name, []) if manager else []
            rows += [{**row, "name": f"{USER}{row['name']}"} if is_user else row for row in found]
        if rows != self.value:
            self.value = rows


def _configured(manager: UnitManager | None, names: list[str], *, is_user: bool) -> UnitManager | None:
    if not names:
        if manager is not None:
            manager.close()
        return None
    manager = manager or UnitManager(is_user=is_user)
    manager.configure(names)
    return manager
