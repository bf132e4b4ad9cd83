"""A stand-in `systemctl` that answers with recorded blocks, and how to drive a units section by a clock."""

from __future__ import annotations

import json
import os
import re
import select
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from dflash_console.agent.units import UnitSection
from dflash_console.agent.units import files as unit_files
from dflash_console.agent.units import manager as unit_manager
from dflash_console.agent.units import show as unit_show
from dflash_console.model import Unit
from tests.agent.bus_peers import Systemd
from tests.agent.driver import PATIENCE
from tests.waiting import until_sync

__all__ = [
    "RUN",
    "STOPPED",
    "Systemctl",
    "command_of",
    "configured",
    "go_live",
    "has_read",
    "is_idle",
    "pump",
    "read",
    "rows",
    "wait",
]

RECORDED = (Path(__file__).parent.parent / "data" / "systemctl" / "show-252-system.txt").read_text()
SCRIPT = """#!/bin/sh
cd {folder}
echo "$*" >> calls
echo "$XDG_RUNTIME_DIR $DBUS_SESSION_BUS_ADDRESS" >> environments
[ -e hang ] && exec sleep 600
[ -e hang-user ] && [ "$1" = --user ] && exec sleep 600
[ -e dead ] && {{ cat dead >&2; exit 1; }}
case "$*" in *" -p Version") echo Version=252; exit 0;; esac
while [ "$1" != -- ]; do shift; done
shift
for name do
  case "$name" in *'*'*) continue;; esac
  [ -e "refused/$name" ] && {{ echo "Failed to get properties: Access denied" >&2; exit 1; }}
  cat "units/$name" 2> /dev/null || sed "s/nope/${{name%.service}}/" units/nope.service
  echo
done
"""
RUN, STOPPED = "sglang-run.service", "sglang-stopped.service"


class Systemctl:
    """The stand-in, first on the PATH, and what it is to say; the bus is to be at `folder / "bus"`."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        patch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        patch.setattr(unit_manager, "_sockets", lambda runtime: [str(folder / "bus")])
        patch.setattr(unit_manager, "unit_folders", lambda runtime: [str(folder / "files")])
        patch.setattr(unit_files, "LOCAL", (str(folder),))
        patch.setattr(unit_show, "BOOTED", str(folder))
        for name in ("bin", "units", "refused"):
            (folder / name).mkdir()
        script = folder / "bin" / "systemctl"
        script.write_text(SCRIPT.format(folder=folder))
        script.chmod(0o755)
        (folder / "calls").touch()
        # Above every pid that Linux gives, so that no process of this machine is meant.
        recorded = re.sub(r"MainPID=[1-9]\d*", "MainPID=4194999", RECORDED)
        for block in recorded.replace("\n\nId=spoof", "").split("\n\n"):
            for line in block.splitlines():
                if line.startswith("Id="):
                    (folder / "units" / line[3:]).write_text(block + "\n")

    @property
    def calls(self) -> list[str]:
        """The command lines so far."""
        return (self.folder / "calls").read_text().splitlines()

    def change(self, name: str, **properties: str) -> None:
        """Let a unit have other properties from now on."""
        path = self.folder / "units" / name
        lines = path.read_text().splitlines()
        kept = [line for line in lines if line.partition("=")[0] not in properties]
        path.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in properties.items())]) + "\n")

    def say(self, what: str, words: str = "") -> None:
        """Hang, be dead with words on stderr, or refuse a name."""
        (self.folder / what).write_text(words)


def configured(section: UnitSection, *names: str) -> UnitSection:
    section.configure({"units": list(names)})
    return section


def pump(section: UnitSection, now: float) -> None:
    for systemd in Systemd.living:
        systemd.serve()
    readable, _, _ = select.select(section.fds(), [], [], 0)
    for fd in readable:
        section.ready(fd, now)


def wait(section: UnitSection, now: float, true: Callable[[], bool], what: str) -> None:
    """Serve the section's descriptors at one moment of its clock until something is true."""

    def look() -> bool:
        pump(section, now)
        return true()

    until_sync(look, PATIENCE, what)


def is_idle(section: UnitSection) -> bool:
    """Whether no child of the section runs and no answer of systemd's is owed."""
    return not any(
        manager._reader.is_busy or manager._inspector.fds() or manager._due_answers
        for manager in section._managers()
    )


def read(section: UnitSection, now: float) -> list[Unit]:
    """One tick and all that it starts, up to the end; the rows then."""
    section.tick(now)
    wait(section, now, lambda: is_idle(section), "the reading's end")
    return rows(section)


def has_read(section: UnitSection, systemctl: Systemctl, calls: int) -> bool:
    return len(systemctl.calls) == calls and is_idle(section)


def rows(section: UnitSection) -> list[Unit]:
    return msgspec.convert(json.loads(json.dumps(section.value)), list[Unit])


def command_of(section: UnitSection) -> str:
    """The command line of the system manager's systemctl."""
    (manager,) = section._managers()
    return Path(f"/proc/{manager._reader._shot.pid}/cmdline").read_text()


def go_live(section: UnitSection, systemd: Systemd) -> float:
    """Read, subscribe, and read what may have changed before; the section's clock then."""

    def look() -> bool:
        pump(section, 0.0)
        systemd.serve()
        return systemd.subscribers == len(section._managers()) and is_idle(section) and not section.note

    section.tick(0.0)
    until_sync(look, PATIENCE, "the subscription")
    for now in (1.0, 2.0, 3.0, 4.0, 5.0):
        read(section, now)
    return 5.0
