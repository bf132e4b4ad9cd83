"""What is wrong, or worth knowing, on one host: pure rules from a snapshot to findings, worst first.

`find` takes the parts, `findings_of` a view of the fleet. `RULES` is the table of all rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dflash_console.findings import disks, driver, gpus, reach, units, venvs
from dflash_console.findings.picture import Picture, Rule
from dflash_console.model import Finding, Level, LinkStatus, Role, Snapshot

__all__ = ["RULES", "Picture", "Rule", "find", "findings_of"]

RULES: tuple[Rule, ...] = (
    driver.driver_trouble,
    driver.gpus_that_nvml_lacks,
    gpus.broken_gpus,
    units.broken_units,
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
    found = [finding for rule in RULES for finding in rule(picture)]
    return first + sorted(found, key=lambda finding: RANK[finding.level])


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
        ssh=view.ssh_command,
        package_venv=view.config.package_venv,
        utilization=view.utilization,
        unread=view.unread,
        notes=view.notes,
        rebooted_at=view.rebooted_at,
    )
