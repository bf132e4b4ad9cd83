"""An agent with only its GPU section, over the stand-in driver."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from dflash_console.model import Gpu, GpuReport
from tests.agent.driver import SPEC, Agent, children_of
from tests.nvml import ENVIRONMENT, State

__all__ = ["GpuAgent", "reason"]

INTERVAL = 0.05
PROGRAM = """
import sys
from dflash_console.agent import main
from dflash_console.agent.gpu import GpuSection
{before}
main.SECTIONS.clear()
main.SECTIONS["gpu"] = lambda: GpuSection(hung_after={hung_after}, root={root!r})
sys.exit(main.main(30.0))
"""


class GpuAgent:
    """A running agent. `libraries` is a folder for the loader's path, `programs` one for PATH, `state` what
    the stand-in answers, `root` where the kernel's files are looked for, `before` program text that runs
    first."""

    def __init__(
        self,
        state: State | None,
        libraries: Path | None,
        *,
        programs: Path | None = None,
        root: Path | None = None,
        hung_after: float = 60.0,
        before: str = "",
    ) -> None:
        environment = dict(os.environ)
        if state is not None:
            state.write()
            environment[ENVIRONMENT] = str(state.path)
        if libraries is not None:
            environment["LD_LIBRARY_PATH"] = str(libraries)
        if programs is not None:
            environment["PATH"] = f"{programs}:{environment['PATH']}"
        pipe = subprocess.PIPE
        program = PROGRAM.format(hung_after=hung_after, root=str(root or "/"), before=before)
        command = [sys.executable, "-c", program]
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=Path(__file__).parents[2]
        )
        self.agent = Agent(process)
        self.pid = process.pid
        self.agent.answer("watch", **{**SPEC, "interval": INTERVAL})

    def __enter__(self) -> GpuAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.agent.close()

    @property
    def reader(self) -> int:
        """The pid of the child that reads."""
        (pid,) = children_of(self.pid)
        return pid

    def report(self, look: Callable[[GpuReport], object] = lambda report: True) -> GpuReport:
        """The first report from now on that pleases the look."""
        found: GpuReport = self.agent.section("gpu", look)
        return found

    def gpu(self, index: int, look: Callable[[Gpu], object]) -> Gpu:
        """GPU `index` of the first report in which it pleases the look."""
        report = self.report(lambda report: len(report.gpus) > index and look(report.gpus[index]))
        return report.gpus[index]


def reason(cell: object) -> str | None:
    """The reason that stands in a cell; None when a value does."""
    return getattr(cell, "missing", None)
