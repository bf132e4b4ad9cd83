"""The import check: the environment's own interpreter finds package and modules in a folder that is not live yet."""

from __future__ import annotations

import os
import select
import time

from ..child import Child
from ..verify.checks import check, first_few
from ..verify.ground import leaf
from ..verify.question import ask, describe, home, proof

__all__ = ["Importing"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..child import Channel
    from ..verify.question import Reply

SPARE = 5.0
"""Seconds beyond the limit for ending what hangs."""
NAME = "import"
OPTIONS = ["-E", "-s", "-B"]
"""Those of -I but for the place on the search path that -I does away with; -B, for -E hides its variable."""


class Importing:
    """find_spec in a child with a deadline; as with -I, the folder first on the search path."""

    def __init__(self, python: str, package: str, modules: list[list[str]], limit: float) -> None:
        self._python, self._package, self._modules = python, package, modules
        self._limit = limit
        self._child = Child()
        self._until = 0.0

    def start(self, folder: str) -> None:
        """Begin, with the package in `folder`. Before other threads are: it forks."""
        question = (self._python, self._package, self._modules, self._limit)

        def work(channel: Channel) -> None:
            channel.send(_look(*question, folder))

        self._until = time.monotonic() + self._limit + SPARE
        self._child.start(work)

    def finish(self) -> dict[str, Any]:
        """The check, as soon as there is an answer or the time is over."""
        values: list[Any] = []
        while True:
            rest = self._until - time.monotonic()
            if rest <= 0:
                self._child.kill()
                words = f"no answer within {self._limit:g} s, and it can't be ended: the disk or a driver may be dead"
                return check(NAME, "fail", words)
            select.select(self._child.fds(), [], [], rest)
            received = self._child.receive()
            if received is None:
                break
            values += received
        if values:
            found: dict[str, Any] = values[0]
            return found
        return check(NAME, "fail", f"the check itself ended: {self._child.errors or 'no words'}")

    def stop(self) -> None:
        """End it, if it runs."""
        self._child.kill()


def _look(python: str, package: str, modules: list[list[str]], limit: float, folder: str) -> dict[str, Any]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    where = home()
    reply = ask(python, package, modules, limit, environ, lambda: os.chdir(where), OPTIONS, folder)
    state, detail = judge(reply, package, modules, limit, folder)
    return check(NAME, state, detail, proof(reply, where))


def judge(reply: Reply, package: str, modules: list[list[str]], limit: float, folder: str) -> tuple[str, str]:
    """State and line: a copy is only made of what certainly imports."""
    state, detail = describe(reply, package, limit)
    if state:
        return "fail", detail
    expected = f"{folder}/{package}/__init__.py"
    if reply.package != expected:
        return "fail", f"imports {reply.package or 'nothing'}, not {expected}"
    if reply.missing:
        listed = {item[0]: item for item in modules}
        names = [" or ".join(map(leaf, listed.get(name, [name]))) for name in reply.missing]
        return "fail", f"missing: {', '.join(names)}"
    for name, origin in reply.modules.items():
        if not isinstance(origin, str) or not origin.startswith(f"{folder}/"):
            return "fail", f"{name} would come from {first_few([str(origin)])}, not from {folder}"
    if reply.broken:
        name, kind, text, _ = reply.broken[0]
        return "fail", f"{name} does not compile: {kind}: {' '.join(text.split())}"
    return "pass", f"{', '.join([package, *map(leaf, reply.modules)])} ({reply.ended.seconds:.1f} s)"
