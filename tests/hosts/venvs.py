"""Virtual environments on hosts, made by the host's own Python, with sglang trees from real wheels.

What weighs gigabytes is not copied: each host sees the tests' cache in a folder of its own, and may not change it.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest

from tests.hosts.commands import sh
from tests.hosts.host import Host
from tests.importable import importable
from tests.wheels import cache

__all__ = ["lay_venv", "lay_wheel", "python_minor", "reach_needs", "share_cache", "shared", "site_packages"]

SHARED = "/usr/local/share/dflash-test-cache"


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


def share_cache(host: Host) -> None:
    """Shows a host that is not booted yet the tests' cache, also what comes into it later."""
    cache().mkdir(parents=True, exist_ok=True)
    target = host.root / SHARED.lstrip("/")
    target.mkdir(parents=True)
    sh("mount", "--bind", "-o", "ro", cache(), target)


def shared(path: Path) -> str:
    """A path of the tests' cache, as hosts see it."""
    return f"{SHARED}/{path.relative_to(cache())}"


def reach_needs(host: Host, venv: str) -> None:
    """Lets a venv of a host import what sglang needs. Skips where there are no such wheels for the hosts' Python."""
    ours = "{}.{}".format(*sys.version_info[:2])
    if python_minor() != ours:
        pytest.skip(f"what sglang needs is laid for Python {ours}, the hosts' is {python_minor()}")
    line = host.root / site_packages(venv).lstrip("/") / "what-sglang-needs.pth"
    line.write_text(f"{shared(importable())}\n")
