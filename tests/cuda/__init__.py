"""A stand-in for NVIDIA's libcuda.so.1: `build` compiles it, the state file's text is what it answers from.

The C file documents the state file. A program finds the library by LD_LIBRARY_PATH, the state by ENVIRONMENT.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["ENVIRONMENT", "build"]

SOURCE = Path(__file__).with_name("libcuda.c")
ENVIRONMENT = "DFLASH_CUDA_STATE"
"""The variable that names the state file."""


def build(folder: Path) -> Path:
    """Compiles libcuda.so.1 into a folder and gives its path. Raises CalledProcessError, or FileNotFoundError without a
    C compiler."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libcuda.so.1"
    command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*command, "-o", library, SOURCE], check=True, capture_output=True, text=True)
    return library
