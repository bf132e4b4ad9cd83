"""The import check: the environment's own interpreter finds package and modules in a folder that is not live yet."""

from __future__ import annotations

import os
import select
import time

from ..child import Child
from ..verify.checks import check, first_few
from ..verify.ground import leaf
from ..verify.question import ask, describe, home, proof

__all__ = ["PATIENCE", "TURN", "Importing", "told"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..child import Channel
    from ..verify.question import Reply
    from .warming import Warm

SPARE = 5.0
"""Seconds beyond the limit for ending what hangs."""
PATIENCE = 0.25
"""Share of the limit after which a fresh interpreter is asked beside one that was warm and says nothing."""
TURN = 0.5
NAME = "import"
OPTIONS = ["-E", "-s", "-B"]
"""Those of -I but for the place on the search path that -I does away with; -B, for -E hides its variable."""


class Importing:
    """find_spec in a child with a deadline; as with -I, the folder first on the search path.

    A warm interpreter can only make it pass sooner: what it does not let pass is asked of a fresh one.
    """

    def __init__(
        self, python: str, package: str, modules: list[list[str]], limit: float, warm: Warm | None = None
    ) -> None:
        self._python, self._package, self._modules = python, package, modules
        self._limit = limit
        self._warm = warm
        self._fresh: Child | None = None
        self._began = 0.0
        self._folder = ""

    def start(self, folder: str) -> None:
        """Begin, with the package in `folder`. Before other threads are: it forks."""
        self._began, self._folder = time.monotonic(), folder
        if self._warm is None or not self._warm.ask(self._modules, self._limit, folder):
            self._ask_fresh()

    def finish(self, mind: Callable[[], object] = lambda: None) -> dict[str, Any]:
        """The check, as soon as there is an answer or the time is over. Forks, unless `start` did.

        `mind` is called meanwhile, and may raise.
        """
        while True:
            mind()
            gone = time.monotonic() - self._began
            if gone > self._limit + SPARE:
                self.stop()
                words = f"no answer within {self._limit:g} s, and it can't be ended: the disk or a driver may be dead"
                return check(NAME, "fail", words)
            if self._fresh is None and (self._warm is None or gone > self._limit * PATIENCE):
                self._ask_fresh()
            children = [child for child in (self._warm and self._warm.child, self._fresh) if child]
            select.select([fd for child in children for fd in child.fds()], [], [], TURN)
            found = self._hear()
            if found is not None:
                self.stop()
                return found

    def stop(self) -> None:
        """End it, if it runs. A warm one that let it pass goes on."""
        if self._warm is not None:
            self._warm.stop()
        if self._fresh is not None:
            self._fresh.kill()

    def _ask_fresh(self) -> None:
        if self._warm is not None and not self._warm.child.is_alive:
            self._warm = None
        rest = max(1.0, round(self._limit - (time.monotonic() - self._began), 1))
        python, package, modules = self._python, self._package, self._modules
        limit, folder = self._limit, self._folder

        def work(channel: Channel) -> None:
            where = home()
            reply = ask(
                python, package, modules, rest, environment(), lambda: os.chdir(where), OPTIONS, folder
            )
            channel.send(told(reply, package, modules, limit, folder, where))

        self._fresh = Child()
        self._fresh.start(work)

    def _hear(self) -> dict[str, Any] | None:
        """What has been found by now."""
        if self._warm is not None:
            found = self._warm.answer(0.0)
            if found is not None or self._warm.has_failed:
                self._warm = None
            if found is not None:
                return found
        if self._fresh is not None:
            received = self._fresh.receive()
            if received:
                return dict(received[0])
            if received is None:
                return check(NAME, "fail", f"the check itself ended: {self._fresh.errors or 'no words'}")
        return None


def environment() -> dict[str, str]:
    """This process's, without what would turn Python's head."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1"}


def told(
    reply: Reply, package: str, modules: list[list[str]], limit: float, folder: str, where: str
) -> dict[str, Any]:
    """The check, by what an interpreter said that began in the folder `where`; `limit` is that of the whole check."""
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
