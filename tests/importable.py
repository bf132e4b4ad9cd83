"""What sglang 0.5.13.post1 and 0.5.23 need to be imported without a GPU, laid once in the tests' cache by pip.

About 2.2 GB and a minute. An environment reaches it by a line in a .pth file, so that it costs only its own tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import pytest

from tests.wheels import cache, lay

__all__ = ["IMPORTABLE", "importable", "reach"]

IMPORTABLE = ("0.5.13.post1", "0.5.23")
NEEDED = (
    "torch==2.13.0",
    *(
        "numpy",
        "orjson",
        "psutil",
        "pybase64",
        "requests",
        "triton",
        "packaging",
        "pillow",
        "starlette",
        "tqdm",
    ),
    *("ipython", "pydantic", "aiohttp", "msgspec", "pyzmq"),
)


def importable() -> Path:
    """A folder with all that is needed but sglang itself. Shared: never change it. Skips on another Python than 3.11,
    for which there are no such wheels."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the wheels that sglang needs are for Python 3.11")
    folder = cache() / f"importable-3.11-{zlib.crc32(repr(NEEDED).encode()):08x}"
    if not folder.exists():
        cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=cache(), prefix=".importable-", ignore_cleanup_errors=True
        ) as name:
            made = Path(name) / "site"
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-compile",
                "--target",
                str(made),
                *NEEDED,
            ]
            subprocess.run(command, check=True, timeout=1200)
            _stand_in_for_torchvision(made)
            _compile(made, Path(name) / "sglang")
            shutil.move(made, folder)
    return folder


def reach(site: Path) -> None:
    """Let an environment, by its site-packages, import what sglang needs."""
    (site / "what-sglang-needs.pth").write_text(f"{importable()}\n")


def _stand_in_for_torchvision(site: Path) -> None:
    """The real one wants a torch for CUDA; sglang asks for one name of it."""
    (site / "torchvision").mkdir()
    (site / "torchvision" / "__init__.py").write_text("__version__ = '0.0'\n")
    (site / "torchvision" / "io.py").write_text("decode_jpeg = None\n")


def _compile(site: Path, tree: Path) -> None:
    """One import, which writes the bytecode of what it needs: a tenth of all that there is."""
    code = "import sys; sys.path[:0] = sys.argv[1:]; import sglang.srt.speculative"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for version in IMPORTABLE:
        lay(version, tree / version)
        command = [sys.executable, "-I", "-c", code, str(site), str(tree / version)]
        subprocess.run(command, check=True, timeout=300, env=environment, capture_output=True)
