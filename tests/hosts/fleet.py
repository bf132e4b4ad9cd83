"""A fleet of real hosts on this machine, for the length of a test run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from tests.hosts.commands import sh
from tests.hosts.host import Host
from tests.hosts.slot import Slot

__all__ = ["Fleet"]

SSH_CONFIG = """\
Host {name}
  HostName {address}
  User root
  IdentityFile {folder}/id_ed25519
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  LogLevel ERROR

"""


class Fleet:
    """Boots hosts by name on entry and takes everything away on exit.

    It has an OpenSSH config, a key and a known_hosts file of its own; two fleets at once do not meet.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._hosts: dict[str, Host] = {}

    def __enter__(self) -> Fleet:
        self.slot = Slot.claim()
        try:
            self._lay()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lay(self) -> None:
        key = self.slot.folder / "id_ed25519"
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test fleet", "-f", key)
        public = key.with_suffix(".pub").read_text()
        for index, name in enumerate(self._names):
            self._hosts[name] = Host(self.slot, index, name, self.ssh_config, public)
        self.ssh_config.write_text(
            "".join(
                SSH_CONFIG.format(name=host.name, address=host.address, folder=self.slot.folder)
                for host in self
            )
        )
        self.trust()

    def boot(self) -> None:
        """Switches all hosts on at once and waits until each lets a login in."""
        for host in self:
            host.start()
        for host in self:
            host.wait_until_up()

    def close(self) -> None:
        """Switches all hosts off and removes every trace of them."""
        for host in self:
            host.close()
        self._hosts.clear()
        self.slot.release()

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    @property
    def ssh_config(self) -> Path:
        """An ssh_config for all hosts, as in `ssh -F FILE`."""
        return self.slot.folder / "ssh_config"

    def trust(self, *, but: Sequence[str] = ()) -> None:
        """Writes known_hosts anew with the keys that the hosts show now, without those named in `but`."""
        lines = [f"{host.address} {host.host_key()}\n" for host in self if host.name not in but]
        (self.slot.folder / "known_hosts").write_text("".join(lines))

    def restore(self) -> None:
        """Undoes every fault on every host, and what known_hosts lost."""
        for host in self:
            host.restore()
        self.trust()
