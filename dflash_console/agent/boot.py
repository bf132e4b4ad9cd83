"""The first code that runs on a host: makes the shipped modules importable from memory and starts the agent.

The console sends this file's text with a call of `start` appended (dflash_console/link/bundle.py), so nothing
here may need more than the standard library, and nothing is ever written to the host's disk.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import sys
import zlib
from importlib.machinery import ModuleSpec

__all__ = ["Finder", "start"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType, TracebackType
    from typing import Any


LARGE = 100_000
"""Characters of source beyond which a module is compiled apart."""


class Finder:
    """Finder and loader of modules whose source is held in memory: by full name, zlib's bytes read as
    Latin-1.

    The name of a package ends with a dot. Compiled when imported, not before; tracebacks show the source
    lines.
    """

    def __init__(self, modules: dict[str, str]) -> None:
        self._modules = modules

    def add(self, modules: dict[str, str]) -> None:
        """Take more modules, in the same form."""
        self._modules.update(modules)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """As sys.meta_path wants it."""
        is_package = name + "." in self._modules
        if not is_package and name not in self._modules:
            return None
        file = name.replace(".", "/") + ("/__init__.py" if is_package else ".py")
        spec = ModuleSpec(name, self, origin=file, is_package=is_package)  # type: ignore[arg-type]
        spec.has_location = True
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """The ordinary module will do."""

    def exec_module(self, module: ModuleType) -> None:
        """Compile and run a module."""
        spec: Any = module.__spec__
        exec(_compile(self.get_source(spec.name), spec.origin), module.__dict__)

    def get_source(self, name: str) -> str:
        """A module's text; linecache asks for it to show the lines of a traceback."""
        packed = self._modules.get(name) or self._modules[name + "."]
        return zlib.decompress(packed.encode("latin-1")).decode("utf-8")


def _compile(source: str, file: str) -> Any:
    """The code of a module, without docstrings. A large one is compiled in a process of its own: the memory
    that the compiler needs for pynvml (16 MB) would never be given back."""
    if len(source) < LARGE:
        return compile(source, file, "exec", 0, True, 2)
    reading, writing = os.pipe()
    compiler = os.fork()
    if compiler == 0:
        try:
            data = memoryview(marshal.dumps(compile(source, file, "exec", 0, True, 2)))
            while data:
                data = data[os.write(writing, data) :]
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        code = pipe.read()
    os.waitpid(compiler, 0)
    # Nothing came when the source is wrong: then say so here.
    return marshal.loads(code) if code else compile(source, file, "exec", 0, True, 2)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The traceback of what ended the agent, with source lines: the interpreter's own printer looks for
    files."""
    import traceback

    traceback.print_exception(kind, error, trace)


def _dismiss(guard: int) -> None:
    """End the process that kills a boot which takes too long: from here on the agent minds its link itself."""
    try:
        if os.waitpid(guard, os.WNOHANG)[0] == 0:
            os.kill(guard, signal.SIGKILL)
            os.waitpid(guard, 0)
    except ChildProcessError:
        # A wrapper of the interpreter stands between. In our process group there is nobody but our own.
        with contextlib.suppress(OSError):
            if os.getpgid(guard) == os.getpgrp():
                os.kill(guard, signal.SIGKILL)


def start(token: str, options: dict[str, Any], modules: dict[str, str]) -> None:
    """Say the token that ends whatever the login shell printed, and run the agent until its link ends.

    The interpreter's only argument is the pid of the boot's guard, if there is one.
    """
    sys.meta_path.insert(0, Finder(modules))
    sys.excepthook = _show
    sys.stdout.write("\n" + token + "\n")
    sys.stdout.flush()
    from dflash_agent.main import main  # type: ignore[import-not-found]

    for guard in sys.argv[1:]:
        _dismiss(int(guard))
    sys.exit(main(**options))
