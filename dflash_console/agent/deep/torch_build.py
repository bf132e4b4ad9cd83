"""The check `torch`: the torch that is here against the one that the package was used with where it comes from.

A Python tree alone works with another torch as far as its imports and calls do, which `requires` and `import` tell:
a difference is a warning. A compiled file in the tree that is linked against torch works with one minor version
only, and one linked against CUDA with one major version of that: there a difference is a failure.
"""

from __future__ import annotations

import re

from ..verify.checks import check, first_few

__all__ = ["check_torch"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .compiled import Compiled
    from .environment import Environment

TORCH = re.compile(r"lib(torch|c10)[_.a-z]*so", re.IGNORECASE)
CUDA = re.compile(r"lib(cudart|cublas|nvrtc|c10_cuda|torch_cuda)[^/]*\.so")


def check_torch(environment: Environment, files: list[Compiled], message: dict[str, Any]) -> dict[str, Any]:
    """The check."""
    here = environment.torch
    if not here:
        return check("torch", "fail", f"no torch in {environment.interpreter.prefix}")
    cuda = environment.torch_cuda
    lines = [f"here: torch {here}, built for {f'CUDA {cuda}' if cuda else 'no CUDA'}"]
    source = message.get("source") or {}
    there = source.get("torch")
    if not there:
        return check("torch", "pass", f"torch {here}", [*lines, "the source of the package is not known"])
    lines.append(
        f"there ({source.get('host') or 'source'}): torch {there}, Python {source.get('python') or 'not known'}"
    )
    if there == here:
        return check("torch", "pass", f"torch {here}, as where the package comes from", lines)
    differs = f"torch {here} here, the package comes from {there}"
    tree = f"{environment.tree}/"
    ours = [file for file in files if file.path.startswith(tree) and file.fits and file.library is not None]
    for what, pattern, one, other in (
        ("torch", TORCH, _minor(here), _minor(there)),
        ("CUDA", CUDA, _cuda_major(here), _cuda_major(there)),
    ):
        linked = [
            file.shown for file in ours if file.library and any(map(pattern.match, file.library.needed))
        ]
        if linked and one != other:
            return check(
                "torch", "fail", f"{differs}, and it brings {first_few(linked)}, linked against {what}", lines
            )
    if _minor(here) == _minor(there) and _cuda_major(here) == _cuda_major(there):
        return check("torch", "pass", f"{differs}: the same minor version and CUDA major", lines)
    return check(
        "torch", "warn", f"{differs}: `requires`, `minimums` and `import` tell whether that works", lines
    )


def _minor(version: str) -> str:
    return ".".join(version.partition("+")[0].split(".")[:2])


def _cuda_major(version: str) -> str:
    """`cu13` of `2.11.0+cu130`, the build's name where there is another."""
    build = version.partition("+")[2]
    return build[:-1] if re.fullmatch(r"cu\d{3,}", build) else build
