"""Compiled files for the tests: those of real wheels, hollowed out, and small ones made here.

torch and the kernel package weigh half a gigabyte each as wheels, more than one unpacked. What can be learnt of a
library without loading it stands in a few of its sections: `real` keeps those at their places in a sparse file of
the same length, in the tests' cache, and drops the wheel.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from tests.wheels import cache

__all__ = ["FITTING", "OLDER", "TORCH", "lay_real", "library", "real"]

KEPT = (
    ".dynsym",
    ".dynstr",
    ".dynamic",
    ".gnu.hash",
    ".hash",
    ".gnu.version",
    ".gnu.version_r",
    ".gnu.version_d",
)
TORCH = "torch===2.13.0"
"""The build for CUDA, whatever other builds of that version an index has."""
FITTING = "sglang_kernel==0.4.6.post1"
"""Made for torch 2.13."""
OLDER = "sgl_kernel==0.3.21"
"""Made for torch 2.9."""
WANTED = {
    TORCH: (
        "torch/lib/libc10",
        "torch/lib/libtorch",
        "torch/lib/libshm",
        "torch/version.py",
        "torch/__init__.py",
    ),
    FITTING: ("sgl_kernel/sm", "sgl_kernel/spatial", "sgl_kernel/infllm_ops", "sgl_kernel/__init__.py"),
    OLDER: ("sgl_kernel/sm", "sgl_kernel/spatial", "sgl_kernel/__init__.py"),
}
"""How the names begin that are kept, besides the dist-info. Without the attention kernels, a gigabyte each."""


def real(requirement: str) -> Path:
    """A folder with what a real wheel installs, its libraries hollow. Shared: never change it."""
    tree = cache() / "hollow" / requirement.replace("=", "")
    if not tree.exists():
        tree.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=tree.parent, prefix=".making-", ignore_cleanup_errors=True
        ) as name:
            made = Path(name) / "tree"
            _unpack(_download(requirement, Path(name)), made, WANTED[requirement])
            with contextlib.suppress(OSError):  # another run was faster
                made.rename(tree)
    return tree


def lay_real(requirement: str, site: Path) -> None:
    """Put it into a site-packages folder, by links: never write into a file there."""
    shutil.copytree(real(requirement), site, dirs_exist_ok=True, copy_function=os.link)


def library(
    path: Path,
    *,
    soname: str = "",
    needed: Sequence[Path] = (),
    source: str = "",
    options: Sequence[str] = (),
) -> Path:
    """Compiles a small library that needs others (by their sonames). `source` is C."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-o", str(path), "-x", "none"]
    command += [f"-Wl,-soname,{soname}"] if soname else []
    command += ["-Wl,--no-as-needed", *options, *map(str, needed)]
    subprocess.run(command, input=source, check=True, capture_output=True, text=True)
    return path


def _download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += [
        "--python-version",
        "3.11",
        "--platform",
        "manylinux_2_28_x86_64",
        "--platform",
        "manylinux2014_x86_64",
    ]
    command += ["--only-binary=:all:", "--dest", str(folder), requirement]
    subprocess.run(command, check=True, timeout=900)
    (archive,) = folder.glob("*.whl")
    return archive


def _unpack(archive: Path, tree: Path, wanted: Sequence[str]) -> None:
    with zipfile.ZipFile(archive) as file:
        for name in file.namelist():
            if not name.startswith(tuple(wanted)) and ".dist-info/" not in name:
                continue
            whole = Path(file.extract(name, tree))
            if name.endswith(".so"):
                _hollow(whole)


def _hollow(whole: Path) -> None:
    """Replace a library by a sparse file of the same length with the headers and the sections in KEPT."""
    hollow = whole.with_suffix(".hollow")
    with whole.open("rb") as source, hollow.open("wb") as target:
        elf: Any = ELFFile(source)
        pieces = [(0, elf["e_phoff"] + elf["e_phnum"] * elf["e_phentsize"])]
        pieces.append((elf["e_shoff"], elf["e_shnum"] * elf["e_shentsize"]))
        names = elf.get_section(elf["e_shstrndx"])
        pieces.append((names["sh_offset"], names["sh_size"]))
        pieces += [(part["sh_offset"], part["sh_size"]) for part in elf.iter_sections() if part.name in KEPT]
        for place, length in pieces:
            source.seek(place)
            target.seek(place)
            target.write(source.read(length))
        target.truncate(whole.stat().st_size)
    hollow.replace(whole)
