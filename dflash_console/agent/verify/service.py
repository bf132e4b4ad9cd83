"""The part `service`: the same question as each unit would ask it, and whether what runs is what lies there now."""

from __future__ import annotations

import os
import re

from ..jobs import Job
from ..redact import redact_text
from .checks import check, first_few, when
from .files import tree_of
from .find_spec import SPARE, judge
from .ground import Ground, folder_of
from .odd_files import obstacle
from .outdated import describe, find_change
from .question import ask, proof
from .readable import find_unreadable
from .unit_facts import Start, read_start

__all__ = ["service_job"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..child import Channel, Outcome
    from .tree import Tree

UNITS_LIMIT = 32
TELLING = re.compile(r"PYTHON|LD_|CUDA|NVIDIA|VIRTUAL_ENV$|SGLANG|PATH$|HOME$|CONDA")
"""Variables that may decide what is imported."""
NO_VIEW = "the unit's own mounts"
_CLONE_NEWNS = 0x20000


def service_job(message: dict[str, Any]) -> Job:
    """A job for the part; see the module `verify` for the message. `units` are names as the config has them,
    `package_venv` is the environment that the host's units are meant to start, None when that is not known;
    `is_package_venv` says that it must be this one."""
    venv, package, limit = str(message["venv"]), str(message["package"]), float(message["limit"])
    modules: list[list[str]] = message["modules"]
    units = [str(name) for name in message.get("units") or ()]
    told = bool(message.get("is_package_venv"))
    home = message.get("package_venv")

    def work(channel: Channel) -> None:
        ground = Ground(venv, package)
        if ground.problem is not None:
            return
        is_home = _is_same(str(home), ground.folder) if home else told
        # Those that have nothing to do with this environment take neither a place nor time from the others.
        starts = [start for start in map(read_start, units) if _concerns(ground, start, is_home)]
        asked = starts[:UNITS_LIMIT]
        for place, start in enumerate(asked):
            channel.send(look(ground, start, modules, limit / (len(asked) - place)))
        if len(starts) > UNITS_LIMIT:
            words = f"{len(starts) - UNITS_LIMIT} more units start this environment and were not asked"
            channel.send(check("service", "unknown", words, [start.name for start in starts[UNITS_LIMIT:]]))

    def finish(outcome: Outcome) -> object:
        checks = list(outcome.values)
        if outcome.timed_out:
            checks.append(check("service", "unknown", outcome.error))
        elif outcome.error:
            raise RuntimeError(outcome.error)
        return {"checks": checks, "facts": {}}

    return Job(work, limit + SPARE, finish, key=f"service {venv}")


def _concerns(ground: Ground, start: Start, is_home: bool) -> bool:
    """Whether the unit starts this environment, or should."""
    if not start.interpreter:
        # A program that we can't follow may start what its command names, and one that is gone was a script here.
        bin_folder = f"{ground.folder}/bin/"
        if start.prevented:
            return start.program.startswith(bin_folder) or (is_home and _is_of(ground, start))
        return bin_folder in start.command or (is_home and start.is_python)
    if _is_same(start.prefix, ground.folder):
        return True
    # A unit may have a Python of its own for something else.
    return is_home and _is_of(ground, start)


def _is_of(ground: Ground, start: Start) -> bool:
    return ground.package in f"{start.name} {start.command}"


def _is_same(one: str, other: str) -> bool:
    """Whether two paths lead to one folder, whatever links there are on the way."""
    return os.path.realpath(folder_of(one)) == os.path.realpath(other)


def look(ground: Ground, start: Start, modules: list[list[str]], limit: float) -> dict[str, Any]:
    """The check of one unit that concerns this environment."""
    title = f"service {start.name}"
    command = redact_text(" ".join(start.command.split()))
    if start.prevented:
        folder = [f"as {start.user or '?'} in {start.folder}"] if start.interpreter else []
        return check(title, "fail", f"will not start: {start.prevented}", [f"starts {command}", *folder])
    if not start.interpreter:
        return check(title, "unknown", f"can't tell which Python it starts: {start.problem}", [command])
    evidence = [f"starts {command}", f"as {start.user or '?'} in {start.folder}"]
    evidence += [f"process {start.pid} since {when(start.started)}"] if start.started else []
    if not _is_same(start.prefix, ground.folder):
        return check(title, "fail", f"starts {start.prefix}, not this one ({ground.folder})", evidence)
    evidence += [
        redact_text(f"{key}={start.environment[key]}")
        for key in sorted(start.environment)
        if TELLING.search(key)
    ]
    tree = tree_of(ground)
    change = (
        find_change(ground, tree, start.pid, start.started, start.prefix)
        if start.pid and tree is not None
        else None
    )
    state, detail = _ask(ground, start, modules, limit, evidence)
    if state in ("pass", "warn") and tree is not None:
        closed = _closed(start, tree, evidence)
        state, detail = ("fail", closed) if closed else (state, detail)
    if change is None:
        return check(title, state, detail, evidence)
    words = describe(change, start.started)
    if change.mere_touch:
        if state == "pass":
            state, detail = "warn", f"touched since, and {change.mere_touch}: {words}; {detail}"
    elif state != "fail":
        state, detail = "fail", f"running the old package, restart needed: {words}"
    else:
        detail += f"; and it runs the old package, {words}"
    return check(title, state, detail, evidence)


def _closed(start: Start, tree: Tree, evidence: list[str]) -> str:
    """Which files of the package the unit's user may not read; empty when there are none."""
    if start.identity is None or (start.identity.uid == 0 and not _has_own_view(start)):
        return ""
    names = find_unreadable(tree, _preparation(start))
    evidence += [f"may not be read by {start.user}: {tree.root}/{name}" for name in names]
    return f"{start.user} may not read {len(names):,} of {tree.root}: {first_few(names)}" if names else ""


def _ask(
    ground: Ground, start: Start, modules: list[list[str]], limit: float, evidence: list[str]
) -> tuple[str, str]:
    """State and line of find_spec as the unit would ask it."""
    if start.problem:
        return "unknown", f"can't be asked as the unit: {start.problem}"
    identity = start.identity
    if identity is None:
        return "unknown", "can't tell which user and groups it runs as"
    if os.geteuid() not in (0, identity.uid):
        return "unknown", f"runs as {start.user}, which this login may not become"
    stops = obstacle(ground.look)
    if stops:
        return "fail", f"Python can't start here: {stops}"
    prepare = _preparation(start)
    if start.module.startswith(f"{ground.package}.") and not any(start.module in names for names in modules):
        modules = [*modules, [start.module]]
    reply = ask(
        start.interpreter,
        ground.package,
        modules,
        limit,
        start.environment,
        prepare,
        start.options,
        _first(start),
    )
    evidence += proof(reply, start.folder)
    if reply.ended.problem.startswith(NO_VIEW):
        return "unknown", f"can't be asked as the unit: {reply.ended.problem}"
    python_path = start.environment.get("PYTHONPATH", "")
    state, detail = judge(reply, ground, modules, limit, start.folder, python_path)
    if state == "pass":
        return state, f"same origin: {detail}"
    return state, f"as {start.user}: {detail}" if start.user else detail


def _first(start: Start) -> str | None:
    """What stands first on the search path instead of the working directory: the folder of a script, or the folder or
    archive that is one (runpy)."""
    if not start.script:
        return None
    is_plain = not os.path.isdir(start.script) and start.script.endswith((".py", ".pyc"))
    if is_plain or not _has_main(start.script):
        return os.path.dirname(os.path.realpath(start.script))
    return start.script


def _has_main(path: str) -> bool:
    if os.path.isdir(path):
        return True
    import zipfile

    return os.path.isfile(path) and zipfile.is_zipfile(path)


def _preparation(start: Start) -> Callable[[], None]:
    """What makes a new process see and be what the unit's is: files, user, working directory."""
    identity = start.identity
    assert identity is not None
    has_own_view = _has_own_view(start)

    def prepare() -> None:
        if has_own_view:
            _enter(start.pid)
        if os.geteuid() == 0 and identity.uid != 0:
            os.setgroups(identity.groups)
            os.setresgid(identity.gid, identity.gid, identity.gid)
            os.setresuid(identity.uid, identity.uid, identity.uid)
        os.chdir(start.folder)

    return prepare


def _has_own_view(start: Start) -> bool:
    """Whether a running unit sees other mounts than we do."""
    if not start.pid:
        return False
    try:
        return os.readlink(f"/proc/{start.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
    except OSError:
        return False


def _enter(pid: int) -> None:
    """setns(2): PrivateTmp=, ProtectHome= and their like give a service mounts of its own."""
    import ctypes

    view = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(view, _CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), NO_VIEW)
    os.close(view)
