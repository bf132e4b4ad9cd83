"""Accounts for a real sshd with PAM, which nobody else on this machine sees: a mount namespace with an /etc/passwd,
an /etc/shadow and PAM rules of its own."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Accounts", "can_have_accounts"]

RULES = (
    "auth required pam_deny.so\naccount required pam_nologin.so\naccount required pam_unix.so\n"
    "session required pam_permit.so\n"
)
LATER = 30_000
"""Days after 1970, as /etc/shadow counts."""


@functools.cache
def can_have_accounts() -> bool:
    """Whether this machine and this account can make such a namespace, and sshd knows PAM."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or not Path("/etc/pam.d/sshd").exists():
        return False
    probe = ["unshare", "--mount", "mount", "--bind", "/etc/passwd", "/etc/passwd"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


class Accounts:
    """Files that take the place of those in /etc."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._files: dict[str, Path] = {}
        self._put("/etc/passwd", Path("/etc/passwd").read_text())
        self._put("/etc/shadow", "")
        self._put("/etc/pam.d/sshd", RULES)

    def add(self, name: str, *, shell: str = "/bin/sh", shadow: Mapping[str, int] | None = None) -> None:
        """An account. Of `shadow`: `changed` is the day of the last password, `most` its most days, `end` the day
        on which the account expires."""
        uid = 60_000 + len(self._files["/etc/shadow"].read_text().splitlines())
        aging = {"changed": LATER, "most": 99_999, **(shadow or {})}
        home = self._folder.parent
        with self._files["/etc/passwd"].open("a") as passwd:
            passwd.write(f"{name}:x:{uid}:{uid}::{home}:{shell}\n")
        with self._files["/etc/shadow"].open("a") as shadow_file:
            shadow_file.write(f"{name}:*:{aging['changed']}:0:{aging['most']}:7::{aging.get('end', '')}:\n")

    def close_for_all_but_root(self, notice: str) -> None:
        """As an /etc/nologin does."""
        file = self._folder / "nologin"
        file.write_text(notice)
        self._put("/etc/pam.d/sshd", RULES.replace("pam_nologin.so", f"pam_nologin.so file={file}"))

    def around(self, command: list[str]) -> list[str]:
        """The command that runs another one among these accounts."""
        mounts = " && ".join(f'mount --bind "{file}" "{place}"' for place, file in self._files.items())
        return ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh", *command]

    def _put(self, place: str, text: str) -> None:
        file = self._files[place] = self._folder / place.replace("/", "_")
        file.write_text(text)
        file.chmod(0o644)
