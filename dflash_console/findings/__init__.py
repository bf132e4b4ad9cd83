"""What is wrong, or worth knowing, on one host: pure rules from a snapshot to findings, worst first.

`find` takes the parts, `findings_of` a view of the fleet. `RULES` is the table of all rules.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from typing import Protocol

from dflash_console.findings import disks, driver, gpus, reach, units, venvs
from dflash_console.findings.picture import Picture, Rule
from dflash_console.model import Finding, Level, LinkStatus, Role, Snapshot

__all__ = ["FAULT", "RULES", "Picture", "Rule", "fault_finding", "find", "findings_of"]

RULES: tuple[Rule, ...] = (
    driver.driver_trouble,
    driver.gpus_that_nvml_lacks,
    gpus.broken_gpus,
    units.broken_units,
    venvs.interrupted_copies,
    venvs.nested_copies,
    venvs.namespace_remains,
    venvs.broken_modules,
    disks.full_filesystems,
    gpus.gpus_asking,
    venvs.missing_modules,
    venvs.no_package,
    venvs.versions_differ,
    units.other_venvs,
    units.unread_units,
    units.unusable_units,
    units.stale_units,
    units.absent_units,
    venvs.missing_venvs,
    disks.missing_paths,
    gpus.slowed_gpus,
    gpus.narrow_links,
    gpus.stuck_utilization,
    reach.unread_sections,
    gpus.hidden_processes,
    gpus.shared_gpus,
    venvs.other_origins,
    gpus.persistence_off,
    reach.reboot,
)
"""Every rule. Inside a level, findings stand in this order."""

FAULT = "console_fault"
"""The code of a finding that is no fault of the host's."""

RANK: dict[Level, int] = {"critical": 0, "warning": 1, "note": 2}


def find(
    snapshot: Snapshot | None,
    link: LinkStatus,
    role: Role = "observe",
    shared: Mapping[str, tuple[str, ...]] | None = None,
    *,
    ssh: str = "",
    package_venv: str | None = None,
    utilization: Mapping[str, tuple[int | None, ...]] | None = None,
    unread: frozenset[str] = frozenset(),
    notes: Mapping[str, str] | None = None,
    rebooted_at: float | None = None,
) -> list[Finding]:
    """All findings of a host: what is wrong with its link first, then worst first, in a stable order.

    `ssh` is the command that reaches it by hand, empty for this machine; the others are those of `Picture`.
    Without a snapshot only the link can be judged.
    """
    trouble = reach.link_trouble(link, ssh)
    first = [] if trouble is None else [trouble]
    if snapshot is None:
        return first
    picture = Picture(
        snapshot=snapshot,
        link=link,
        role=role,
        package_venv=package_venv,
        shared=shared or {},
        utilization=utilization or {},
        unread=unread,
        notes=notes or {},
        rebooted_at=rebooted_at,
    )
    found = [finding for rule in RULES for finding in judged(rule, picture)]
    return first + sorted(found, key=lambda finding: RANK[finding.level])


def judged(rule: Rule, picture: Picture) -> list[Finding]:
    """What a rule finds. A fault of the rule is one more finding: it must not hide what the others find."""
    found: list[Finding] = []
    try:
        found.extend(rule(picture))
    except Exception as error:  # noqa: BLE001 - a fault of ours, which is shown
        found.append(fault_finding(f"the rule {getattr(rule, '__name__', '')} failed", error))
    return found


def fault_finding(what: str, error: Exception) -> Finding:
    """A fault of the console itself as a finding on the host over which it came up."""
    words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return Finding(FAULT, "warning", "this console", f"{what}: {words}{where}", "please report this")


# ---- for a view of the fleet


class WatchedHost(Protocol):
    """What the config says of a host, as far as the rules go by it (`config.HostConfig`)."""

    @property
    def role(self) -> Role: ...
    @property
    def package_venv(self) -> str | None: ...


class View(Protocol):
    """What the fleet knows of a host, as far as the rules go by it (`fleet.HostView`)."""

    @property
    def config(self) -> WatchedHost: ...
    @property
    def link(self) -> LinkStatus: ...
    @property
    def snapshot(self) -> Snapshot | None: ...
    @property
    def utilization(self) -> Mapping[str, tuple[int | None, ...]]: ...
    @property
    def shared(self) -> Mapping[str, tuple[str, ...]]: ...
    @property
    def unread(self) -> frozenset[str]: ...
    @property
    def notes(self) -> Mapping[str, str]: ...
    @property
    def rebooted_at(self) -> float | None: ...
    @property
    def ssh_command(self) -> str: ...


def findings_of(view: View) -> list[Finding]:
    """All findings of a host that the fleet watches; as `find`."""
    return find(
        view.snapshot,
        view.link,
        view.config.role,
        view.shared,
        # Made only for a link that is down: over a fleet and once a second it costs more than most rules.
        ssh="" if view.link.state in ("up", "connecting") else view.ssh_command,
        package_venv=view.config.package_venv,
        utilization=view.utilization,
        unread=view.unread,
        notes=view.notes,
        rebooted_at=view.rebooted_at,
    )
