"""What one types over SSH to see whether a package is there: find_spec by the environment's own interpreter.

It imports the package's parents, so it may take seconds, print, raise, hang, or end the interpreter; each of
these is an answer. Nothing is written into the environment.
"""

from __future__ import annotations

import os
import signal

from ..redact import redact_text
from .ground import leaf
from .program import Ended, run

__all__ = ["Reply", "ask", "describe", "home", "innermost", "proof"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

WHERE = signal.SIGUSR2
"""Asks an import that hangs for its stack."""

# As short a script as one types: before the first find_spec it imports nothing that a file in the working
# directory could stand in for. Answers are tuples of literals, a line each.
SCRIPT = r"""
import sys
if FIRST is not None and sys.path[:1] == [""]:
    sys.path[0] = FIRST
import importlib.util, os, faulthandler
def say(*words):
    data = (ascii(words) + "\n").encode()
    while data:
        data = data[os.write(3, data):]
def origin(name):
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    return spec.origin if spec.has_location else list(spec.submodule_search_locations or [])
def is_missing(error, name):
    gone = getattr(error, "name", None)
    if not isinstance(error, ModuleNotFoundError) or not gone or not (name + ".").startswith(gone + "."):
        return False
    above = gone.rpartition(".")[0]
    return not above or above in sys.modules
def words(error):
    try:
        return type(error).__name__, str(error)[:4000]
    except Exception:
        return type(error).__name__, ""
def told(error):
    try:
        import traceback
        return traceback.format_exception(type(error), error, error.__traceback__)[-40:]
    except Exception:
        return []
def look(package, modules):
    say("path", sys.version.split()[0], sys.executable, list(sys.path))
    try:
        say("package", origin(package))
    except BaseException as error:
        say("raised", package, *words(error), told(error))
        return
    found = []
    for alternatives in modules:
        there = (alternatives[0], None)
        for name in alternatives:
            try:
                where = origin(name)
            except BaseException as error:
                if not is_missing(error, name):
                    say("raised", name, *words(error), told(error))
                    return
                where = None
            there = (name, where) if where is not None and there[1] is None else there
            if isinstance(where, str):
                there = (name, where)
                found.append(there)
                break
        say("module", *there)
    for name, where in found:
        if where.endswith(".py"):
            try:
                with open(where, "rb") as file:
                    compile(file.read(), where, "exec", 0, True)
            except Exception as error:
                say("broken", name, *words(error), told(error)[-4:])
faulthandler.enable(3)
faulthandler.register(SIGNAL, 3, True, False)
look(PACKAGE, MODULES)
say("end")
for stream in (sys.stdout, sys.stderr):
    try:
        stream.flush()
    except Exception:
        pass
os._exit(0)
"""


class Reply:
    """What the interpreter said of the package and of each module."""

    def __init__(self, ended: Ended) -> None:
        self.ended = ended
        self.version = ""
        self.executable = ""
        self.search_path: list[str] = []
        self.has_begun = False
        """Whether the interpreter came as far as running a script."""
        self.is_whole = False
        self.package: str | list[str] | None = None
        """Its origin; of a namespace package its folders; None without one."""
        self.modules: dict[str, str | list[str] | None] = {}
        """By the alternative that is there, else by the first one."""
        self.raised: tuple[str, str, str, list[str]] | None = None
        """Module asked for, type and text of the exception, traceback."""
        self.broken: list[tuple[str, str, str, list[str]]] = []
        """Modules that are there and do not compile, in the same words."""
        self.stack: list[str] = []
        """Where the interpreter was when it hung or crashed, innermost call first."""

    @property
    def missing(self) -> list[str]:
        """The modules that were not found."""
        return [name for name, origin in self.modules.items() if origin is None]


def ask(
    python: str,
    package: str,
    modules: list[list[str]],
    limit: float,
    env: dict[str, str],
    prepare: Callable[[], None],
    options: list[str] | None = None,
    first: str | None = None,
) -> Reply:
    """Ask an interpreter where a package and its modules come from; blocks for at most about `limit` seconds.

    `options` are the interpreter's; `first` is a folder that stands in the place of the working directory on the
    search path, as a script's does. GPUs are as visible as to one who types it: to hide them may take the import
    another way than the service's, and the import makes no CUDA context.
    """
    script = f"SIGNAL, PACKAGE, MODULES, FIRST = {int(WHERE)}, {package!a}, {modules!a}, {first!a}" + SCRIPT
    env = {**env, "PYTHONDONTWRITEBYTECODE": "1"}
    reply = Reply(run([python, *(options or []), "-"], script.encode("ascii"), limit, env, prepare, WHERE))
    for line in reply.ended.answers.decode("utf-8", "replace").split("\n"):
        if line.startswith("("):
            _take(reply, line)
        elif line.strip():
            reply.stack.append(line.rstrip())
    return reply


def _take(reply: Reply, line: str) -> None:
    import ast  # dear to import, so only in the child

    try:
        kind, *words = ast.literal_eval(line)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return
    if kind == "path":
        reply.has_begun = True
        reply.version, reply.executable, reply.search_path = words
    elif kind == "package":
        (reply.package,) = words
    elif kind == "module":
        reply.modules[words[0]] = words[1]
    elif kind == "raised":
        reply.raised = (words[0], words[1], words[2], words[3])
    elif kind == "broken":
        reply.broken.append((words[0], words[1], words[2], words[3]))
    elif kind == "end":
        reply.is_whole = True


def innermost(stack: list[str]) -> str:
    """The innermost call of faulthandler's text, such as `line 12 in wait (/venv/x.py)`; empty without one.

    Other threads come first in it, the one that imports last and as the longest.
    """
    threads: list[list[str]] = []
    for line in stack:
        if line.endswith(":") and "most recent call first" in line:
            threads.append([])
        elif line.startswith("  File ") and threads:
            threads[-1].append(line.strip())
    frames = max(threads, key=len, default=[])
    return frames[0][len("File ") :] if frames else ""


def describe(reply: Reply, package: str, limit: float) -> tuple[str, str]:
    """State and line of an import that did not come to its end; two empty texts when it did."""
    ended = reply.ended
    if ended.problem:
        return "fail", f"the interpreter can't be started: {ended.problem}"
    if ended.status is None:
        place = innermost(reply.stack)
        return "unknown", f"no answer within {limit:g} s: the import hangs" + (
            f" in {place}" if place else ""
        )
    if not reply.has_begun:
        lines = ended.output.decode("utf-8", "replace").strip().split("\n")
        return "fail", f"the interpreter does not start ({_how(ended.status)}): {lines[-1]}"
    if reply.raised is not None:
        _, kind, text, _ = reply.raised
        words = f"{kind}: {' '.join(text.split())}" if text else kind
        return "fail", f"{package} itself does not import: {words}"
    if not reply.is_whole:
        return "fail", f"{package} itself does not import: the import ended Python, {_how(ended.status)}"
    return "", ""


def _how(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def proof(reply: Reply, where: str) -> list[str]:
    """Everything that was said, line by line."""
    lines = [f"{reply.executable or 'python'} - in {where}, {reply.ended.seconds:.1f} s"]
    if reply.package is not None:
        lines.append(f"package: {reply.package if isinstance(reply.package, str) else 'namespace'}")
    for name, origin in reply.modules.items():
        lines.append(
            f"{leaf(name)}: {origin if isinstance(origin, str) else 'namespace' if origin else 'None'}"
        )
    for what in [*([reply.raised] if reply.raised else []), *reply.broken]:
        lines += [part for text in what[3] for part in text.rstrip().split("\n")]
    if reply.stack:
        lines += ["where it was:", *reply.stack[:40]]
    output = reply.ended.output.decode("utf-8", "replace").strip()
    if output:
        lines += ["it printed:", *map(redact_text, output.split("\n")[-60:])]
    return lines


def home() -> str:
    """Where a login lands."""
    folder = os.path.expanduser("~")
    return folder if os.path.isdir(folder) else "/"
