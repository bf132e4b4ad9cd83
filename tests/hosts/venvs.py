"""Virtual environments on hosts, made by the host's own Python, with sglang trees from real wheels."""

from __future__ import annotations

import functools
from pathlib import Path

from tests.hosts.commands import sh
from tests.hosts.host import Host

__all__ = ["lay_venv", "lay_wheel", "python_minor", "site_packages"]


@functools.cache
def python_minor() -> str:
    """The minor version of Debian's own Python, such as `3.11`."""
    return sh("/usr/bin/python3", "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()


def site_packages(venv: str) -> str:
    """The folder of a venv where packages live, as a path on the host."""
    return f"{venv}/lib/python{python_minor()}/site-packages"


def lay_venv(host: Host, venv: str) -> str:
    """Makes an empty venv on a host, running or not; gives back its site-packages as a path on the host."""
    sh("chroot", host.root, "/usr/bin/python3", "-I", "-m", "venv", "--without-pip", venv)
    return site_packages(venv)


def lay_wheel(host: Host, venv: str, unpacked: Path) -> None:
    """Copies an unpacked wheel (package and dist-info) into a venv of a host."""
    target = host.root / site_packages(venv).lstrip("/")
    for part in sorted(unpacked.iterdir()):
        if part.is_dir():
            sh("cp", "--archive", "--reflink=auto", part, target)
