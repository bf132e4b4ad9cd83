"""The SVC block: one line a unit, with what it really runs."""

from __future__ import annotations

from dflash_console.fleet import HostView
from dflash_console.model import Missing, Unit
from dflash_console.ui.drawing.line import Line, Piece, Row, columns, flow
from dflash_console.ui.drawing.listing import listed
from dflash_console.ui.drawing.unread import lacking
from dflash_console.ui.drawing.words import last_part, plural, span, unit_name, unit_state

__all__ = ["no_units", "unit_block", "unit_facts"]

_NAME_CELLS = 24
_CALM = frozenset({"running", "stopped", "not installed"})


def unit_block(view: HostView, width: int, host_now: float, most: int | None = None) -> list[Line]:
    """The lines about a host's services, at most `most`; `host_now` is the host's clock."""
    if view.snapshot is None:
        return []
    units = view.snapshot.units
    lack = lacking(view, "units", bool(units))
    if lack is not None or not units:
        row = Row(width).add("SVC  ", "label")
        return [row.extend([lack or (no_units(view), "dim")]).line()]
    cells = min(_NAME_CELLS, max(columns(unit_name(unit.name)[:_NAME_CELLS]) for unit in units[:most]))
    return listed(units, lambda unit: _unit_lines(unit, cells, width, host_now), width, most)


def no_units(view: HostView) -> str:
    """Why no unit is shown: none is watched, or none has such a name."""
    return f"none match {', '.join(view.config.units)}" if view.config.units else "none watched"


def unit_facts(unit: Unit, host_now: float) -> list[Piece]:
    """What is to be said of a unit beside its state, most wanted first."""
    facts: list[Piece] = []
    _, _, word = unit_state(unit)
    is_up = unit.active in ("active", "reloading") and not unit.is_looping
    if unit.since is not None and unit.load == "loaded":
        facts.append((span(host_now - unit.since), "text" if is_up else "dim"))
    if isinstance(unit.port, int) and unit.load == "loaded":
        facts.append(_port(unit, is_up))
    if isinstance(unit.restarts, int) and unit.restarts:
        facts.append((plural(unit.restarts, "restart"), "alarm" if unit.is_looping else "warn"))
    if word == "failed" and isinstance(unit.result, str) and unit.result != "success":
        facts.append((unit.result, "bad"))
    if unit.exit_status and word != "stopped" and not is_up:
        facts.append((unit.exit_status, "bad"))
    if unit.needs_reload:
        facts.append(("unit file edited, not reloaded", "warn"))
    if unit.venv:
        facts.append((last_part(unit.venv), "note"))
    elif is_up and isinstance(unit.interpreter, Missing) and unit.interpreter.missing != "unsupported":
        facts.append((unit.interpreter.detail or unit.interpreter.missing, "dim"))
    return facts


def _port(unit: Unit, is_up: bool) -> Piece:
    if unit.listening:
        return f":{unit.port} listening", "text"
    if unit.listening is None or not is_up:
        return f":{unit.port}", "dim"
    return f":{unit.port} not listening", "warn"


def _unit_lines(unit: Unit, cells: int, width: int, host_now: float) -> list[Line]:
    """One line, and more for what does not fit."""
    mark, ink, word = unit_state(unit)
    row = Row(width).add("SVC  ", "label").field(unit_name(unit.name), cells, "strong")
    row.add("  ").add(f"{mark} {word}", ink)
    facts = unit_facts(unit, host_now)
    if unit.problem and word not in _CALM:
        facts.append((unit.problem, "bad"))
    return [row.line() for row in flow(row, facts, 5)]
