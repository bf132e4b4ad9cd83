"""What a host's root holds when it boots for the first time: a plain server with systemd, journald, OpenSSH.

The root is a throw-away overlay of this machine's own, so Debian's real units and programs are there; what is
laid here only makes it a host of its own (name, network, keys) and hides what is personal to this machine.
"""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path

__all__ = ["hide", "lay_system", "mount_root", "put"]

from tests.hosts.commands import sh

KEEP_IN_HOME = {".pyenv"}
"""Interpreters of other versions, for the hosts that need an old one."""

TARGET = """\
[Unit]
Description=A test host
Requires=basic.target
After=basic.target
Wants=host-network.service ssh.service systemd-journald.service dbus.service systemd-logind.service
AllowIsolate=yes
"""

NETWORK = """\
[Unit]
Description=The network of a test host
DefaultDependencies=no
Before=network.target ssh.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'ip link set lo up; ip addr add {address}/24 dev host0; ip link set host0 up'
"""

SSHD_CONFIG = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM yes
PrintMotd no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""

SSH_DROP_IN = """\
[Unit]
StartLimitIntervalSec=0
[Service]
Restart=always
RestartSec=200ms
"""


def mount_root(home: Path) -> Path:
    """Mounts an overlay of this machine's root, kept in memory; gives back its folder."""
    memory, root = home / "memory", home / "root"
    for folder in (memory, root):
        folder.mkdir(parents=True)
    sh("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", memory)
    upper, work = memory / "upper", memory / "work"
    upper.mkdir()
    work.mkdir()
    for entry in Path("/root").iterdir():
        if entry.name not in KEEP_IN_HOME:
            hide(upper, f"/root/{entry.name}")
    (upper / "root").chmod(0o700)
    sh("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", root)
    return root


def hide(upper: Path, path: str) -> None:
    """Makes a path of this machine absent on the host; only before its root is mounted."""
    target = upper / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    # A character device 0:0 in the upper layer is overlayfs' mark for "not there".
    os.mknod(target, stat.S_IFCHR | 0o600, 0)


def put(root: Path, path: str, content: str | bytes, mode: int = 0o644) -> None:
    """Writes a file as the host will see it, replacing what is there (a symbolic link too)."""
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.write_bytes(content if isinstance(content, bytes) else content.encode())
    target.chmod(mode)


def lay_system(root: Path, name: str, address: str, public_key: str) -> None:
    """Writes the identity, the units and the OpenSSH settings of a host into its root."""
    put(root, "/etc/machine-id", f"{uuid.uuid5(uuid.NAMESPACE_DNS, name).hex}\n")
    put(root, "/etc/hostname", f"{name}\n")
    put(root, "/etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
    put(root, "/root/.bashrc", "# plain\n")
    put(root, "/root/.profile", "# plain\n")
    put(root, "/root/.ssh/authorized_keys", public_key, 0o600)
    (root / "root/.ssh").chmod(0o700)
    put(root, "/etc/ssh/sshd_config", SSHD_CONFIG)
    put(root, "/etc/systemd/system/test-host.target", TARGET)
    put(root, "/etc/systemd/system/host-network.service", NETWORK.format(address=address))
    put(root, "/etc/systemd/system/ssh.service.d/test-host.conf", SSH_DROP_IN)
    put(root, "/etc/environment", "")
    # The user manager stays, so that a login neither starts nor ends one; with it `systemctl --user` answers.
    put(root, "/var/lib/systemd/linger/root", "")
    for unit in ("timers.target", "systemd-timesyncd.service", "systemd-networkd.service", "docker.socket"):
        (root / "etc/systemd/system" / unit).unlink(missing_ok=True)
        (root / "etc/systemd/system" / unit).symlink_to("/dev/null")
