"""A stand-in for NVIDIA's driver: `build` compiles libnvidia-ml.so.1, `State` is what it answers from.

The library's C file documents the state file. `write_smi` makes an nvidia-smi that prints recorded text.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

__all__ = ["ENVIRONMENT", "STATE_PATH", "StandinGpu", "State", "build", "write_smi"]

SOURCE = Path(__file__).with_name("libnvidia-ml.c")
ENVIRONMENT = "DFLASH_NVML_STATE"
"""The variable that names the state file; for programs that can be given an environment."""

STATE_PATH = Path("/run/standin-nvml/state")
"""Where the library looks without that variable."""


def build(folder: Path, *, is_old: bool = False) -> Path:
    """Compiles libnvidia-ml.so.1 into a folder and gives its path: for LD_LIBRARY_PATH, or copied to
    /usr/lib with an ldconfig after it. `is_old` leaves out the functions of newer drivers. Raises
    CalledProcessError, or FileNotFoundError without a C compiler."""
    library = folder / "libnvidia-ml.so.1"
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-DOLD_DRIVER"] if is_old else []
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-O2",
        *options,
        "-Wl,-soname,libnvidia-ml.so.1",
        "-o",
        str(library),
        str(SOURCE),
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


@dataclass(frozen=True)
class StandinGpu:
    """One GPU of the stand-in. What is None has the C file's default, that of an idle card."""

    name: str = "NVIDIA RTX A6000"
    uuid: str | None = None
    bus: str | None = None
    utilization: int = 0
    temperature: int = 31
    power: float = 16.0
    """Watts."""
    power_limit: float = 300.0
    memory_total: int = 49140 << 20
    memory_used: int = 0
    memory_reserved: int = 638 << 20
    pstate: int = 8
    persistence: bool = True
    mig: bool = False
    reasons: int = 1
    """The mask of clocks event reasons; 1 is an idle GPU."""
    pcie: tuple[int, int, int, int] = (16, 16, 1, 4)
    """Width, its maximum, generation, its maximum."""
    ecc: tuple[int, int] = (0, 0)
    """Corrected, uncorrected."""
    remap: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Corrected, uncorrected, pending, failure."""
    processes: tuple[tuple[int, int] | tuple[int, int, str] | tuple[int, int, str, int], ...] = ()
    """(pid, bytes or -1 for not available[, "compute" or "graphics"[, MIG instance]])."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Call by its name without `nvmlDevice`, or `*` -> error number."""
    hangs: Iterable[str] = ()
    """Calls, or `*`, that wait in state D until the state changes."""
    lines: Iterable[str] = ()
    """Further lines of the state file, such as `field 230 uint 1`."""

    def text(self) -> str:
        """The GPU's lines of the state file."""
        lines = ["gpu", f"name {self.name}"]
        lines += [
            f"{key} {value}" for key, value in (("uuid", self.uuid), ("bus", self.bus)) if value is not None
        ]
        lines += [f"{key} {int(getattr(self, key))}" for key in _NUMBERS]
        lines += [f"power {self.power * 1000:.0f}", f"power_limit {self.power_limit * 1000:.0f}"]
        lines += [f"{key} {' '.join(map(str, getattr(self, key)))}" for key in ("pcie", "ecc", "remap")]
        lines += [f"process {' '.join(map(str, process))}" for process in self.processes]
        lines += [f"error {call} {number}" for call, number in self.errors.items()]
        lines += [f"hang {call}" for call in self.hangs]
        return "\n".join([*lines, *self.lines])


_NUMBERS = (
    "utilization",
    "temperature",
    "memory_total",
    "memory_used",
    "memory_reserved",
    "pstate",
    "persistence",
    "mig",
    "reasons",
)


@dataclass
class State:
    """The state file. A change is seen by the library at its next call."""

    path: Path
    gpus: tuple[StandinGpu, ...] = ()
    driver: str = "580.95.05"
    library: str = "580.95.05"
    errors: Mapping[str, int] = field(default_factory=dict)
    """Calls of no GPU by their name without `nvml` (`InitWithFlags`, `DeviceGetCount_v2`) -> error number."""
    hangs: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def text(self) -> str:
        """The whole file."""
        lines = [f"driver {self.driver}", f"library {self.library}"]
        lines += [f"error {call} {number}" for call, number in self.errors.items()]
        lines += [f"hang {call}" for call in self.hangs]
        return "\n".join([*lines, *self.lines, *(gpu.text() for gpu in self.gpus)]) + "\n"

    def write(self) -> None:
        """Puts the file there as a whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(self.path.name + ".new")
        beside.write_text(self.text())
        os.replace(beside, self.path)

    def set(self, index: int, **changes: object) -> None:
        """Changes fields of one GPU and writes the file."""
        gpus = list(self.gpus)
        gpus[index] = replace(gpus[index], **changes)  # type: ignore[arg-type]
        self.gpus = tuple(gpus)
        self.write()


def write_smi(folder: Path, answers: Mapping[str, tuple[int, str]]) -> Path:
    """An nvidia-smi that prints recorded text: for the first key that is part of its command line, the exit
    code and the output. Another command line ends with code 2."""
    program = folder / "nvidia-smi"
    folder.mkdir(parents=True, exist_ok=True)
    branches = []
    for number, (part, (code, output)) in enumerate(answers.items()):
        text = folder / f"answer-{number}"
        text.write_text(output)
        branches.append(f'*"{part}"*) {shutil.which("cat")} "{text}"; exit {code};;')
    program.write_text('#!/bin/sh\ncase "$*" in\n' + "\n".join(branches) + "\nesac\nexit 2\n")
    program.chmod(0o755)
    return program
