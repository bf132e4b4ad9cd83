"""How a unit starts its Python: interpreter, command line, user, working directory and environment.

Of a running unit the process itself tells; of another one systemd's properties. Blocks; for a child.
"""

from __future__ import annotations

import os

from ..procs import read_process
from ..regular import read_regular
from ..units.command import find_interpreter, is_python, parse_environment
from ..units.inspector import inspect_unit
from ..units.text import PROPERTIES, parse_show, split_command, system_name
from ..venvs.interpreter import prefix_of
from .command_line import Told, told_by
from .envfile import parse_environment_file
from .ground import as_the_kernel
from .hiding import PROPERTIES as HIDING
from .hiding import hidden_by
from .refusal import refusal
from .wrappers import Launch, unwrap

__all__ = ["Identity", "Start", "read_start"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

USER = "user:"
SYSTEMCTL_LIMIT = 5.0
"""Seconds for one question to systemd."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MORE = (
    "User",
    "Group",
    "SupplementaryGroups",
    "WorkingDirectory",
    "DynamicUser",
    "RootDirectory",
    "RootImage",
    "PassEnvironment",
    "UnsetEnvironment",
    *HIDING,
)
SYSTEMDS = ("NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC")
"""What systemd gives a service for speaking to it; nobody else may."""
NOT_THERE = "is not there"


class Identity:
    """Who a process runs as."""

    def __init__(self, uid: int, gid: int, groups: list[int]) -> None:
        self.uid, self.gid, self.groups = uid, gid, groups


class Start:
    """How a unit starts its Python. `problem` says why that can't be told, and the rest is as far as it is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problem = ""
        self.prevented = ""
        """Why a unit that does not run will not start, whatever the package is like."""
        self.is_python = True
        """False when it surely starts none."""
        self.command = ""
        self.interpreter = ""
        self.options: list[str] = []
        """Of the interpreter, such as `-I`."""
        self.program = ""
        """What systemd executes."""
        self.script = ""
        """The script's path when it starts one; its folder comes first on the search path, not the working
        directory."""
        self.module = ""
        """The module when it starts one by `-m`."""
        self.folder = "/"
        """The working directory."""
        self.user = ""
        self.identity: Identity | None = None
        self.environment: dict[str, str] = {}
        self.pid = 0
        """Of the Python of a running unit."""
        self.started: float | None = None

    @property
    def prefix(self) -> str:
        """The environment, or the Python's own prefix; empty when the interpreter is hidden."""
        return prefix_of(as_the_kernel(self.interpreter)) if self.interpreter else ""


def read_start(name: str) -> Start:
    """How a unit (`user:NAME` of the login's own manager) starts, as far as it can be told."""
    start = Start(name)
    is_user = name.startswith(USER)
    text, problem = _systemctl(
        is_user, ",".join([*PROPERTIES, *MORE]), system_name(name[len(USER) :] if is_user else name)
    )
    block = next(iter(parse_show(text)), None)
    if block is None or block.get("LoadState") == "not-found":
        start.problem = problem or "systemd knows no such unit"
        return start
    start.program, start.command = split_command(block.get("ExecStart", ""))
    facts = inspect_unit(block)
    interpreter = facts.get("interpreter")
    if isinstance(interpreter, str):
        start.interpreter = interpreter
    elif isinstance(interpreter, dict):
        start.problem = interpreter["detail"]
        start.is_python = interpreter["missing"] not in ("unsupported",) and bool(start.program)
    main = block.get("MainPID", "0")
    is_running = main.isdigit() and main != "0"
    process = _python_below(int(main)) if is_running else None
    if process is not None and start.interpreter:
        _take_process(start, process, parse_environment(block.get("Environment", "")))
    elif start.interpreter or "$" in start.command:
        _take_properties(start, block, is_user)
    if is_running or block.get("ActiveState") in ("active", "reloading"):
        start.prevented = ""
    else:
        start.prevented = start.prevented or refusal(block, start.program, start.script)
    return start


# ---- a running unit


def _python_below(pid: int) -> dict[str, Any] | None:
    """The process if it is a Python, else the first one among what it started."""
    waiting = [pid]
    for _ in range(64):
        if not waiting:
            break
        number = waiting.pop(0)
        process = read_process(number)
        if process and (is_python(process["exe"] or "") or is_python("".join(process["argv"][:1]))):
            return process
        try:
            with open(f"/proc/{number}/task/{number}/children", encoding="ascii") as file:
                waiting += map(int, file.read().split())
        except OSError:
            continue
    return None


def _take_process(start: Start, process: dict[str, Any], given: dict[str, str]) -> None:
    """`given`: variables that the unit itself sets."""
    start.pid = process["pid"]
    started, argv, folder = process["started"], process["argv"], f"/proc/{start.pid}"
    start.started = started if isinstance(started, float) else None
    start.user = str(process["user"])
    try:
        start.folder = _working_folder(start, os.readlink(f"{folder}/cwd"))
        with open(f"{folder}/environ", "rb") as file:
            pairs = (item.partition("=") for item in os.fsdecode(file.read(1 << 20)).split("\0"))
            start.environment = {name: value for name, equals, value in pairs if equals}
        if os.readlink(f"{folder}/root") != "/":
            start.problem = "it runs in a root directory of its own"
        with open(f"{folder}/status", encoding="utf-8", errors="replace") as file:
            start.identity = _identity_of(file.read())
    except OSError as error:
        start.problem = f"process {start.pid} of {start.user} can't be looked into: {error.strerror}"
    for name in SYSTEMDS:
        start.environment.pop(name, None)
    if not is_python("".join(argv[:1])) and process["exe"]:
        argv = _argv_of_unit(start, process["exe"], given) or argv
    start.command = " ".join(argv) or start.command
    _take_words(start, told_by(argv))


def _argv_of_unit(start: Start, exe: str, given: dict[str, str]) -> list[str]:
    """The command line that systemd started a process with which has overwritten its own; empty unless its Python is
    the one that runs."""
    told = find_interpreter(start.program, start.command, given)
    if not isinstance(told, str) or os.path.realpath(told) != os.path.realpath(exe):
        return []
    launch = unwrap(start.program, start.command, {**start.environment, **given}, start.folder)
    start.interpreter = told
    return [] if launch.problem else launch.words


def _working_folder(start: Start, told: str) -> str:
    """The folder as /proc/PID/cwd has it; one that was deleted and made again is that which the unit starts in next."""
    gone = " (deleted)"
    if not told.endswith(gone) or os.path.isdir(told):
        return told
    path = told[: -len(gone)]
    if not os.path.isdir(path):
        start.problem = f"its working directory {path} was deleted since it started"
    return path


def _identity_of(status: str) -> Identity | None:
    """By the text of /proc/PID/status: effective ids, which are second of four."""
    lines = {key: rest.split() for key, _, rest in (line.partition(":") for line in status.split("\n"))}
    try:
        return Identity(
            int(lines["Uid"][1]), int(lines["Gid"][1]), [int(word) for word in lines.get("Groups", [])]
        )
    except (KeyError, IndexError, ValueError):
        return None


def _take_words(start: Start, told: Told) -> None:
    start.options, start.module = told.options, told.module
    start.script = os.path.join(start.folder, told.script) if told.script else ""


# ---- a unit that does not run


def _take_properties(start: Start, block: dict[str, str], is_user: bool) -> None:
    import pwd

    user = block.get("User", "") if not is_user else ""
    try:
        account = _account(user) if user else pwd.getpwuid(os.geteuid() if is_user else 0)
    except KeyError:
        start.problem = f"there is no user {user}"
        return
    start.user = account.pw_name
    start.identity = _identity(account, block)
    start.folder = _folder(block.get("WorkingDirectory", ""), account.pw_dir, is_user)
    if block.get("DynamicUser") == "yes":
        start.problem = "its user is made when it starts (DynamicUser)"
    elif block.get("RootDirectory") or block.get("RootImage"):
        start.problem = "it runs in a root directory of its own"
    start.environment = {"PATH": SYSTEM_PATH}
    text, _ = _systemctl(is_user, "", "", "show-environment")
    manager = parse_environment_file(text)
    start.environment.update(manager)
    if user or is_user:
        start.environment.update(HOME=account.pw_dir, USER=account.pw_name, LOGNAME=account.pw_name)
    _pass_on(start, block.get("PassEnvironment", "").split(), manager)
    start.environment.update(parse_environment(block.get("Environment", "")))
    _add_files(start, is_user)
    for word in block.get("UnsetEnvironment", "").split():
        name, equals, value = word.partition("=")
        if not equals or start.environment.get(name) == value:
            start.environment.pop(name, None)
    _take_launch(start, unwrap(start.program, start.command, start.environment, start.folder))
    if start.interpreter:
        _look_for_hidden(start, block)


def _take_launch(start: Start, launch: Launch) -> None:
    start.environment, start.folder = launch.environment, launch.folder
    if "$" in (start.interpreter or start.command):
        # A path with a variable of the unit's in it, which can be told only now.
        start.interpreter = "" if launch.problem or "$" in launch.words[0] else launch.words[0]
        start.problem = start.problem if not start.interpreter else ""
    start.problem = start.problem or launch.problem
    _take_words(start, told_by(launch.words))


def _pass_on(start: Start, names: list[str], manager: dict[str, str]) -> None:
    """PassEnvironment=: what systemd itself was started with, as far as its own block does not show it."""
    wanted = [name for name in names if name not in manager]
    if not wanted:
        return
    try:
        with open("/proc/1/environ", "rb") as file:
            pairs = (item.partition("=") for item in os.fsdecode(file.read(1 << 20)).split("\0"))
            own = {name: value for name, equals, value in pairs if equals}
    except OSError:
        telling = [
            name for name in wanted if name.startswith("PYTHON") or name in ("PATH", "LD_LIBRARY_PATH")
        ]
        if telling:
            start.problem = f"PassEnvironment gives it systemd's own {telling[0]}, which can't be read"
        return
    start.environment.update({name: own[name] for name in wanted if name in own})


def _look_for_hidden(start: Start, block: dict[str, str]) -> None:
    """Whether its sandbox keeps the Python, or what decides over its imports, from it."""
    needed = [start.interpreter, os.path.realpath(start.interpreter), start.prefix, start.script]
    asked = [start.folder, *start.environment.get("PYTHONPATH", "").split(":")]
    for path in needed + asked:
        why, is_sure = hidden_by(block, path) if path.startswith("/") else ("", True)
        if why and is_sure and path in needed:
            start.prevented = f"{why} hides {path} from it"
            return
        if why:
            start.problem = start.problem or f"can't tell what it sees at {path}: {why}"


def _account(user: str) -> Any:
    import pwd

    return pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)


def _identity(account: Any, block: dict[str, str]) -> Identity | None:
    import grp

    gid = account.pw_gid
    try:
        named = block.get("Group", "")
        if named:
            gid = int(named) if named.isdigit() else grp.getgrnam(named).gr_gid
        more = block.get("SupplementaryGroups", "").split()
        groups = [int(name) if name.isdigit() else grp.getgrnam(name).gr_gid for name in more]
    except KeyError:
        return None
    return Identity(account.pw_uid, gid, [*os.getgrouplist(account.pw_name, gid), *groups])


def _folder(told: str, home: str, is_user: bool) -> str:
    """WorkingDirectory= as `systemctl show` says it: `~` for the home, `!` or `-` before one that may be missing."""
    path = told.lstrip("!-")
    if path == "~":
        return home
    if path:
        return path if os.path.isdir(path) or path == told else "/"
    return home if is_user else "/"


def _add_files(start: Start, is_user: bool) -> None:
    """The EnvironmentFiles, in order; each comes as `PATH (ignore_errors=yes)`."""
    import glob

    name = system_name(start.name[len(USER) :] if is_user else start.name)
    text, _ = _systemctl(is_user, "EnvironmentFiles", name)
    for line in text.split("\n"):
        told, _, flags = line.partition("=")[2].rpartition(" (ignore_errors=")
        if not told.startswith("/"):
            continue
        for path in sorted(glob.glob(told)) or [told]:
            problem = _add_file(start, path)
            if problem == NOT_THERE and not flags.startswith("yes"):
                start.prevented = f"its EnvironmentFile {path} {problem}"
            elif problem and problem != NOT_THERE:
                start.problem = f"its EnvironmentFile {path} {problem}"


def _add_file(start: Start, path: str) -> str:
    """Why an EnvironmentFile gives nothing; empty when it does."""
    try:
        data = read_regular(path, 1 << 20)
    except FileNotFoundError:
        return NOT_THERE
    except OSError as error:
        return f"can't be read: {error.strerror}"
    start.environment.update(parse_environment_file(os.fsdecode(data)))
    return ""


def _systemctl(is_user: bool, properties: str, name: str, verb: str = "show") -> tuple[str, str]:
    """What systemctl prints, and why it prints nothing."""
    import subprocess

    runtime = f"/run/user/{os.geteuid()}"
    environment = {**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0"}
    environment["PATH"] = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}".strip(":")
    if is_user:
        environment.update(XDG_RUNTIME_DIR=runtime, DBUS_SESSION_BUS_ADDRESS=f"unix:path={runtime}/bus")
    argv = ["systemctl", *(["--user"] if is_user else []), verb, "--no-pager"]
    argv += ["-p", properties, "--", name] if verb == "show" else []
    try:
        done = subprocess.run(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SYSTEMCTL_LIMIT,
            check=False,
        )
    except FileNotFoundError:
        return "", "systemctl is not installed"
    except subprocess.TimeoutExpired:
        return "", f"systemctl does not answer within {SYSTEMCTL_LIMIT:g} s"
    words = " ".join(done.stderr.decode("utf-8", "replace").split())
    return os.fsdecode(done.stdout), words if done.returncode else ""
