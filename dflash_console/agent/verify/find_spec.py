"""The part `find_spec`: the hand-typed command's own answer, and whether it is what the files say."""

from __future__ import annotations

import os

from ..jobs import Job
from .checks import check, first_few
from .ground import Ground, folder_of, leaf
from .loadable import why_not_loaded
from .odd_files import obstacle
from .question import Reply, ask, describe, home, proof

__all__ = ["find_spec_job", "judge"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..child import Channel, Outcome

SPARE = 3.0
"""Seconds beyond the limit for ending what hangs and reading the files."""


def find_spec_job(message: dict[str, Any]) -> Job:
    """A job for the part; see the module `verify` for the message."""
    venv, package, limit = str(message["venv"]), str(message["package"]), float(message["limit"])
    modules: list[list[str]] = message["modules"]

    def work(channel: Channel) -> None:
        channel.send(look(venv, package, modules, limit))

    def finish(outcome: Outcome) -> object:
        if outcome.values:
            return {"checks": outcome.values, "facts": {}}
        if not outcome.timed_out:
            raise RuntimeError(outcome.error)
        words = f"{folder_of(venv)}: {outcome.error}, and it can't be ended: the filesystem or a driver may be dead"
        return {"checks": [check("find_spec", "unknown", words)], "facts": {}}

    return Job(work, limit + SPARE, finish, key=f"find_spec {venv}")


def look(
    venv: str,
    package: str,
    modules: list[list[str]],
    limit: float,
    reply: Reply | None = None,
) -> dict[str, Any]:
    """The check `find_spec`, asked as over SSH: in the login's home and environment.

    `reply` is what an interpreter has said that was asked so already.
    """
    ground = Ground(venv, package)
    if ground.problem is not None:
        return check("find_spec", "fail", f"{ground.folder}: {ground.problem['detail']}")
    stops = obstacle(ground.look)
    if stops:
        return check("find_spec", "fail", f"Python can't start here: {stops}")
    folder = home()
    if reply is None:
        reply = ask(ground.python(), package, modules, limit, dict(os.environ), lambda: os.chdir(folder))
    state, detail = judge(reply, ground, modules, limit, folder, os.environ.get("PYTHONPATH", ""))
    return check("find_spec", state, detail, proof(reply, folder))


def judge(
    reply: Reply, ground: Ground, modules: list[list[str]], limit: float, folder: str, python_path: str
) -> tuple[str, str]:
    """State and line of what an interpreter said in a working directory, against what the files say."""
    state, detail = describe(reply, ground.package, limit)
    stops = obstacle(ground.look) if not reply.has_begun else ""
    if stops:
        return "fail", f"Python can't start here: {stops}"
    here = str(ground.found.origin) if ground.found is not None and ground.found.origin else ""
    there = reply.package if isinstance(reply.package, str) else ""
    if there and here and not _is_same(there, here):
        why = _why(there, reply, folder, python_path)
        return "fail", f"{why}imports {there}, not {here}" + (f"; {detail}" if state else "")
    if state:
        return state, detail
    if not there:
        if reply.package is None:
            return "fail", f"missing: {ground.package} itself"
        return "fail", f"{ground.package} has no __init__.py: {first_few(list(reply.package), 1)}"
    if reply.missing:
        listed = {item[0]: item for item in modules}
        names = [" or ".join(map(leaf, listed.get(name, [name]))) for name in reply.missing]
        return "fail", f"missing: {', '.join(names)}"
    folders = [name for name, origin in reply.modules.items() if not isinstance(origin, str)]
    if folders:
        return "fail", f"a folder without __init__.py in the place of {first_few(list(map(leaf, folders)))}"
    if reply.broken:
        name, kind, text, _ = reply.broken[0]
        return "fail", _fault(str(reply.modules[name]), kind, text)
    refused = _refused(reply)
    if refused:
        return "fail", refused
    for name, origin in reply.modules.items():
        where = _expected(ground, name, modules, reply) if here else ""
        if where and not _is_same(str(origin), where):
            return "fail", f"{_why(str(origin), reply, folder, python_path)}imports {origin}, not {where}"
    seconds = f"{reply.ended.seconds:.1f} s"
    if not here:
        return "pass", f"{there}, which its files do not show: code in a .pth file may add it ({seconds})"
    told = ", ".join(map(leaf, reply.modules)) or "no modules are listed"
    if reply.spare:
        _, origin, kind, text = reply.spare[0]
        return (
            "warn",
            f"{_fault(str(origin), kind, text)}, though another one serves: {told}; {there} ({seconds})",
        )
    return "pass", f"{there}; {told} ({seconds})"


def _fault(origin: str, kind: str, text: str) -> str:
    if kind == "Empty":
        return f"empty: {origin}"
    how = "can't be read" if kind in ("PermissionError", "OSError") else "does not compile"
    how = "can't be loaded" if origin.endswith(".pyc") and kind == "ValueError" else how
    return f"{origin} {how}: {kind}: {' '.join(text.split())}"


def _refused(reply: Reply) -> str:
    """The first compiled module that the loader would refuse, and why; empty when there is none."""
    for origin in reply.modules.values():
        if isinstance(origin, str) and origin.endswith(".so"):
            try:
                why = why_not_loaded(origin, os.path.getsize(origin))
            except OSError:
                continue
            if why:
                return f"{origin} can't be loaded: {why}"
    return ""


def _expected(ground: Ground, name: str, modules: list[list[str]], reply: Reply) -> str:
    """Where the files have the module that serves; empty when they have none."""
    poor = {item[0] for item in reply.spare}
    listed = next((item for item in modules if name in item), [name])
    for other in listed:
        found = ground.finder.find(other)
        if found is not None and found.origin and other not in poor:
            return found.origin
    return ""


def _is_same(one: str, other: str) -> bool:
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def _why(origin: str, reply: Reply, folder: str, python_path: str) -> str:
    """What put another package first, as far as it shows, to begin the line with."""
    entries = [entry for entry in reply.search_path if _holds(os.path.join(folder, entry), origin)]
    if not entries:
        return ""
    # The working directory may well hold all the others.
    first = max(entries, key=lambda entry: len(os.path.join(folder, entry).rstrip("/")))
    if first in ("", folder):
        return f"the working directory {folder} comes first: "
    return f"PYTHONPATH has {first}: " if first in python_path.split(":") else f"{first} comes first: "


def _holds(folder: str, origin: str) -> bool:
    return origin.startswith(folder.rstrip("/") + "/")
