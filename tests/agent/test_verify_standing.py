"""Which file stands for a module where several could, and whether a compiled one can be loaded at all."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_console.agent.verify.loadable import why_not_loaded
from dflash_console.verdict import Check
from tests.agent.test_verify_files import home
from tests.agent.test_verify_find_spec import find_spec, package
from tests.agent.verify_loop import checks
from tests.wheels import wheel

__all__ = ["home"]

TREE = "0.5.13.post1"
LIBRARY = "sglang/srt/grpc/_core.cpython-311-x86_64-linux-gnu.so"
SUFFIX = f".cpython-{sys.version_info[0]}{sys.version_info[1]}-x86_64-linux-gnu.so"
HIDDEN = "sglang/srt/server_args"

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the wheels' libraries are for x86-64")


def record(venv: Path) -> Check:
    return checks(venv)["record"]


def vouch(site: Path) -> Path:
    """Writes a dist-info that lists the package as it is; the folder."""
    info = site / "sglang-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: sglang\nVersion: 1.0\n")
    (site / "sglang/version.py").write_text("__version__ = '1.0'\n")
    rows = []
    for path in sorted(path for path in (site / "sglang").rglob("*") if path.is_file()):
        hashed = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")
        rows.append(f"{path.relative_to(site)},sha256={hashed},{path.stat().st_size}")
    (info / "RECORD").write_text("\n".join([*rows, "sglang-1.0.dist-info/METADATA,,", ""]))
    return info


@pytest.fixture
def info(site: Path) -> Path:
    """The dist-info of a small package with a library and a module that can be hidden."""
    package(site)
    (site / HIDDEN).with_suffix(".py").write_text("x = 1\n")
    replace(site / LIBRARY, library())
    return vouch(site)


def library() -> bytes:
    return (wheel(TREE) / LIBRARY).read_bytes()


def replace(path: Path, data: bytes) -> None:
    """Another file in its place: the tree is of hard links."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def is_imported(venv: Path, module: str) -> bool:
    """By the interpreter itself."""
    command = [str(venv / "bin/python"), "-c", f"import {module}"]
    return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode == 0


# ---- libraries


def other_machine(data: bytes) -> bytes:
    return data[:0x12] + (183).to_bytes(2, "little") + data[0x14:]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda data: data[: len(data) // 2], "it is cut off: "),
        (lambda data: data[:30], "it is cut off after 30 bytes"),
        (lambda data: b"version https://git-lfs.github.com/spec/v1\n", "it is no library"),
        (other_machine, "it is for aarch64, this machine is x86_64"),
    ],
)
def test_a_library_that_the_loader_would_refuse_is_damage(
    venv: Path, site: Path, info: Path, spoil: object, words: str
) -> None:
    assert callable(spoil)
    replace(site / LIBRARY, spoil(library()))
    found = record(venv)
    assert found.state == "fail", found
    assert found.detail.startswith(f"damaged: {site / LIBRARY} can't be loaded: {words}")
    shutil.rmtree(info)
    assert record(venv).state == "fail"
    replace(site / LIBRARY, library())
    assert record(venv).state == "unknown"


def test_a_library_that_lost_only_what_no_loader_reads_is_none(tmp_path: Path) -> None:
    data = library()
    path = tmp_path / "x.so"
    path.write_bytes(data)
    assert why_not_loaded(str(path), len(data)) == ""
    sections = int.from_bytes(data[0x28:0x30], "little")
    path.write_bytes(data[:sections])
    assert why_not_loaded(str(path), sections) == ""


def test_a_listed_module_that_can_not_be_loaded_fails_however_it_is_compiled(venv: Path, site: Path) -> None:
    package(site)
    (site / "sglang/srt/speculative/dflash_worker.so").write_bytes(b"\x7fELF and no more")
    found = find_spec(venv)
    assert found.state == "fail"
    assert "speculative/dflash_worker.so can't be loaded: it is cut off after 16 bytes" in found.detail
    (site / "sglang/srt/speculative/dflash_worker.so").unlink()
    source = site / "sglang/srt/speculative/dflash_worker.py"
    compiled = [str(venv / "bin/python"), "-m", "compileall", "-b", "-q", str(source)]
    subprocess.run(compiled, check=True, timeout=60)
    source.unlink()
    assert find_spec(venv).state == "pass"
    assert record(venv).state == "unknown"
    bytecode = source.with_suffix(".pyc")
    replace(bytecode, b"\1\2\3\4" + bytecode.read_bytes()[4:])
    assert not is_imported(venv, "sglang.srt.speculative.dflash_worker")
    for check in (find_spec(venv), record(venv)):
        assert check.state == "fail"
        assert f"{bytecode} can't be loaded: ValueError: it is bytecode of another Python" in check.detail


# ---- one in the place of another


@pytest.mark.parametrize("name", [f"{HIDDEN}/__init__.py", f"{HIDDEN}{SUFFIX}", f"{HIDDEN}.abi3.so"])
def test_what_is_empty_and_comes_before_a_module_fails(venv: Path, site: Path, info: Path, name: str) -> None:
    replace(site / name, b"")
    found = record(venv)
    assert (found.state, found.detail) == ("fail", f"1 empty in the place of another ({name})")
    shutil.rmtree(info)
    found = record(venv)
    assert found.state == "fail"
    assert found.detail.startswith(f"empty: {name.partition('/')[2]}")
    (site / name).unlink()
    assert record(venv).state == "unknown"


@pytest.mark.usefixtures("info")
def test_what_is_empty_and_comes_behind_a_module_does_no_harm(venv: Path, site: Path) -> None:
    replace(site / f"{HIDDEN}.pyc", b"")
    found = record(venv)
    assert (found.state, found.detail) == ("warn", f"1 extra ({HIDDEN}.pyc): patched or damaged")


@pytest.mark.usefixtures("info")
def test_a_library_in_the_place_of_a_module_has_to_be_one(venv: Path, site: Path) -> None:
    replace(site / f"{HIDDEN}.abi3.so", b"\x7fELF and no more")
    assert record(venv).state == "fail"
    replace(site / f"{HIDDEN}.abi3.so", library())
    assert record(venv).state == "warn"
    replace(site / f"{HIDDEN}.abi3.so", b"")
    (site / f"{HIDDEN}.abi3.so").unlink()
    replace(site / "sglang/srt/notes.abi3.so", b"\x7fELF and no more")
    assert record(venv).state == "warn"


def test_a_package_of_bytecode_alone_warns(venv: Path, site: Path) -> None:
    package(site)
    vouch(site)
    sources = sorted((site / "sglang").rglob("*.py"))
    compiled = [str(venv / "bin/python"), "-m", "compileall", "-b", "-q", str(site / "sglang")]
    subprocess.run(compiled, check=True, timeout=60)
    for path in sources:
        path.unlink()
    assert is_imported(venv, "sglang.srt.speculative.dflash_worker")
    assert find_spec(venv).state == "pass"
    assert record(venv).state == "warn", record(venv)
    (site / "sglang/srt/speculative/dflash_utils.pyc").unlink()
    assert record(venv).state == "fail"
