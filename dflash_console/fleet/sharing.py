"""GPUs that two hosts show: a hypervisor and its container see the same cards, by UUID."""

from __future__ import annotations

from dflash_console.model import GpuReport

__all__ = ["Sharing", "uuids_in"]


def uuids_in(report: GpuReport) -> frozenset[str]:
    """The UUIDs that a report tells."""
    return frozenset(gpu.uuid for gpu in report.gpus if isinstance(gpu.uuid, str))


class Sharing:
    """Which hosts show which card. Names keep the order in which the hosts were given."""

    def __init__(self, names: list[str]) -> None:
        self._rank = {name: rank for rank, name in enumerate(names)}
        self._of_host: dict[str, frozenset[str]] = {}
        self._hosts: dict[str, list[str]] = {}

    def show(self, name: str, uuids: frozenset[str]) -> set[str]:
        """Notes that a host shows these cards, and gives back the hosts whose `others` changed by it."""
        before = self._of_host.get(name, frozenset())
        if uuids == before:
            return set()
        self._of_host[name] = uuids
        touched: set[str] = set()
        for uuid in uuids ^ before:
            hosts = self._hosts.setdefault(uuid, [])
            if uuid in before:
                hosts.remove(name)
            if hosts:
                touched.update(hosts, [name])
            if uuid in uuids:
                hosts.append(name)
                hosts.sort(key=self._rank.__getitem__)
            if not hosts:
                del self._hosts[uuid]
        return touched

    def others(self, name: str) -> dict[str, tuple[str, ...]]:
        """UUID to the other hosts that show the card, for those cards of a host that another host shows."""
        return {
            uuid: tuple(host for host in self._hosts[uuid] if host != name)
            for uuid in sorted(self._of_host.get(name, frozenset()))
            if len(self._hosts[uuid]) > 1
        }
