"""A real OpenSSH server on loopback ports, with host keys and a config of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.link.accounts import Accounts

__all__ = ["SSHD", "Sshd", "free_ports", "keygen", "ssh_keygen"]

SSHD = shutil.which("sshd", path=f"/usr/sbin:/sbin:{os.environ.get('PATH', '')}")
START_TIMEOUT = 20.0


def _with_children(pid: int) -> list[int]:
    """An sshd and those below it that serve a connection; they lead sessions of their own."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, rest = stat.read_text().rsplit(")", 1)
            if "(sshd" in name:
                parents[int(stat.parent.name)] = int(rest.split()[1])
    found = [pid]
    for parent in found:
        found += [child for child, its_parent in parents.items() if its_parent == parent]
    return found


def keygen(path: Path, kind: str = "ed25519", *, passphrase: str = "", extra: Sequence[str] = ()) -> Path:
    """A key pair made by ssh-keygen; the private half's path."""
    bits = ["-b", "2048"] if kind == "rsa" else []
    ssh_keygen("-q", "-t", kind, *bits, "-N", passphrase, "-C", path.name, "-f", str(path), *extra)
    return path


def ssh_keygen(*arguments: str) -> None:
    """Runs ssh-keygen, which must succeed and asks nothing."""
    subprocess.run(["ssh-keygen", *arguments], check=True, stdin=subprocess.DEVNULL, capture_output=True)


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """TCP ports that nobody listens on right now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sockets = [socket.socket(family) for _ in range(count)]
    try:
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Sshd:
    """Listens on `ports`; several ports stand for several hosts. `log` holds what it wrote.

    Of `accounts` it knows those, and asks PAM about them.
    """

    def __init__(
        self,
        folder: Path,
        host_keys: Sequence[Path],
        authorized: Path,
        *,
        ports: int = 1,
        lines: Sequence[str] = (),
        address: str = "127.0.0.1",
        accounts: Accounts | None = None,
    ) -> None:
        assert SSHD is not None
        folder.mkdir(exist_ok=True)
        self.ports = free_ports(ports, address)
        self.port = self.ports[0]
        self.log: list[str] = []
        shown = f"[{address}]" if ":" in address else address
        config = folder / "sshd_config"
        config.write_text(
            "\n".join(
                [
                    *lines,
                    *(f"ListenAddress {shown}:{port}" for port in self.ports),
                    *(f"HostKey {key}" for key in host_keys),
                    f"AuthorizedKeysFile {authorized}",
                    "PidFile none",
                    "StrictModes no",
                    f"UsePAM {'no' if accounts is None else 'yes'}",
                    "PasswordAuthentication no",
                    "KbdInteractiveAuthentication no",
                    "PermitRootLogin prohibit-password",
                    "LogLevel VERBOSE",
                    "UseDNS no",
                    "",
                ]
            )
        )
        if os.geteuid() == 0:
            # Debian's unit makes it; without it sshd does not start.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self._listening = threading.Event()
        command = [SSHD, "-D", "-e", "-f", str(config)]
        self._process = subprocess.Popen(
            command if accounts is None else accounts.around(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._listening.wait(START_TIMEOUT) or self._process.poll() is not None:
            self.stop()
            raise AssertionError("sshd did not start:\n" + "\n".join(self.log))

    def _read(self) -> None:
        assert self._process.stderr is not None
        heard = 0
        for line in self._process.stderr:
            self.log.append(line.decode("utf-8", "replace").rstrip())
            heard += "Server listening" in self.log[-1]
            if heard == len(self.ports):
                self._listening.set()
        self._listening.set()

    @property
    def user(self) -> str:
        """Who may log in."""
        return getpass.getuser()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the listener and to all that serve a connection."""
        for pid in _with_children(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        """Ends it with all its connections."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        if self._process.stderr is not None:
            self._process.stderr.close()
