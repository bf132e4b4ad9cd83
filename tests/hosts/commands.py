"""Commands on this machine, with an error that says what the command said."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

__all__ = ["missing_prerequisites", "sh"]

PACKAGES = {
    "systemd-nspawn": "systemd-container",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "tc": "iproute2",
    "mkfs.ext4": "e2fsprogs",
    "losetup": "mount",
    "nsenter": "util-linux",
    "dbus-daemon": "dbus",
    "cc": "gcc, libc6-dev",
}
"""What a fleet of real hosts needs on this machine, and the Debian package that brings it."""


def sh(*words: object, check: bool = True, timeout: float = 120, env: Mapping[str, str] | None = None) -> str:
    """Runs a command and gives back its stdout; raises RuntimeError with its stderr when it fails."""
    argv = [str(word) for word in words]
    done = subprocess.run(
        argv,
        check=False,
        text=True,
        errors="replace",
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        env=env,
    )
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(argv)[:300]}: exit {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def missing_prerequisites() -> list[str]:
    """What keeps real hosts from being booted here, in words; empty when nothing does."""
    missing = []
    if os.geteuid():
        missing.append("root")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing += [
        f"{command} (Debian package {package})"
        for command, package in PACKAGES.items()
        if not shutil.which(command, path=path)
    ]
    if not missing:
        try:
            sh("unshare", "--mount", "--net", "--pid", "--fork", "true")
        except RuntimeError as error:
            missing.append(f"the right to make namespaces ({error})")
    return missing
