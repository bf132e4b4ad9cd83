"""Login shells and what people have in their rc files, for tests that boot an agent behind them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["LOGIN_SHELLS", "Login", "login_shell", "marked"]

LOGIN_SHELLS = ("bash", "csh", "dash", "fish", "ksh", "tcsh", "zsh")

_RC_FILE = {
    "bash": ".bash_profile",
    "csh": ".cshrc",
    "dash": ".profile",
    "fish": ".config/fish/config.fish",
    "ksh": ".profile",
    "tcsh": ".tcshrc",
    "zsh": ".zshenv",
}
_TRAPS = {
    "bash": "alias exec=false; set -u\n",
    "csh": "set histchars='!^'\n",
    "fish": "alias command=false\n",
    "tcsh": "set histchars='!^'\n",
    "zsh": "setopt NO_NOMATCH NOCLOBBER\n",
}
"""Settings that make a shell read a line in another way."""
_CSH = {
    "noisy": "echo Welcome to the machine\nsh -c 'echo oops >&2'\n",
    "asks": "echo -n 'Continue? '\nset answer = $<\n",
    "background": "sleep 3 &\nsh -c 'while sleep 0.1; do echo tick >&2; done' &\n",
    "prints for ever": "sh -c 'while sleep 0.02; do echo tick; done' &\n",
}
_FISH = {
    "asks": "read answer\n",
    "background": "sleep 3 &\nsh -c 'while sleep 0.1; do echo tick >&2; done' &\n",
    "prints for ever": "sh -c 'while sleep 0.02; do echo tick; done' &\n",
}
_ALL = {
    "noisy": "printf 'Welcome to the machine'; echo; echo '!!! `quota` exceeded' $HOME; echo oops >&2\n",
    "another shell": "exec sh\n",
    "another shell inside": "sh\n",
    "asks": "printf 'Continue? '; read answer\n",
    "takes a piece of stdin": "head -c 100 >/dev/null\n",
    "takes all of stdin": "cat >/dev/null\n",
    "hangs": "sleep 1000\n",
    "slow": "sleep 1\n",
    "background": "sleep 3 &\n(while sleep 0.1; do echo tick >&2; done) &\n",
    "prints for ever": "(while sleep 0.02; do echo tick; done) &\n",
}


@dataclass(frozen=True)
class Login:
    """A shell that takes a line as its last argument, as sshd starts it."""

    command: list[str]
    env: dict[str, str]
    """What it needs to find its rc files."""


def login_shell(name: str, home: Path, habit: str) -> Login:
    """The shell with an rc file that has the habit, in a home of its own. Skips when it is not installed."""
    shell = shutil.which(name)
    if shell is None:
        pytest.skip(f"{name} is not installed")
    texts = {**_ALL, **({"fish": _FISH, "csh": _CSH, "tcsh": _CSH}.get(name, {}))}
    rc_file = home / _RC_FILE[name]
    rc_file.parent.mkdir(parents=True, exist_ok=True)
    rc_file.write_text(texts[habit] + _TRAPS.get(name, ""))
    # csh and tcsh take -l only alone; they read their rc file anyway.
    options = ["-c"] if name in ("csh", "tcsh") else ["-l", "-c"]
    return Login([shell, *options], {"HOME": str(home)})


def marked(mark: str) -> dict[int, str]:
    """The commands of all processes by pid that were started, directly or not, with MARK=`mark` in their
    environment."""
    found: dict[int, str] = {}
    wanted = f"MARK={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    found.pop(os.getpid(), None)
    return found
