"""The ends of a copy on a host: which environment is meant, and which units run from it."""

from __future__ import annotations

from dflash_console.config import Config
from dflash_console.copies import Look, Side
from dflash_console.fleet import HostView
from dflash_console.model import Missing
from dflash_console.operations.orders import at_home

__all__ = ["side_of", "units_of"]


def side_of(view: HostView, config: Config, venv: str | None) -> Side | str:
    """The end of a copy on a host, or why it can't be told.

    The environment that is named; else `package_venv`, the only one of the config, the only one of those, or of all
    found, that holds the package, or the only one found.
    """
    name, host = view.config.name, view.config
    if venv is None:
        venv = host.package_venv
    if venv is not None:
        return Side(name, at_home(view, venv))
    named = host.venvs or []
    found = view.snapshot.venvs if view.snapshot is not None else []
    holding = [each.path for each in found if not isinstance(each.package, Missing)]
    paths = [at_home(view, path) for path in named]
    places = (named, [path for path in paths if path in holding], holding, [each.path for each in found])
    for candidates in places:
        if len(candidates) == 1:
            return Side(name, at_home(view, candidates[0]))
    if several := next(filter(None, (holding, *places)), None):
        shown = ", ".join(several[:4]) + (", ..." if len(several) > 4 else "")
        return f"{name} has several environments ({shown}): name one as {name}:PATH, or package_venv in the config"
    if view.snapshot is None:
        return f"{name} is not connected: {view.link.detail or view.link.state}"
    return f"no environment was found on {name}: name one as {name}:PATH, or package_venv in the config"


def units_of(view: HostView | None, venv: str, look: Look | None = None) -> tuple[str, ...]:
    """The active units of a host that run from an environment, by whatever path, once it was looked at."""
    real = look.real if look is not None else ""
    units = view.snapshot.units if view is not None and view.snapshot is not None else []
    return tuple(
        unit.name
        for unit in units
        if (unit.venv == venv or (real and unit.real_venv == real))
        and unit.active in ("active", "activating", "reloading", "deactivating")
    )
