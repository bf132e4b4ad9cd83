"""An interpreter that gets ready for the import checks of a copy while files still come.

It imports what is dear and no stage can hold, never the package itself, and then answers twice: in a process of its
own for the stage, and by itself for the package in its place. Whatever is odd ends it, and a fresh one is asked.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import time

from ..child import Child
from ..verify.find_spec import look
from ..verify.program import Program, run
from ..verify.question import WHERE, heard, home, script_of
from .importing import PATIENCE, TURN, told

__all__ = ["Warm"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..child import Channel

DEAR = ("torch",)
"""Nearly all of the time that an import of an inference engine takes is this one's."""
LEFT = 88
"""The exit status of an interpreter that is not fit to be asked."""

PLAIN = "import os, sys; os._exit({!a} in sys.modules)"
"""A start of the interpreter, and whether that has imported the package."""

MARK = b"('ended', "
"""How the line begins that follows the answer for a stage."""

# It reads the scripts where `python -` does, from stdin, but when it is told to. What is imported meanwhile finds
# nothing to read there, as it does under `python -`. One with threads of Python's is not forked: it answers once.
# Those of numerical libraries only wait, and make themselves anew after a fork.
BOOT = r"""
import sys
sys.argv[0] = "-"
import importlib.util, os
def leave():
    os._exit(LEFT)
class Guard:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == PACKAGE:
            leave()
    @staticmethod
    def find_distributions(context=None):
        name = getattr(context, "name", None)
        if name and name.replace("_", "-").replace(".", "-").lower() == PACKAGE.replace("_", "-").lower():
            leave()
        return ()
def has_threads():
    threading = sys.modules.get("threading")
    return threading is not None and threading.active_count() > 1
def fork(seconds):
    import _signal, warnings
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        # What ends its parent does not end it.
        _signal.alarm(seconds)
        if "ctypes" in sys.modules:
            sys.modules["ctypes"].CDLL(None).prctl(1, 9, 0, 0, 0)
            if os.getppid() != parent:
                leave()
    return pid
def get_ready():
    feed = os.dup(0)
    if feed < 10:
        import fcntl
        feed, low = fcntl.fcntl(feed, fcntl.F_DUPFD_CLOEXEC, 10), feed
        os.close(low)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    marks = [os.fstat(fd)[1:3] for fd in (3, feed)]
    before = PACKAGE in sys.modules
    sys.meta_path.insert(0, Guard)
    for name in NAMES:
        if name != PACKAGE and importlib.util.find_spec(name) is not None:
            __import__(name)
    sys.meta_path.remove(Guard)
    if [os.fstat(fd)[1:3] for fd in (3, feed)] != marks or before != (PACKAGE in sys.modules):
        leave()
    os.write(3, b"('warm',)\n")
    with open(feed, "rb") as file:
        while True:
            is_last, size, seconds = file.readline().split()
            text = file.read(int(size))
            if not text or len(text) != int(size):
                leave()
            if is_last == b"1" or has_threads() or not fork(int(seconds)):
                break
            status = os.wait()[1]
            os.write(3, b"\n" + MARK + b"%d)\n" % status)
    importlib.invalidate_caches()
    return compile(text, "<stdin>", "exec")
try:
    CODE = get_ready()
except BaseException:
    leave()
exec(CODE)
"""


class _Answers:
    """The child's side: what it is asked, and what the interpreter says to it."""

    def __init__(
        self, program: Program, python: str, venv: str, package: str, env: dict[str, str], where: str
    ) -> None:
        self._program = program
        self._python, self._venv, self._package = python, venv, package
        self._env, self._where = env, where

    def serve(self, channel: Channel) -> None:
        """Answers, until it has no answer or has given the last one."""
        modules: list[list[str]] = []
        for item in channel.receive():
            if isinstance(item, list):
                modules.append(item)
                continue
            limit, folder = item["limit"], item["folder"]
            until = time.monotonic() + limit
            if not self._program.is_ready(limit):
                return
            rest = max(1.0, until - time.monotonic())
            script = script_of(self._package, modules, folder or None)
            text = b"%d %d %d\n" % (not folder, len(script), math.ceil(rest)) + script
            found = (
                self._staged(text, rest, modules, limit, folder)
                if folder
                else self._in_place(text, rest, modules, limit)
            )
            if found is None:
                return
            channel.send(found)
            if not folder:
                return
            modules = []

    def _staged(
        self, text: bytes, rest: float, modules: list[list[str]], limit: float, folder: str
    ) -> dict[str, Any] | None:
        said = self._program.ask(text, rest, MARK)
        if said is None:
            return None
        reply = heard(said, self._python, self._env)
        return told(reply, self._package, modules, limit, folder, self._where)

    def _in_place(
        self, text: bytes, rest: float, modules: list[list[str]], limit: float
    ) -> dict[str, Any] | None:
        ended = self._program.finish(text, rest, WHERE)
        # This one had started before the package was in its place. What a start takes of it by itself, by a .pth file
        # or a sitecustomize, only a fresh one shows.
        plain = [self._python, "-c", PLAIN.format(self._package)]
        if run(plain, b"", limit, self._env, lambda: os.chdir(self._where)).status != 0:
            return None
        return look(self._venv, self._package, modules, limit, heard(ended, self._python, self._env))


class Warm:
    """One in a child, started as a login's would be that is asked by hand. Before other threads are: it forks."""

    def __init__(self, python: str, venv: str, package: str, names: tuple[str, ...] = DEAR) -> None:
        self.child = Child()
        self.has_failed = False
        """Whether it did not let pass what it was asked; it is of no use any more then."""
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        head = f"PACKAGE, NAMES, LEFT, MARK = {package!a}, {names!a}, {LEFT}, {MARK!a}"

        def work(channel: Channel) -> None:
            where = home()
            program = Program([python, "-c", head + BOOT], env, lambda: os.chdir(where))
            answers = _Answers(program, python, venv, package, env, where)
            try:
                answers.serve(channel)
            finally:
                program.stop()

        # Nothing is lost without it but time.
        with contextlib.suppress(OSError):
            self.child.start(work)

    def ask(self, modules: list[list[str]], limit: float, folder: str) -> bool:
        """Have it look for the modules, for `limit` seconds from now; False when it is gone.

        `folder` is where the package lies that is not in its place yet; empty for the one in its place, of which it
        answers once, with the check `find_spec`.
        """
        if self.has_failed or not self.child.is_alive:
            return False
        return all(map(self.child.send, [*modules, {"limit": limit, "folder": folder}]))

    def in_place(
        self, modules: list[list[str]], limit: float, mind: Callable[[], object]
    ) -> dict[str, Any] | None:
        """The check `find_spec` of the package in its place, if that passes; it ends with it. `mind` is called
        meanwhile, and may raise."""
        found, until = None, time.monotonic() + limit * PATIENCE
        if self.ask(modules, limit, ""):
            while found is None and not self.has_failed and time.monotonic() < until:
                mind()
                found = self.answer(TURN)
        self.stop()
        return found

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """What it has found, if that passes, after at most `seconds`; None while it says nothing, and when it
        `has_failed`."""
        if self.has_failed:
            return None
        select.select(self.child.fds(), [], [], seconds)
        try:
            received = self.child.receive()
        except ValueError:
            received = None
        if received and received[0]["state"] == "pass":
            return dict(received[0])
        if received is None or received:
            self.stop()
        return None

    def stop(self) -> None:
        """End it, whatever it does."""
        self.has_failed = True
        self.child.kill()
