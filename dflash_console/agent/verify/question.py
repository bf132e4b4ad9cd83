"""What one types over SSH to see whether a package is there: find_spec by the environment's own interpreter.

It imports the package's parents, so it may take seconds, print, raise, hang, or end the interpreter; each of
these is an answer. Nothing is written into the environment.
"""

from __future__ import annotations

import os
import re
import signal

from ..redact import redact_text
from .ground import leaf
from .last_words import telling_line, why_not_started
from .program import Ended, run

__all__ = ["WHERE", "Reply", "ask", "describe", "heard", "home", "innermost", "proof", "script_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

WHERE = signal.SIGUSR2
"""Asks an import that hangs for its stack."""
FRAME = re.compile(r' *File "(.*?)", line (\d+)', re.DOTALL)
UNHEARD = 87
"""The exit status with which the script ends when the import has closed what it would answer on."""

# As short a script as one types: before the first find_spec it imports nothing that a file in the working
# directory could stand in for. Answers are tuples of literals, a line each.
SCRIPT = r"""
import sys
if FIRST is not None and sys.path[:1] == [""]:
    sys.path[0] = FIRST.encode("utf-8", "surrogateescape").decode(sys.getfilesystemencoding(), "surrogateescape")
import importlib.machinery, importlib.util, os, faulthandler
def mark(fd):
    try:
        return os.fstat(fd)[1:3]
    except OSError:
        return None
def spare():
    try:
        return os.dup2(3, 700, False)
    except OSError:
        return os.dup(3)
MARK, SPARE = mark(3), spare()
def say(*words):
    data = (ascii(words) + "\n").encode()
    for fd in (3, SPARE):
        if mark(fd) == MARK:
            break
    else:
        os._exit(UNHEARD)
    while data:
        data = data[os.write(fd, data):]
def origin(name):
    parts = name.split(".")
    for at in range(1, len(parts)):
        parent = ".".join(parts[:at])
        if parent not in sys.modules:
            say("importing", parent)
            importlib.util.find_spec(".".join(parts[:at + 1]))
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
def fault(name, where):
    if where.endswith(".pyc"):
        try:
            with open(where, "rb") as file:
                head = file.read(4)
        except OSError as error:
            return (*words(error), [])
        is_ours = head == importlib.util.MAGIC_NUMBER
        return None if is_ours else ("ValueError", "it is bytecode of another Python, or none", [])
    if not where.endswith(".py"):
        return None
    try:
        with open(where, "rb") as file:
            text = file.read()
        if not text and not where.endswith("/__init__.py"):
            return "Empty", "zero bytes", []
        compile(text, where, "exec", 0, True)
        # As its import does: bytecode that is cut off ends it there.
        importlib.machinery.SourceFileLoader(name, where).get_code(name)
    except Exception as error:
        return (*words(error), told(error)[-4:])
    return None
def ask_module(alternatives):
    good, poor, folder = None, [], None
    for name in alternatives:
        try:
            where = origin(name)
        except BaseException as error:
            if not is_missing(error, name):
                say("raised", name, *words(error), told(error))
                return False
            where = None
        if isinstance(where, str):
            wrong = fault(name, where)
            if wrong:
                poor.append((name, where, *wrong))
            elif good is None:
                good = (name, where)
        elif where is not None and folder is None:
            folder = (name, where)
    if good is not None:
        say("module", *good)
        for item in poor:
            say("spare", *item)
    elif poor:
        say("module", *poor[0][:2])
        say("broken", poor[0][0], *poor[0][2:])
    else:
        say("module", *(folder or (alternatives[0], None)))
    return True
def look(package, modules):
    say("encoding", sys.getfilesystemencoding())
    say("path", sys.version.split()[0], sys.executable, list(sys.path))
    try:
        where = origin(package)
    except BaseException as error:
        say("raised", package, *words(error), told(error))
        return
    say("package", where)
    if not all(map(ask_module, modules)) or package in sys.modules or where is None:
        return
    try:
        __import__(package)
    except BaseException as error:
        say("raised", package, *words(error), told(error))
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
        self.encoding = "utf-8"
        """How the interpreter makes text of the bytes of a path."""
        self.importing = ""
        """The package that is imported on the way to a module; empty while none is."""
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
        """The module that does not import, type and text of the exception, traceback."""
        self.broken: list[tuple[str, str, str, list[str]]] = []
        """Modules of which no alternative serves and one is there: it is empty or does not compile. In the same
        words."""
        self.spare: list[tuple[str, str, str, str]] = []
        """Alternatives that are there and can't serve beside one that does: name, origin, type and text."""
        self.home = ""
        """The PYTHONHOME that it was started with."""
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
    script = script_of(package, modules, first)
    env = {**env, "PYTHONDONTWRITEBYTECODE": "1"}
    return heard(run([python, *(options or []), "-"], script, limit, env, prepare, WHERE), python, env)


def script_of(package: str, modules: list[list[str]], first: str | None) -> bytes:
    """What the interpreter runs; see `ask`."""
    head = f"SIGNAL, UNHEARD, PACKAGE, MODULES, FIRST = {int(WHERE)}, {UNHEARD}, {package!a}, {modules!a}, {first!a}"
    return (head + SCRIPT).encode("ascii")


def heard(ended: Ended, python: str, env: dict[str, str]) -> Reply:
    """What an interpreter that has run the script said."""
    reply = Reply(ended)
    reply.home = env.get("PYTHONHOME", "")
    reply.ended.problem = why_not_started(python, reply.ended.problem)
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
        reply.version, reply.executable, reply.search_path = (_native(reply, word) for word in words)
    elif kind == "encoding":
        (reply.encoding,) = words
    elif kind == "importing":
        (reply.importing,) = words
    elif kind == "package":
        reply.package, reply.importing = _native(reply, words[0]), ""
    elif kind == "module":
        reply.modules[words[0]], reply.importing = _native(reply, words[1]), ""
    elif kind == "raised":
        reply.raised = (reply.importing or words[0], words[1], words[2], words[3])
    elif kind == "broken":
        reply.broken.append((words[0], words[1], words[2], words[3]))
    elif kind == "spare":
        reply.spare.append((words[0], _native(reply, words[1]), words[2], words[3]))
    elif kind == "end":
        reply.is_whole = True


def _native(reply: Reply, value: Any) -> Any:
    """A path, or several, as this process's calls take it: the interpreter's locale may be another one."""
    if isinstance(value, list):
        return [_native(reply, item) for item in value]
    if not isinstance(value, str) or value.isascii():
        return value
    try:
        return os.fsdecode(value.encode(reply.encoding, "surrogateescape"))
    except (LookupError, UnicodeEncodeError):
        return value


def _place(reply: Reply, lines: list[str]) -> str:
    """`FILE:LINE` of the innermost call within the package, by a traceback's text; empty when there is none.

    A SyntaxError names its own file in the same words.
    """
    home = os.path.dirname(reply.package) if isinstance(reply.package, str) else ""
    found = ""
    for line in lines:
        match = FRAME.match(line)
        path = _native(reply, match[1]) if match is not None else ""
        if match is not None and home and path.startswith(f"{home}/"):
            found = f"{path}:{match[2]}"
        elif line.startswith("Traceback "):
            found = ""  # of the exception that came before
    return found


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
        if not reply.has_begun:
            return "unknown", f"no answer within {limit:g} s: Python hangs before it runs anything of ours"
        place = innermost(reply.stack)
        return "unknown", f"no answer within {limit:g} s: the import hangs" + (
            f" in {place}" if place else ""
        )
    if not reply.has_begun:
        why = telling_line(ended.output.decode("utf-8", "replace"), reply.home)
        words = f"the interpreter does not start ({_how(ended.status)})"
        return "fail", f"{words}: {why}" if why else f"{words}, and says nothing"
    if reply.raised is not None:
        name, kind, text, trace = reply.raised
        words = f"{kind}: {' '.join(text.split())}" if text else kind
        place = _place(reply, trace)
        return "fail", f"{_culprit(name, package)}: {words}" + (f" ({place})" if place else "")
    if not reply.is_whole and ended.status == UNHEARD:
        return (
            "unknown",
            f"{package} closes files that are not its own while it is imported, and so the answer's",
        )
    if not reply.is_whole:
        name = reply.importing or package
        return "fail", f"{_culprit(name, package)}: the import ended Python, {_how(ended.status)}"
    return "", ""


def _culprit(name: str, package: str) -> str:
    return f"{package} itself does not import" if name == package else f"{name} does not import"


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
    lines += [
        f"{name}: {origin}: {kind}: {' '.join(text.split())}" for name, origin, kind, text in reply.spare
    ]
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
