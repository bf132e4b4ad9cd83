"""pyinfra, the peer for questions that are asked of many hosts: in an environment of its own in the tests' cache."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.hosts.commands import sh
from tests.hosts.fleet import Fleet
from tests.wheels import cache

__all__ = ["VERSION", "ask_by_pyinfra"]

VERSION = "3.10.0"
LIMIT = 300.0


def ask_by_pyinfra(fleet: Fleet, hosts: Mapping[str, str], command: str) -> float:
    """Seconds that one run of a shell command takes on all hosts, given as names and what they are called in the
    fleet's ssh_config. Raises RuntimeError when it fails on one."""
    program = _program()
    data = {
        "ssh_config_file": str(fleet.ssh_config),
        "ssh_known_hosts_file": str(fleet.slot.folder / "known_hosts"),
        "ssh_strict_host_key_checking": "yes",
        # sshd turns some of many connections at once away; the console tries again as well.
        "ssh_connect_retries": 8,
    }
    rows = [(name, {**data, "ssh_hostname": alias}) for name, alias in hosts.items()]
    with tempfile.TemporaryDirectory() as folder:
        inventory = Path(folder) / "inventory.py"
        inventory.write_text(f"hosts = {rows!r}\n")
        began = time.perf_counter()
        sh(program, "-y", inventory, "exec", "--", command, timeout=LIMIT)
        return time.perf_counter() - began


def _program() -> Path:
    program = cache() / f"pyinfra-{VERSION}" / "bin" / "pyinfra"
    if not program.exists():
        # In its place at once: its programs name the folder that they were made in.
        folder = program.parents[1]
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, timeout=300)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", f"pyinfra=={VERSION}"]
        subprocess.run(pip, check=True, timeout=600)
    return program
