"""The deep parts on every Python that a host may have: each tells the same of the same environment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dflash_console.link.shipment import deep_modules
from tests.agent.deep_venvs import healthy, write_torch
from tests.agent.environments import pythons
from tests.compiled import library

ROOT = Path(__file__).parents[2]

# As on a host: the libraries come from memory, nothing from any site-packages.
PROGRAM = """
import base64, json, sys
task = json.load(sys.stdin)
boot = {"__name__": "boot"}
exec(compile(open(task["root"] + "/dflash_console/agent/boot.py").read(), "boot.py", "exec"), boot)
packed = {name: base64.b64decode(text).decode("latin-1") for name, text in task["modules"].items()}
sys.meta_path.insert(0, boot["Finder"](packed))
sys.path.insert(0, task["root"])
from dflash_console.agent.deep import PARTS, work_of
class Channel:
    def send(self, value):
        answers.append(value)
answers = []
for part in PARTS:
    work_of(part)(Channel(), task["message"])
print(json.dumps(answers))
"""


def answers(python: str, venv: Path) -> list[dict[str, Any]]:
    message = {
        "venv": str(venv),
        "package": "sglang",
        "modules": [["sglang.small"]],
        "limit": 60,
        "units": [],
    }
    task = {"root": str(ROOT), "modules": deep_modules(), "message": message}
    done = subprocess.run(
        [python, "-I", "-S", "-B", "-W", "error", "-c", PROGRAM],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    # How long an import took.
    for check in found[2]["checks"]:
        check["detail"] = check["detail"].rpartition(" in ")[0]
    return found


@pytest.mark.parametrize("minor", sorted(pythons()))
def test_each_python_tells_the_same(tmp_path: Path, minor: str) -> None:
    site = healthy(tmp_path / "venv")
    (site / "sglang/__init__.py").unlink()
    (site / "sglang/__init__.py").write_text("")
    (site / "sglang/small.py").write_text("")
    write_torch(site, "2.9.1+cu128", "12.8")
    library(site / "torch/lib/libc10.so", soname="libc10.so", source="int _ZN3c103hasEv(void) { return 1; }")
    source = "int _ZN3c103hasEv(void), _ZN3c104lackEv(void);"
    source += "int f(void) { return _ZN3c103hasEv() + _ZN3c104lackEv(); }"
    library(site / "sgl_kernel/common_ops.abi3.so", source=source, needed=[site / "torch/lib/libc10.so"])
    ours, theirs = answers(sys.executable, tmp_path / "venv"), answers(pythons()[minor], tmp_path / "venv")
    assert theirs == ours
    states = {check["name"]: check["state"] for answer in ours for check in answer["checks"]}
    assert (states["requires"], states["symbols"], states["import sglang.small"]) == ("pass", "fail", "pass")
