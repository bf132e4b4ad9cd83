"""An interpreter that gets ready for the import check while files still come.

It imports what is dear and no stage can hold, never the package itself. Whatever is odd ends it, and a fresh one is
asked.
"""

from __future__ import annotations

import contextlib
import os
import time

from ..child import Child
from ..verify.program import Program
from ..verify.question import WHERE, heard, home, script_of
from .importing import OPTIONS, environment, told

__all__ = ["Warm"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..child import Channel

DEAR = ("torch",)
"""Nearly all of the time that an import of an inference engine takes is this one's."""
LEFT = 88
"""The exit status of an interpreter that is not fit to be asked."""

# It reads the script where `python -` does, from stdin, but when it is told to. What is imported meanwhile finds
# nothing to read there, as it does under `python -`.
BOOT = r"""
import sys
sys.argv[0] = "-"
if sys.path[:1] == [""]:
    sys.path[0] = FIRST.encode("utf-8", "surrogateescape").decode(sys.getfilesystemencoding(), "surrogateescape")
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
        text = file.read()
    importlib.invalidate_caches()
    return compile(text or leave(), "<stdin>", "exec")
try:
    CODE = get_ready()
except BaseException:
    leave()
exec(CODE)
"""


class Warm:
    """One in a child, for a tree that will be in `folder`. Before other threads are: it forks."""

    def __init__(self, python: str, package: str, folder: str, names: tuple[str, ...] = DEAR) -> None:
        self.folder = folder
        self.child = Child()
        env = environment()
        head = f"FIRST, PACKAGE, NAMES, LEFT = {folder!a}, {package!a}, {names!a}, {LEFT}"

        def work(channel: Channel) -> None:
            where = home()
            program = Program([python, *OPTIONS, "-c", head + BOOT], env, lambda: os.chdir(where))
            modules: list[list[str]] = []
            for item in channel.receive():
                if isinstance(item, list):
                    modules.append(item)
                    continue
                until = time.monotonic() + item
                if program.is_ready(item):
                    text = script_of(package, modules, folder)
                    ended = program.finish(text, max(0.0, until - time.monotonic()), WHERE)
                    channel.send(told(heard(ended, python, env), package, modules, item, folder, where))
                return

        # Nothing is lost without it but time.
        with contextlib.suppress(OSError):
            self.child.start(work)

    def ask(self, modules: list[list[str]], limit: float) -> bool:
        """Have it look for the modules, for `limit` seconds from now; False when it is gone."""
        return self.child.is_alive and all(map(self.child.send, [*modules, limit]))

    def stop(self) -> None:
        """End it, whatever it does."""
        self.child.kill()
