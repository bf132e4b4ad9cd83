"""The libraries that a deep verification needs on a host: whole, importable from memory, small enough, old enough."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from dflash_console.agent.frames import INBOX_LIMIT
from dflash_console.errors import AgentFailed
from dflash_console.link import shipment
from dflash_console.link.frames import pack
from dflash_console.link.shipment import LIBRARIES, deep_modules
from tests.agent.environments import pythons

AGENT = Path(shipment.__file__).parents[1] / "agent"

# What a request `ship` comes to on the host: the packed sources join those that the agent's finder holds.
ON_THE_HOST = """
import base64, json, sys
boot = {"__name__": "boot"}
exec(compile(open(sys.argv[1]).read(), "boot.py", "exec"), boot)
modules = json.load(sys.stdin)
packed = {name: base64.b64decode(text).decode("latin-1") for name, text in modules.items()}
sys.meta_path.insert(0, boot["Finder"](packed))
from packaging.requirements import Requirement
from packaging.version import Version
from elftools.elf.elffile import ELFFile
from elftools.elf.hash import ELFHashTable, GNUHashTable
requirement = Requirement("torch[extra]>=2,<3; python_version > '3'")
assert requirement.specifier.contains("2.9.1+cu128"), requirement
assert Version("0.5.13.post1") > Version("0.5.13")
with open("/proc/self/exe", "rb") as file:
    assert ELFFile(file).elfclass in (32, 64)
for name in modules:
    if name.split(".")[0] == "elftools":
        __import__(name.rstrip("."))
files = {module.__file__ for name, module in sys.modules.items() if name.split(".")[0] in ("packaging", "elftools")}
assert not any(file.startswith("/") for file in files), files
print("well")
"""


@pytest.mark.parametrize("minor", sorted(pythons()))
def test_the_libraries_work_from_memory_on_every_python_at_hand(minor: str) -> None:
    done = subprocess.run(
        [pythons()[minor], "-I", "-S", "-B", "-W", "error", "-c", ON_THE_HOST, str(AGENT / "boot.py")],
        input=json.dumps(deep_modules()),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "well", done.stderr


def test_they_travel_in_one_frame_that_the_agent_takes() -> None:
    assert len(pack({"do": "ship", "id": 1, "modules": deep_modules()})) < INBOX_LIMIT


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_version_is_shipped_that_still_knows_the_oldest_python_of_a_host(name: str) -> None:
    # Newer ones of both want a newer Python, and an agent that can't import them could not say why.
    distribution = {"elftools": "pyelftools"}.get(name, name)
    wanted = importlib.metadata.metadata(distribution).json.get("requires_python", "")
    assert "3.8" in SpecifierSet(str(wanted))


def test_a_library_that_is_not_installed_is_named() -> None:
    with pytest.raises(AgentFailed, match="not_there_at_all"):
        deep_modules(("not_there_at_all",))


def test_what_needs_one_library_gets_one() -> None:
    assert {name.split(".")[0] for name in deep_modules(("packaging",))} == {"packaging"}


def test_packing_imports_nothing_of_them() -> None:
    script = (
        "import sys; from dflash_console.link.shipment import deep_modules; deep_modules();"
        "print([name for name in ('packaging', 'elftools') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
