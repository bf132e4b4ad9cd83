"""Real virtual environments for the tests, and what their own interpreters say of them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["SPEC", "WORKER", "asked", "make_venv", "pythons"]

WORKER = "sglang.srt.speculative.dflash_worker"
SPEC: dict[str, object] = {
    "package": "sglang",
    "modules": [
        [WORKER, f"{WORKER}_v2"],
        ["sglang.srt.speculative.dflash_info"],
        ["sglang.srt.speculative.dflash_utils"],
    ],
    "distributions": ["sglang", "torch", "sglang-kernel", "sgl-kernel", "flashinfer-python", "transformers"],
    "venvs": None,
}
"""A WatchSpec, as far as environments need one."""


@functools.cache
def pythons() -> dict[str, str]:
    """The interpreters at hand from 3.8 up, by minor version; the one of this run among them."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = os.pathsep.join([os.environ.get("PATH", ""), *map(str, sorted(versions.glob("3.*/bin")))])
    found = {f"3.{sys.version_info.minor}": sys.executable}
    for minor in range(8, 15):
        name = f"python3.{minor}"
        for folder in places.split(os.pathsep):
            path = shutil.which(name, path=folder)
            if path and f"3.{minor}" not in found and _runs(path, f"3.{minor}"):
                found[f"3.{minor}"] = path
    return found


def _runs(path: str, version: str) -> bool:
    code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([path, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip() == version


def make_venv(folder: Path, python: str = sys.executable, *options: str) -> Path:
    """Makes an empty environment with the real venv module; gives back its site-packages."""
    command = [python, "-I", "-m", "venv", "--without-pip", *options, str(folder)]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    (site,) = (folder / "lib").glob("python3.*/site-packages")
    return site


WALK = """
import json, sys
from importlib.machinery import PathFinder

def walk(name):
    folders = None
    for leaf in name.split("."):
        if folders is None:
            specs = (finder.find_spec(leaf, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
            spec = next((spec for spec in specs if spec is not None), None)
        else:
            spec = PathFinder.find_spec(leaf, folders)
        if spec is None:
            return "absent"
        folders = spec.submodule_search_locations
        if folders is None:
            folders = []
        folders = list(folders)
    return spec.origin if spec.has_location else None

print(json.dumps([walk(name) for name in json.load(sys.stdin)]))
"""


def asked(venv: Path, names: list[str]) -> list[str | None]:
    """Where the environment's own interpreter finds modules, leaf by leaf, without importing any.

    An origin each, None for a namespace package, `absent` when there is none.
    """
    done = subprocess.run(
        [str(venv / "bin" / "python"), "-I", "-B", "-c", WALK],
        input=json.dumps(names),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer: list[str | None] = json.loads(done.stdout)
    return answer
