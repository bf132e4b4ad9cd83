"""An operator's machine in a folder (ssh config, keys, known_hosts, agent), and hosts that let its key in."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from dflash_console.config import HostConfig
from dflash_console.errors import LinkError
from dflash_console.link import connect
from tests.link.accounts import Accounts
from tests.link.sshd import Sshd, keygen, ssh_keygen

__all__ = ["HostKeys", "World"]

PATIENCE = 8.0


class HostKeys:
    """Host keys, made once for all tests: RSA takes a while."""

    def __init__(self, folder: Path) -> None:
        self.ed25519 = keygen(folder / "host_ed25519")
        self.rsa = keygen(folder / "host_rsa", "rsa")
        self.other = keygen(folder / "host_other")
        self.authority = keygen(folder / "authority")


class World:
    """Where a test lays out a config and then asks both: does `ssh HOST` work, does ours?"""

    def __init__(self, folder: Path, host_keys: HostKeys) -> None:
        self.folder = folder
        self.host_keys = host_keys
        self.key = keygen(folder / "id_user")
        self.authorized = folder / "authorized_keys"
        self.authorized.write_bytes(self._public(self.key))
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.touch()
        self.config = folder / "config"
        self.servers: list[Sshd] = []
        self._agents: list[int] = []

    def close(self) -> None:
        for server in self.servers:
            server.stop()
        for pid in self._agents:
            os.kill(pid, signal.SIGTERM)

    # ---- the hosts

    def sshd(
        self,
        *,
        keys: Sequence[Path] | None = None,
        ports: int = 1,
        lines: Sequence[str] = (),
        address: str = "127.0.0.1",
        accounts: Accounts | None = None,
    ) -> Sshd:
        """A server that lets the operator's key in; not in known_hosts yet."""
        server = Sshd(
            self.folder / f"sshd{len(self.servers)}",
            keys if keys is not None else [self.host_keys.ed25519],
            self.authorized,
            ports=ports,
            lines=lines,
            address=address,
            accounts=accounts,
        )
        self.servers.append(server)
        return server

    # ---- the operator's files

    def know(self, name: str, key: Path, *, marker: str = "", file: Path | None = None) -> Path:
        """Adds a line to a known_hosts file."""
        kind, text = self._public(key).split()[:2]
        target = file or self.known_hosts
        line = b" ".join(filter(None, [marker.encode(), name.encode(), kind, text])) + b"\n"
        with target.open("ab") as stream:
            stream.write(line)
        return target

    def know_server(self, server: Sshd, key: Path | None = None, host: str = "127.0.0.1") -> None:
        """Knows every port of the server by its key."""
        for port in server.ports:
            self.know(f"[{host}]:{port}", key or self.host_keys.ed25519)

    def write_config(self, text: str, *, identity: bool = True) -> None:
        """An ssh config that ends with the folder's own files, so that nothing of the account is read."""
        defaults = [
            "Host *",
            f"  UserKnownHostsFile {self.known_hosts}",
            "  GlobalKnownHostsFile /dev/null",
            f"  IdentityFile {self.key if identity else 'none'}",
            "  IdentityAgent none",
            "  LogLevel ERROR",
            "",
        ]
        self.config.write_text(text + "\n" + "\n".join(defaults))

    def agent(self, *keys: Path) -> Path:
        """An ssh-agent that holds the keys; its socket."""
        path = self.folder / f"agent{len(self._agents)}"
        done = subprocess.run(
            ["ssh-agent", "-s", "-a", str(path)], capture_output=True, text=True, check=True
        )
        self._agents.append(int(done.stdout.split("SSH_AGENT_PID=")[1].split(";")[0]))
        for key in keys:
            subprocess.run(
                ["ssh-add", "-q", str(key)],
                env={**os.environ, "SSH_AUTH_SOCK": str(path)},
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
        return path

    def sign_user(self, key: Path, *, options: Sequence[str] = ()) -> Path:
        """A user certificate for the key, by the authority; its path."""
        return self._sign(key, ["-n", self._user(), *options])

    def sign_host(self, key: Path, name: str, *, options: Sequence[str] = ()) -> Path:
        """A copy of a host key with a certificate beside it; the certificate's path."""
        copy = self.folder / f"certified{len(list(self.folder.glob('certified*')))}"
        copy.write_bytes(key.read_bytes())
        copy.chmod(0o600)
        copy.with_suffix(".pub").write_bytes(self._public(key))
        return self._sign(copy, ["-h", "-n", name, *options])

    def _sign(self, key: Path, options: Sequence[str]) -> Path:
        authority = str(self.host_keys.authority)
        ssh_keygen("-q", "-s", authority, "-I", "test", *options, str(key.with_suffix(".pub")))
        return key.with_name(f"{key.name}-cert.pub")

    # ---- asking both

    async def ssh(self, host: str) -> tuple[bool, str]:
        """Whether `ssh HOST true` works when nobody is there to answer it, and what it said."""
        process = await asyncio.create_subprocess_exec(
            *("ssh", "-F", str(self.config), "-o", "BatchMode=yes", "--", host, "true"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        async with asyncio.timeout(30):
            said, _ = await process.communicate()
        return process.returncode == 0, said.decode("utf-8", "replace")

    async def ours(self, host: str) -> LinkError | None:
        """Why our own connect fails; None when it works."""
        try:
            connection = await connect(HostConfig(host), ssh_config=str(self.config), timeout=PATIENCE)
        except LinkError as error:
            return error
        await connection.close()
        return None

    async def both_work(self, host: str) -> None:
        """Fails unless ssh and ours both get in."""
        works, said = await self.ssh(host)
        failure = await self.ours(host)
        assert (works, failure) == (True, None), f"ssh: {said}\nours: {failure}\n{self._logs()}"

    async def both_fail(self, host: str) -> LinkError:
        """Fails unless neither gets in; our error."""
        works, said = await self.ssh(host)
        failure = await self.ours(host)
        assert not works, f"ssh got in: {said}\nours: {failure}\n{self._logs()}"
        assert failure is not None, f"ours got in; ssh said: {said}"
        return failure

    def _logs(self) -> str:
        return "\n".join(line for server in self.servers for line in server.log)

    @staticmethod
    def _public(key: Path) -> bytes:
        return key.with_name(f"{key.name}.pub").read_bytes()

    def _user(self) -> str:
        return self.servers[0].user if self.servers else os.environ.get("USER", "root")
