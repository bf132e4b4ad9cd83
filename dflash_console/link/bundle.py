"""What starts the agent on a host: a constant line for the login shell, then the agent's source over
stdin."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import threading
import zlib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from dflash_console.errors import AgentFailed
from dflash_console.link.imports import reached

__all__ = ["BOOT_COMMAND", "NO_PYTHON", "READY", "TRYING", "boot_command", "bundle", "sources"]

READY = "dflash-console:ready"
"""The line that the host prints once our own shell reads stdin; whatever is sent sooner, a login shell or its rc
files may take for their own."""
TRYING = "dflash-console:trying"
"""How the line begins that names the interpreter which is started next."""
NO_PYTHON = "dflash-console:no-python"
"""How the one line begins that the host prints when no Python will do; what was found, and why not, follows."""

_CANDIDATES = (
    "python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8"
    " /usr/bin/python3 /usr/local/bin/python3 /usr/libexec/platform-python python"
)


def boot_command(limit: int = 30) -> str:
    """The line that the login shell runs. It prints READY, reads one line and takes the Python that is named there,
    else the first Python 3.8 or newer of the usual names, and has it read `LENGTH\\n` and as many bytes of source
    from stdin. What still runs of it after `limit` seconds is killed, unless it is the agent's loop.
    """
    # No backslash, newline or single quote inside, and no `!` but before a blank: csh and fish would read them.
    # The quotes in READY keep it out of whatever shows the line itself (a forced command, `set -x`). `$e` is the
    # interpreter behind a pyenv or asdf shim, which costs 100 ms for each start; a wrapper that sets something
    # Python needs stays in use. 38 is what no other program ends with when it is given these words. Python 2
    # knows no -I.
    return (
        "exec /bin/sh -c '"
        f"{_guard(limit)}"
        f'echo {READY[:8]}""{READY[8:]}; IFS= read -r p || exit; '
        f'f=; if test -n "$p"; then set -- "$p"; else set -- {_CANDIDATES}; fi; '
        "for q do "
        'c=$(command -v "$q") && test -n "$c" || { test -z "$p" || f=" $q (no such program)"; continue; }; '
        f'echo {TRYING} "$q"; '
        'e=$("$q" -E -s -S -c '
        '"import sys;sys.stdout.write(sys.executable or str());sys.exit(38*(sys.version_info>=(3,8)))"'
        " </dev/null); "
        'if test $? -ne 38; then v=$("$q" -V </dev/null 2>&1); f="$f $q (${v:-not Python}),"; continue; fi; '
        'if test "$e" = "$c" || "$e" -I -S -c "import zlib" </dev/null >/dev/null 2>&1; then q=$e; fi; '
        'exec "$q" -I -S -B -u -X utf8 -c '
        '"import sys;exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))" $w; '
        "done; "
        f"set -f; echo {NO_PYTHON} ${{f:-nothing found}}; exit 127"
        "'"
    )


def _guard(limit: int) -> str:
    """Starts a child of the shell, `$w`, that kills the boot when its time is over; the agent ends it in time.

    It ends by itself, within a second, when the shell, or the Python that took its place, is gone: the 4th word of
    /proc/self/stat is the parent (proc_pid_stat(5)). So nothing is killed that has got an old number since. The
    whole process group is killed only if the shell leads it, as it does under sshd; else it could be the server's
    own, and the children have to do. No file of the channel is held open.
    """
    return (
        "{ PATH=$PATH:/usr/bin:/bin; i=0; "
        'while sleep 1 && read m x x q x </proc/self/stat && test "$q" = $$; do i=$((i+1)); '
        f"test $i -lt {limit} || kill -9 -$$ || {{ "
        "for c in $(cat /proc/$$/task/$$/children); do test $c = $m || kill -9 $c; done; kill -9 $$; }; "
        "done; } </dev/null >/dev/null 2>&1 & w=$! ; "
    )


BOOT_COMMAND = boot_command()


def bundle(token: str, *, heartbeat: float = 30.0, errand: str = "") -> bytes:
    """The agent's boot source: it prints `token` on a line of its own and then speaks frames.

    It watches the host, or with the errand `copy` does what a copy asks. The agent ends when it has heard nothing for
    `heartbeat` seconds. Raises AgentFailed when `pynvml` is not
    there to be shipped, ValueError for a token that is not letters and digits.
    """
    if not re.fullmatch(r"[A-Za-z0-9]{8,64}", token):
        raise ValueError(f"not a token: {token!r}")
    # Many hosts are connected to at once, each from a thread of its own: the first one packs for all.
    with _packing:
        start, modules = _shipment(errand)
    options: dict[str, object] = {"heartbeat": float(heartbeat), **({"errand": errand} if errand else {})}
    return start + f'start("{token}", {json.dumps(options)}, '.encode() + modules


_packing = threading.Lock()


_COPY = "dflash_agent.copy."


@functools.cache
def _shipment(errand: str) -> tuple[bytes, bytes]:
    """The boot module's text, and the modules as the last argument of its `start`."""
    agent = resources.files("dflash_console.agent")
    # PEP 263: as Latin-1, compressed bytes fit into a string literal with a fortieth of them escaped.
    boot = b"# -*- coding: latin-1 -*-\n" + (agent / "boot.py").read_bytes()
    modules = dict(sources(agent, "dflash_agent"))
    del modules["dflash_agent.boot"]
    if errand == "copy":
        # Beside the loop, which imports its sections and jobs when it is asked to, and a copy never asks.
        starts = ("dflash_agent.main", f"{_COPY}serve")
        needed = reached(modules, starts, lambda name: name.startswith(_COPY))
    else:
        needed = {name for name in modules if not name.startswith(_COPY)} | {"pynvml"}
        modules["pynvml"] = _pynvml().read_bytes()
    items = (
        f'"{name}": "'.encode() + _literal(zlib.compress(text, 9)) + b'",\n'
        for name, text in modules.items()
        if name in needed
    )
    return boot, b"{\n" + b"".join(items) + b"})\n"


def sources(folder: Traversable, package: str) -> list[tuple[str, bytes]]:
    """The Python files of a package by full module name; a package's own name ends with a dot."""
    found: list[tuple[str, bytes]] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name == "__init__.py":
            found.append((package + ".", entry.read_bytes()))
        elif entry.name.endswith(".py"):
            found.append((f"{package}.{entry.name[:-3]}", entry.read_bytes()))
        elif entry.is_dir() and (entry / "__init__.py").is_file():
            found += sources(entry, f"{package}.{entry.name}")
    return found


def _pynvml() -> Path:
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise AgentFailed(
            "The pynvml module is not installed beside the console: install nvidia-ml-py again."
        )
    return Path(spec.origin)


def _literal(data: bytes) -> bytes:
    """Bytes as they stand inside a double-quoted string of Latin-1 source."""
    for byte, escaped in (
        (b"\\", b"\\\\"),
        (b'"', b'\\"'),
        (b"\0", b"\\x00"),
        (b"\n", b"\\n"),
        (b"\r", b"\\r"),
    ):
        data = data.replace(byte, escaped)
    return data
