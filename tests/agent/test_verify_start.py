"""An interpreter that dies, or would hang, before it runs anything of ours: the reason that helps is told."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_console.agent.verify import find_spec as find_spec_part
from dflash_console.agent.verify.last_words import telling_line, why_not_started
from tests.agent.environments import make_venv, pythons
from tests.agent.test_verify_find_spec import find_spec, home, package
from tests.agent.verify_loop import checks, part, states
from tests.wheels import lay

__all__ = ["home"]


def interpreter(venv: Path, make: Callable[[Path], object]) -> None:
    """Another one in the interpreter's place."""
    for path in venv.glob("bin/python*"):
        path.unlink()
    make(venv / "bin/python")
    (venv / "bin/python").chmod(0o755)


def compiled(path: Path, source: str, *options: str) -> Path:
    """A program or a library from C."""
    path.with_suffix(".c").write_text(source)
    subprocess.run(["cc", "-o", str(path), str(path.with_suffix(".c")), *options], check=True, timeout=60)
    return path


# ---- what it prints


@pytest.mark.parametrize("minor", list(pythons()))
def test_a_wrong_pythonhome_is_named_with_pythons_own_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minor: str
) -> None:
    package(make_venv(tmp_path / "venv", pythons()[minor]))
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    check = find_spec(tmp_path / "venv")
    assert check.state == "fail"
    assert "the interpreter does not start (exit status 1): Fatal Python error: " in check.detail
    assert "ModuleNotFoundError: No module named 'encodings'" in check.detail
    assert check.detail.endswith(", PYTHONHOME = '/nowhere'")


def test_a_missing_shared_library_is_named(venv: Path, site: Path, tmp_path: Path) -> None:
    package(site)
    library = compiled(tmp_path / "libneeded.so", "int needed(void) { return 0; }", "-shared", "-fPIC")
    program = compiled(
        tmp_path / "program", "int needed(void); int main(void) { return needed(); }", str(library)
    )
    interpreter(venv, lambda path: shutil.copy(program, path))
    library.rename(tmp_path / "gone")
    check = find_spec(venv)
    assert check.state == "fail"
    assert "error while loading shared libraries: " in check.detail
    assert "libneeded.so: cannot open shared object file" in check.detail
    library.write_bytes(_of_other_class((tmp_path / "gone").read_bytes()))
    assert "wrong ELF class" in find_spec(venv).detail


def _of_other_class(data: bytes) -> bytes:
    """The file with the other of the two EI_CLASS in its header (elf(5))."""
    return data[:4] + bytes([3 - data[4]]) + data[5:]


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("", ""),
        ("python: /lib/libc.so.6: version `GLIBC_2.38' not found (required by python)\n",
         "python: /lib/libc.so.6: version `GLIBC_2.38' not found (required by python)"),
        ("a hint\npython: symbol lookup error: python: undefined symbol: x\nlater\n",
         "python: symbol lookup error: python: undefined symbol: x"),
        ("Error loading shared library libz.so: No such file (needed by python)\nError relocating x\n",
         "Error loading shared library libz.so: No such file (needed by python)"),
        ("Traceback (most recent call last):\n  File \"x\", line 1\nmod.OddError: no\n\nbye\n", "mod.OddError: no"),
        ("Fatal Python error: Py_Initialize: can't\n\nCurrent thread\n", "Fatal Python error: Py_Initialize: can't"),
        ("one\nlast words\n\n", "last words"),
    ],
)  # fmt: skip
def test_the_telling_line_is_taken(output: str, line: str) -> None:
    assert telling_line(output) == line


def test_one_that_is_killed_or_ends_in_silence_says_how(venv: Path, site: Path) -> None:
    package(site)
    interpreter(venv, lambda path: path.write_text("#!/bin/sh\nkill -9 $$\n"))
    words = "the interpreter does not start (killed by SIGKILL), and says nothing"
    assert find_spec(venv).detail == words
    (venv / "bin/python").write_text("#!/bin/sh\nexit 0\n")
    assert find_spec(venv).detail == "the interpreter does not start (exit status 0), and says nothing"


# ---- what the system says


def test_what_a_program_lacks_to_be_run_by_is_told_from_the_program_itself(venv: Path, site: Path) -> None:
    package(site)
    interpreter(venv, lambda path: path.write_text("#!/nowhere/python -E\n"))
    python = venv / "bin/python"
    assert find_spec(venv).detail == (
        f"the interpreter can't be started: {python} is there, but /nowhere/python, which its first line names, "
        "is not"
    )
    source = Path(os.path.realpath(sys.executable)).read_bytes()
    loader = next(part for part in source[:8192].split(b"\0") if part.startswith(b"/lib") and b"/ld" in part)
    python.write_bytes(source.replace(loader, loader.replace(b"/l", b"/x", 1), 1))
    assert f"its loader {loader.replace(b'/l', b'/x', 1).decode()} is not" in find_spec(venv).detail


def test_a_program_for_another_machine_or_none_at_all_is_told(venv: Path, site: Path) -> None:
    package(site)
    python = venv / "bin/python"
    data = bytearray(Path(os.path.realpath(sys.executable)).read_bytes()[:4096])
    data[18:20] = (183 if platform.machine() != "aarch64" else 62).to_bytes(2, "little")
    interpreter(venv, lambda path: path.write_bytes(data))
    other = "aarch64" if platform.machine() != "aarch64" else "x86_64"
    assert find_spec(venv).detail.endswith(f"it is for {other}, this machine is {platform.machine()}")
    python.write_bytes(b"")
    assert find_spec(venv).detail.endswith(": it is empty")
    python.write_bytes(b"\0\1\2")
    assert find_spec(venv).detail.endswith(": it is no program")
    assert why_not_started("/x/python", "/elsewhere: Permission denied") == "/elsewhere: Permission denied"


# ---- what is no file


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        folder = os.open(path.parent, os.O_PATH)
        made.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)


KINDS: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": _socket,
    "a folder": Path.mkdir,
}
TREE = "0.5.13.post1"
INFO = f"sglang-{TREE}.dist-info"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "told_by"),
    [
        ("SITE/odd.pth", "python"),
        ("pyvenv.cfg", "python"),
        ("SITE/sglang/__init__.py", "origin"),
        ("SITE/sglang/srt/speculative/dflash_info.py", "modules"),
        (f"SITE/{INFO}/METADATA", "version"),
        (f"SITE/{INFO}/RECORD", "record"),
        (f"SITE/{INFO}/direct_url.json", "version"),
    ],
)
def test_what_is_no_file_is_named_with_its_kind(
    venv: Path, site: Path, name: str, told_by: str, kind: str
) -> None:
    lay(TREE, site)
    path = Path(name.replace("SITE", str(site))) if "SITE" in name else venv / name
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    found = checks(venv)
    assert found[told_by].state != "pass"
    assert path.name in found[told_by].detail
    assert f"{kind}, not a file" in found[told_by].detail


@pytest.mark.parametrize("kind", ["a FIFO", "a device"])
def test_python_is_not_started_where_it_would_wait_for_ever(
    venv: Path, site: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    package(site)
    monkeypatch.delattr(find_spec_part, "ask")
    KINDS[kind](site / "odd.pth")
    found, _ = part("find_spec", venv, limit=60.0)
    check = found["find_spec"]
    assert check.state == "fail"
    assert check.detail.startswith(f"Python can't start here: {site}/odd.pth is {kind}, not a file: Python ")
    assert checks(venv)["python"].detail.startswith(f"{site}/odd.pth is {kind}, not a file: Python ")


def test_what_python_passes_over_or_finds_empty_stops_nothing(venv: Path, site: Path) -> None:
    package(site)
    (site / "null.pth").symlink_to("/dev/null")
    (site / "folder.pth").mkdir()
    assert find_spec(venv).state == "pass"
    found = checks(venv)
    assert found["python"].state == "warn"
    assert "null.pth" not in found["python"].detail
    (site / "folder.pth").rmdir()
    assert "python" not in states(checks(venv))


def test_an_interpreter_that_hangs_before_our_script_is_told_from_an_import_that_does(
    venv: Path, site: Path
) -> None:
    package(site)
    (site / "slow.pth").write_text("import time; time.sleep(1000)\n")
    check = find_spec(venv, limit=1.0)
    assert (check.state, check.detail) == (
        "unknown",
        "no answer within 1 s: Python hangs before it runs anything of ours",
    )


def test_the_shipped_words_of_a_real_interpreter_are_understood(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONHOME": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", ""], env=environment, capture_output=True, text=True, check=False
    )
    assert "No module named 'encodings'" in telling_line(done.stderr, "/nowhere")
