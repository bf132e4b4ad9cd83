"""systemd units: failed, looping, not what the config or the operator thinks."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator

from dflash_console.findings.picture import Picture
from dflash_console.model import Finding, Missing, Unit

__all__ = ["absent_units", "broken_units", "other_venvs", "stale_units", "unread_units", "unusable_units"]


def readable(picture: Picture) -> list[Unit]:
    """The units that systemd told something about."""
    return [unit for unit in picture.snapshot.units if isinstance(unit.load, str)]


def manager(unit: Unit) -> str:
    """`systemctl` as it is called for the unit's manager."""
    return "systemctl --user" if unit.name.startswith("user:") else "systemctl"


def plain(unit: Unit) -> str:
    """The unit's name as systemctl takes it, quoted for a shell."""
    return shlex.quote(unit.name.removeprefix("user:"))


def journal(unit: Unit) -> str:
    """The command that shows a unit's last lines on the host."""
    user = "--user " if unit.name.startswith("user:") else ""
    return f"journalctl {user}-n 50 -u {plain(unit)}"


def unread_units(picture: Picture) -> Iterator[Finding]:
    """systemd does not answer: one finding, however many units are watched."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for unit in picture.snapshot.units:
        if isinstance(unit.load, Missing):
            reasons[unit.problem or unit.load.detail or unit.load.missing].append(unit.name)
    for reason, names in reasons.items():
        subject = names[0] if len(names) == 1 else f"{len(names)} units"
        yield Finding("units_unread", "warning", subject, f"systemd does not tell: {reason}")


def broken_units(picture: Picture) -> Iterator[Finding]:
    """A unit that is restarted again and again, or that failed."""
    for unit in readable(picture):
        if unit.is_looping:
            count = f", {unit.restarts} restarts so far" if isinstance(unit.restarts, int) else ""
            text = f"crash loop{count}{ending(unit)}"
            yield Finding("unit_crash_loop", "critical", unit.name, text, journal(unit))
        elif unit.active == "failed":
            yield Finding("unit_failed", "critical", unit.name, f"failed{ending(unit)}", journal(unit))


def ending(unit: Unit) -> str:
    """How the last run ended, to stand behind a sentence."""
    known = [
        unit.result if isinstance(unit.result, str) and unit.result != "success" else "",
        unit.exit_status,
    ]
    words = ", ".join(word for word in known if word)
    return f" ({words})" if words else ""


def absent_units(picture: Picture) -> Iterator[Finding]:
    """A unit that is not installed, which is not the same as stopped."""
    for unit in readable(picture):
        if unit.load != "not-found":
            continue
        if unit.active in ("active", "activating", "reloading"):
            text = "still runs, and its unit file was deleted: a stop can't be undone"
            yield Finding(
                "unit_file_deleted", "warning", unit.name, text, f"{manager(unit)} cat {plain(unit)}"
            )
        else:
            text = "is not installed on this host"
            yield Finding("unit_not_installed", "warning", unit.name, text, "correct units in config.toml")


def unusable_units(picture: Picture) -> Iterator[Finding]:
    """A unit that systemd will not start: masked, or its file can't be read."""
    for unit in readable(picture):
        if unit.load == "masked":
            step = f"{manager(unit)} unmask {plain(unit)}"
            yield Finding("unit_masked", "warning", unit.name, "is masked: systemd will not start it", step)
        elif unit.load in ("bad-setting", "error"):
            text = f"its unit file can't be used: {unit.problem or unit.load}"
            step = f"systemd-analyze verify {shlex.quote(unit.fragment) if unit.fragment else plain(unit)}"
            yield Finding("unit_bad_setting", "warning", unit.name, text, step)


def stale_units(picture: Picture) -> Iterator[Finding]:
    """The unit file was edited and systemd still goes by the old text. One command mends all of a manager."""
    stale: dict[str, list[str]] = defaultdict(list)
    for unit in readable(picture):
        if unit.needs_reload:
            stale[manager(unit)].append(unit.name)
    for systemctl, names in stale.items():
        text = "unit file was edited; a restart would still run the old text"
        yield Finding("unit_needs_reload", "warning", ", ".join(names), text, f"{systemctl} daemon-reload")


def other_venvs(picture: Picture) -> Iterator[Finding]:
    """A unit that starts from another venv than the one that copies go to."""
    wanted = picture.package_venv
    for unit in readable(picture):
        if wanted is not None and unit.venv is not None and not picture.is_package_venv(unit.venv):
            text = f"starts from {unit.venv}, the package goes to {wanted}"
            yield Finding("unit_other_venv", "warning", unit.name, text, f"{manager(unit)} cat {plain(unit)}")
