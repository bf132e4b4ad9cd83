"""One real host: a systemd-nspawn machine with its own network, real systemd, journald, dbus and OpenSSH."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.hosts import cgroup
from tests.hosts.commands import sh
from tests.hosts.layout import lay_system, mount_root, put
from tests.hosts.slot import Slot
from tests.waiting import until_sync

__all__ = ["Host", "HostProcess"]

HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
BOOT_TIMEOUT = 90.0
AGENT_MARK = "exec(sys.stdin.buffer.read("
"""What stands in the command line of an agent and of what it forks."""
OWN_COMMANDS = (
    "/usr/lib/systemd/",
    "/lib/systemd/",
    "/usr/bin/dbus-daemon",
    "sshd: /usr/sbin/sshd",
    "(sd-pam)",
    "(sd-executor)",
)
"""How the commands begin that a host runs of its own."""


@dataclass(frozen=True)
class HostProcess:
    """A process on a host, seen from this machine: the numbers are this machine's."""

    pid: int
    parent: int
    command: str


class Host:
    """A host and the faults that can befall it. Every fault is undone by `restore`."""

    def __init__(self, slot: Slot, index: int, name: str, ssh_config: Path, public_key: str) -> None:
        self.name = name
        self.address = f"{slot.network}.{index + 2}"
        self._machine = f"dfc{slot.number}-{index}"
        self._bridge = slot.bridge
        self._link = f"vb-{self._machine}"
        self._home = slot.folder / name
        self.ssh_config = ssh_config
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._put_away: list[Path] = []
        self._is_cut = self._is_frozen = self._is_touched = self._is_slow = False
        self.root = mount_root(self._home)
        """The host's root folder from outside, without what the host mounts itself (/run, /tmp, /dev)."""
        lay_system(self.root, name, self.address, public_key)
        self._make_host_key()

    # ---- power

    def boot(self) -> None:
        """Switches the host on and waits until it lets a login in."""
        self.start()
        self.wait_until_up()

    def start(self) -> None:
        """Switches the host on without waiting."""
        until_sync(lambda: not self._has_link(), 30, f"the old network of {self.name} is gone")
        with (self._home / "console.log").open("ab") as log:
            machine = f"--machine={self._machine} --hostname={self.name} --directory={self.root} --boot"
            network = f"--network-bridge={self._bridge} --resolv-conf=off"
            rest = "--quiet --keep-unit --register=no --link-journal=no --console=pipe --timezone=off"
            nspawn = f"exec systemd-nspawn {machine} {network} {rest} -- systemd.unit=test-host.target"
            self._nspawn = subprocess.Popen(
                ["/bin/sh", "-c", f"{cgroup.enter(self._machine)} && {nspawn}"],
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_up(self) -> None:
        """Waits until sshd greets and a login runs a command."""
        until_sync(self._greets, BOOT_TIMEOUT, f"{self.name} greets; {self._console_tail()}")
        until_sync(
            lambda: self.ssh("echo in", check=False) == "in\n", BOOT_TIMEOUT, f"{self.name} lets a login in"
        )

    def power_off(self) -> None:
        """Pulls the plug: no process gets to say goodbye, no packet goes out. The disk stays as it is."""
        if self._nspawn is None:
            return
        if self._has_link():
            sh("ip", "link", "set", self._link, "down", check=False)
        until_sync(lambda: cgroup.remove(self._machine), 30, f"no process of {self.name} is left")
        self._nspawn.wait(30)
        self._nspawn = None
        # The kernel keeps the dead host's network while it tries to send what was left in its sockets.
        sh("ip", "link", "del", self._link, check=False)
        self._is_cut = self._is_frozen = self._is_slow = False

    @property
    def is_on(self) -> bool:
        """Whether the host runs."""
        return self._nspawn is not None and self._nspawn.poll() is None

    # ---- being on the host

    def ssh(self, script: str, *, check: bool = True, timeout: float = 60) -> str:
        """Runs a shell script on the host through OpenSSH's own client, as an operator would."""
        options = ["-F", str(self.ssh_config), "-o", "ConnectTimeout=2"]
        return sh("ssh", *options, self.name, script, check=check, timeout=timeout)

    def run(self, script: str, *, check: bool = True, timeout: float = 60) -> str:
        """Runs a shell script as root inside the host, also while its network or sshd is down."""
        namespaces = ["--mount", "--uts", "--ipc", "--net", "--pid"]
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        enter = ["nsenter", f"--target={self._leader()}", *namespaces, "--"]
        return sh(
            *enter, "/bin/sh", "-c", script, check=check, timeout=timeout, env={"PATH": path, "HOME": "/root"}
        )

    def processes(self) -> list[HostProcess]:
        """Every process on the host, kernel-side truth: all members of its process namespace."""
        found = [HostProcess(pid, _parent(pid), _command(pid)) for pid in self._pids()]
        return [process for process in found if process.command]

    def agents(self) -> list[HostProcess]:
        """The console's agents on the host, without the children that they started."""
        ours = [process for process in self.processes() if AGENT_MARK in process.command]
        pids = {process.pid for process in ours}
        return [process for process in ours if process.parent not in pids]

    def guests(self) -> list[str]:
        """The commands of all that came over a link, sshd's sessions included."""
        return sorted(
            process.command for process in self.processes() if not process.command.startswith(OWN_COMMANDS)
        )

    # ---- faults

    def freeze(self) -> None:
        """Stops every process of the host: it hangs, its kernel still answers TCP."""
        self._is_frozen = True
        until_sync(
            lambda: self._signal_running(signal.SIGSTOP), 30, f"every process of {self.name} is stopped"
        )

    def thaw(self) -> None:
        """Lets a frozen host go on."""
        self._is_frozen = False
        for pid in self._pids():
            _send(pid, signal.SIGCONT)

    def cut(self) -> None:
        """Pulls the network cable: packets vanish."""
        self._is_cut = True
        sh("ip", "link", "set", self._link, "down")

    def mend(self) -> None:
        """Plugs the network cable in again."""
        self._is_cut = False
        sh("ip", "link", "set", self._link, "up")

    def slow_down(self, rate: str) -> None:
        """Limits the network both ways, such as to `20mbit`."""
        self._is_slow = True
        shape = f"root tbf rate {rate} burst 64kb latency 200ms"
        sh("tc", "qdisc", "replace", "dev", self._link, *shape.split())
        self.run(f"tc qdisc replace dev host0 {shape}")

    def speed_up(self) -> None:
        """Takes the limit away."""
        self._is_slow = False
        sh("tc", "qdisc", "del", "dev", self._link, "root", check=False)
        self.run("tc qdisc del dev host0 root", check=False)

    @property
    def bytes_in(self) -> int:
        """Bytes that went over the wire to this host since it was switched on, with all their headers."""
        return int(Path(f"/sys/class/net/{self._link}/statistics/tx_bytes").read_text())

    def kill_sshd(self) -> None:
        """Kills every sshd process of the host, listener and sessions; systemd starts the listener again."""
        self._is_touched = True
        for process in self.processes():
            if process.command.startswith("sshd:") or process.command.startswith("/usr/sbin/sshd"):
                _send(process.pid, signal.SIGKILL)

    def stop_sshd(self) -> None:
        """Stops sshd for good and ends its sessions: nobody gets in."""
        self.run("systemctl stop ssh.service")
        self.kill_sshd()

    def start_sshd(self) -> None:
        """Starts sshd again."""
        self.run("systemctl start ssh.service")

    def new_host_key(self) -> None:
        """Gives the host another host key, as a reinstall does. Open sessions go on."""
        for path in (HOST_KEY, f"{HOST_KEY}.pub"):
            self.put_away(path)
        self._make_host_key()
        self.run("systemctl restart ssh.service")

    def host_key(self) -> str:
        """The public host key as a known_hosts line has it: type and base64."""
        return " ".join((self.root / f"{HOST_KEY}.pub".lstrip("/")).read_text().split()[:2])

    def write(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """Writes a file of the host; `restore` brings back what was there."""
        self.put_away(path)
        put(self.root, path, content, mode)

    def put_away(self, path: str) -> None:
        """Takes a file (not a folder) off the host; `restore` brings it back."""
        target = self.root / path.lstrip("/")
        away = target.with_name(f"{target.name}.put-away")
        if target not in self._put_away:
            self._put_away.append(target)
            if target.is_symlink() or target.exists():
                target.rename(away)
        else:
            target.unlink(missing_ok=True)

    def restore(self) -> None:
        """Undoes every fault and every changed file; the host is up afterwards."""
        if self._is_frozen:
            self.thaw()
        if self._is_cut:
            self.mend()
        if self._is_slow:
            self.speed_up()
        if not self.is_on:
            self.power_off()
            self.start()
        if self._put_away or self._is_touched:
            for target in reversed(self._put_away):
                away = target.with_name(f"{target.name}.put-away")
                target.unlink(missing_ok=True)
                if away.is_symlink() or away.exists():
                    away.rename(target)
            self._put_away.clear()
            self._is_touched = False
            until_sync(self._leader, BOOT_TIMEOUT, f"{self.name} has a first process")
            until_sync(self._answers_systemctl, BOOT_TIMEOUT, f"systemd of {self.name} answers")
            self.run("systemctl daemon-reload; systemctl reset-failed; systemctl restart ssh.service")
        if not self._greets():
            self.wait_until_up()

    def close(self) -> None:
        """Switches the host off; its disk goes with the run's folder."""
        self.power_off()

    # ---- inside

    def _make_host_key(self) -> None:
        key = self.root / HOST_KEY.lstrip("/")
        for path in (key, key.with_name(f"{key.name}.pub")):
            path.unlink(missing_ok=True)
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", key)

    def _answers_systemctl(self) -> bool:
        return self.run("systemctl show --property=Version", check=False).startswith("Version=")

    def _has_link(self) -> bool:
        return Path(f"/sys/class/net/{self._link}").exists()

    def _leader(self) -> int | None:
        """The host's first process by this machine's number; None when there is none."""
        if self._nspawn is None:
            return None
        try:
            children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text().split()
        except OSError:
            return None
        return int(children[0]) if children else None

    def _pids(self) -> list[int]:
        leader = self._leader()
        try:
            namespace = os.readlink(f"/proc/{leader}/ns/pid")
        except OSError:
            return []
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if os.readlink(entry / "ns" / "pid") == namespace:
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def _signal_running(self, number: signal.Signals) -> bool:
        """Sends a signal to every process that is not stopped yet; whether there was none."""
        running = [pid for pid in self._pids() if _state(pid) not in "TtZX"]
        for pid in running:
            _send(pid, number)
        return not running

    def _greets(self) -> bool:
        try:
            with socket.create_connection((self.address, 22), timeout=1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def _console_tail(self) -> str:
        log = self._home / "console.log"
        return log.read_text(errors="replace")[-500:] if log.exists() else ""


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        return b" ".join(words).decode(errors="replace") or Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; state X when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["X", "0"]


def _state(pid: int) -> str:
    return _stat(pid)[0]


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
