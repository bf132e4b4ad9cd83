"""Trees for which no RECORD vouches: what is cut off, emptied or absent is found all the same; and bytecode that is
not of its source, however it came there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dflash_console.agent.verify import compiling, files
from dflash_console.agent.verify.compiling_program import PROGRAM
from dflash_console.verdict import Check
from tests.agent.environments import make_venv, pythons
from tests.agent.test_verify_files import home, install, replace
from tests.agent.test_verify_find_spec import package
from tests.agent.test_verify_standing import vouch
from tests.agent.verify_loop import checks, part, states
from tests.waiting import until_sync
from tests.wheels import lay, wheel

__all__ = ["home"]

TREE = "0.5.13.post1"
SPECULATIVE = "sglang/srt/speculative"


def lay_split(site: Path) -> None:
    """A tree over another version's dist-info, as a copy leaves it."""
    lay(TREE, site)
    shutil.rmtree(site / f"sglang-{TREE}.dist-info")
    shutil.copytree(wheel("0.5.9") / "sglang-0.5.9.dist-info", site / "sglang-0.5.9.dist-info")


def record(venv: Path, **fields: object) -> Check:
    return checks(venv, **fields)["record"]


# ---- real trees


def test_a_real_tree_over_another_dist_info_is_compiled_and_followed(venv: Path, site: Path) -> None:
    lay_split(site)
    found = record(venv)
    assert (found.state, found.detail) == (
        "unknown",
        f"RECORD is of 0.5.9 and can't vouch for a tree of {TREE}",
    )
    assert any(line.endswith(" files that it does not vouch for compiled") for line in found.evidence)
    path = site / "sglang/srt/managers/schedule_batch.py"
    text = path.read_text()
    replace(path, text[: text.index("(", len(text) // 2) + 1])
    cut = record(venv)
    assert cut.state == "fail"
    assert cut.detail.startswith(f"damaged: {path} does not compile: SyntaxError at line ")
    path.unlink()
    absent = record(venv)
    assert absent.state == "fail"
    assert absent.detail.startswith("cut off: there is no sglang.srt.managers.schedule_batch, which ")


@pytest.mark.parametrize("version", ["0.5.9", "0.5.23"])
def test_a_real_tree_without_a_dist_info_has_nothing_absent(venv: Path, site: Path, version: str) -> None:
    lay(version, site)
    shutil.rmtree(site / f"sglang-{version}.dist-info")
    found = record(venv, limit=300.0)
    assert (found.state, found.detail) == ("unknown", "no dist-info beside the package")


# ---- small ones


@pytest.mark.parametrize(
    ("name", "text", "state", "words"),
    [
        ("late.py", "x = (1,\n", "fail", "damaged: {site}/sglang/late.py does not compile: SyntaxError at line 1"),
        ("late.py", "x = 1\n\0\0\0", "fail", "damaged: {site}/sglang/late.py does not compile: "),
        ("late.py", "", "warn", "empty: late.py; no dist-info beside the package"),
        ("test/late.py", "", "unknown", "no dist-info beside the package"),
        ("lib/__init__.py", "", "unknown", "no dist-info beside the package"),
        ("_core.abi3.so", "", "fail", "empty: _core.abi3.so; no dist-info beside the package"),
        ("__init__.py", "from .gone import x\n", "fail",
         "cut off: there is no sglang.gone, which {site}/sglang/__init__.py:1 imports"),
        ("__init__.py", "from . import srt, gone\nimport sglang.srt.speculative\n", "unknown", "no dist-info"),
        ("__init__.py", "from sglang.srt.speculative.dflash_info import gone\n", "fail",
         "cut off: there is no sglang.srt.speculative.dflash_info.gone, which "),
        ("__init__.py", "import torch, sglangs.gone\n", "unknown", "no dist-info"),
        ("__init__.py", "try:\n    import sglang.gone\nexcept ImportError:\n    pass\n", "unknown", "no dist-info"),
        ("__init__.py", "def f():\n    import sglang.gone\n", "unknown", "no dist-info"),
        (f"{SPECULATIVE[7:]}/dflash_worker.py", "from .dflash_info import x\nfrom ..gone.x import y\n", "fail",
         "cut off: there is no sglang.srt.gone.x, which {site}/" + SPECULATIVE + "/dflash_worker.py:2 imports"),
        ("launch_server.py", "import sglang.srt.gone\n", "fail", "cut off: there is no sglang.srt.gone"),
        ("late.py", "import sglang.gone\n", "unknown", "no dist-info"),
    ],
)  # fmt: skip
def test_what_is_cut_off_emptied_or_absent_without_a_record_is_named(
    venv: Path, site: Path, name: str, text: str, state: str, words: str
) -> None:
    package(site)
    path = site / "sglang" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    found = record(venv)
    assert found.state == state, found
    assert found.detail.startswith(words.format(site=site))


def test_an_empty_library_beside_one_that_is_none_is_no_damage(venv: Path, site: Path) -> None:
    package(site)
    (site / "sglang/_core.abi3.so").touch()
    library = "_core.cpython-311-x86_64-linux-gnu.so"
    shutil.copy(wheel(TREE) / "sglang/srt/grpc" / library, site / "sglang" / library)
    assert record(venv).state == "unknown"


def test_what_there_was_no_time_for_is_counted(
    venv: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(site)
    for number in range(40):
        (site / f"sglang/m{number}.py").write_text("x = 1\n")
    slow = PROGRAM.replace("def read(path):\n", "def read(path):\n    time.sleep(0.2)\n")
    assert slow != PROGRAM
    monkeypatch.setattr(compiling, "PROGRAM", slow)
    found = record(venv, limit=1.0)
    assert found.state == "unknown"
    assert " of 44 files not compiled: there was no time for more" in found.detail


def test_a_brief_look_says_what_is_left_and_the_next_one_goes_on_there(
    venv: Path, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(site)
    names = [f"m{number:02}" for number in range(8)]
    for name, following in zip(names, [*names[1:], "gone"], strict=True):
        (site / f"sglang/{name}.py").write_text(f"from . import {following}\n")
    (site / "sglang/m07.py").write_text("import sglang.gone\n")
    (site / "sglang/__init__.py").write_text("from . import m00\n")
    (site / "sglang/zz.py").write_text("x = (\n")
    # One file a look: the time is over as soon as one was read.
    reads = tmp_path / "reads"
    one = PROGRAM.replace(
        "def read(path):\n",
        f"def read(path):\n    global UNTIL\n    UNTIL = 0\n    open({str(reads)!r}, 'a').write(path + '\\n')\n",
    )
    assert one != PROGRAM
    monkeypatch.setattr(compiling, "PROGRAM", one)
    told = []

    def is_finished() -> bool:
        told.append(record(venv, brief=1.5))
        return "not looked at yet" not in "".join((told[-1].detail, *told[-1].evidence))

    until_sync(is_finished, 60, "all files were looked at")
    assert "files not looked at yet: v again, or V (--deep), looks at more" in told[0].detail
    assert told[0].state == "unknown"
    assert any("cut off: there is no sglang.gone, which " in check.detail for check in told)
    assert told[-1].state == "fail"
    assert told[-1].detail.startswith(f"damaged: {site}/sglang/zz.py does not compile: ")
    # A look at files that have just changed is not kept; from then on each is read once.
    lines = reads.read_text().split("\n")[:-1]
    assert set(lines[-len(set(lines)) :]) == set(lines)
    assert record(venv, brief=1.5) == told[-1]
    assert reads.read_text().split("\n")[:-1] == lines


def test_an_import_starts_from_the_modules_that_are_listed_now(venv: Path, site: Path) -> None:
    package(site)
    (site / "sglang/other.py").write_text("import sglang.gone\n")
    young = {"modules": [["sglang.srt.speculative.dflash_info"]]}
    until_sync(lambda: _is_kept(venv, **young), 30, "the checks are kept")
    assert record(venv, **young).state == "unknown"
    listed = record(venv, modules=[["sglang.other"]])
    assert listed.detail.startswith("cut off: there is no sglang.gone, which ")


def _is_kept(venv: Path, **fields: object) -> bool:
    record(venv, **fields)
    return (str(venv), "sglang") in files._kept


# ---- drafts beside what a RECORD lists


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("srt/draft.py", "warn"),
        ("srt/server_args/__init__.py", "fail"),
        ("srt/utils.py", "warn"),
        ("srt/server_args.py", "fail"),
        (f"{SPECULATIVE[7:]}/dflash_info.py", "fail"),
        ("srt/speculative/__init__.py", "fail"),
    ],
)
def test_only_what_matters_fails_for_not_compiling(venv: Path, site: Path, name: str, state: str) -> None:
    lay(TREE, site)
    path = site / "sglang" / name
    path.parent.mkdir(exist_ok=True)
    replace(path, "x = (\n")
    found = record(venv)
    assert found.state == state, found
    if state == "fail":
        assert found.detail.startswith(f"damaged: {path} does not compile: ")
    else:
        assert f"1 extra that does not compile (sglang/{name})" in found.detail
    assert any(line.startswith(f"{path} does not compile: ") for line in found.evidence)


@pytest.mark.parametrize(
    "name", ["srt/server_args.py", "srt/__init__.py", "srt/grpc/_core.cpython-311-x86_64-linux-gnu.so"]
)
def test_what_was_emptied_by_its_record_fails_with_its_name(venv: Path, site: Path, name: str) -> None:
    lay(TREE, site)
    if not (site / "sglang" / name).exists():
        name = "srt/utils/__init__.py"
    replace(site / "sglang" / name, "")
    found = checks(venv)
    assert found["record"].state == "fail"
    assert found["record"].detail == f"1 emptied (sglang/{name})"


# ---- alternatives, and code that puts the package on the path


def test_an_empty_alternative_is_told_though_another_one_serves(venv: Path, site: Path) -> None:
    lay(TREE, site)
    path = site / SPECULATIVE / "dflash_worker_v2.py"
    path.touch()
    found = checks(venv)["modules"]
    assert found.state == "warn"
    assert found.detail.startswith(f"empty: {path}, though another one serves: dflash_worker, ")


def test_a_package_that_code_in_a_pth_file_adds_is_left_to_find_spec(
    venv: Path, site: Path, tmp_path: Path
) -> None:
    package(tmp_path / "other")
    (site / "distutils-precedence.pth").write_text("import os; x = 1\n")
    assert checks(venv)["origin"].state == "fail"
    (site / "more.pth").write_text(f"import sys; sys.path.append({str(tmp_path / 'other')!r})\n")
    found = checks(venv)
    assert (found["origin"].state, found["modules"].state) == ("warn", "warn")
    assert f"code in {site}/more.pth may put it on the path" in found["origin"].detail
    (told,) = part("find_spec", venv)[0].values()
    assert told.state == "pass"


# ---- bytecode

OLD, NEW = "value = 'old'\n", "value = 'new'\n"
SECOND = 1_700_000_000_000_000_000


def compile_with(venv: Path, path: Path, *options: str) -> Path:
    """The interpreter's own bytecode of a file."""
    subprocess.run([venv / "bin/python", *options, "-m", "compileall", "-q", path], check=True)
    (found,) = (path.parent / "__pycache__").glob(f"{path.stem}.*{'opt' if options else '311'}*.pyc")
    return found


def write(path: Path, text: str) -> None:
    replace(path, text)
    os.utime(path, ns=(SECOND, SECOND))


@pytest.mark.skipif("3.11" not in str(list(pythons())[:1]), reason="names of Python 3.11's bytecode")
@pytest.mark.parametrize("way", ["earlier", "kept", "anew", "moved"])
@pytest.mark.parametrize("options", [(), ("-O",), ("-OO",)])
def test_bytecode_that_is_not_of_its_source_is_found_however_it_came(
    venv: Path, site: Path, options: tuple[str, ...], way: str
) -> None:
    package(site)
    path = site / SPECULATIVE / "dflash_info.py"
    write(path, OLD)
    cached = compile_with(venv, path, *options)
    aside = site / "aside.pyc"
    if way == "earlier":
        write(path, NEW)
    else:
        cached.rename(aside)
        write(path, NEW)
        if way == "kept":
            shutil.copy2(aside, cached)
        elif way == "anew":
            shutil.copy(aside, cached)
        else:
            aside.rename(cached)
    found = checks(venv)["bytecode"]
    assert found.state == "fail", found
    assert found.evidence == (str(cached),)
    words = f"srt/speculative/dflash_info.py{f' ({options[0]})' if options else ''} is not of its source"
    assert words in found.detail
    write(path, OLD)
    again = checks(venv)["bytecode"]
    assert (again.state, again.detail) == ("pass", "1 file compared with the source, all alike")


@pytest.mark.parametrize("is_linked", [False, True])
def test_bytecode_below_a_source_that_is_as_it_was_installed_is_compared_too(
    venv: Path, site: Path, tmp_path: Path, is_linked: bool
) -> None:
    lay(TREE, site)
    path = site / "sglang/utils.py"
    first = tmp_path / "first.py"
    shutil.copy2(path, first)
    status, text = path.stat(), path.read_text()
    patched = text.replace("0", "1", 1)
    assert len(patched) == len(text)
    assert patched != text
    replace(path, patched)
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    subprocess.run([venv / "bin/python", "-m", "compileall", "-q", path], check=True)
    path.unlink()
    if is_linked:
        os.link(wheel(TREE) / "sglang/utils.py", path)
    else:
        shutil.copy2(first, path)
    found = checks(venv)
    assert found["record"].state == "pass"
    assert found["bytecode"].state == "fail"
    assert "the bytecode of utils.py is not of its source" in found["bytecode"].detail


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_the_bytecode_of_an_installer_is_above_suspicion(tmp_path: Path, tool: str) -> None:
    venv = install(TREE, tmp_path / "venv", tool)
    (site,) = venv.glob("lib/python3.*/site-packages")
    subprocess.run([venv / "bin/python", "-m", "compileall", "-q", site / "sglang/srt"], check=True)
    found = checks(venv)
    assert states(found) == {}
    assert found["bytecode"].detail == "none stale"


def test_bytecode_of_odd_constants_is_not_taken_for_another_sources(venv: Path, site: Path) -> None:
    package(site)
    path = site / SPECULATIVE / "dflash_info.py"
    write(
        path,
        "x = (1e999 - 1e999, {1, 2, 'a'} , -0.0, 0.0, b'x', 1j, ...)\ndef f(a, *, b=1):\n    return a in {3, 'b'}\n",
    )
    compile_with(venv, path)
    write(path, path.read_text())
    assert checks(venv)["bytecode"].detail == "1 file compared with the source, all alike"


@pytest.mark.parametrize("minor", list(pythons()))
def test_any_python_compiles(tmp_path: Path, minor: str) -> None:
    site = make_venv(tmp_path / "venv", pythons()[minor])
    package(site)
    (site / "sglang/late.py").write_text("x = (1,\n")
    assert record(tmp_path / "venv").detail.startswith(f"damaged: {site}/sglang/late.py does not compile: ")


# ---- patches, and what they import


def patched(site: Path, name: str, text: str) -> None:
    """A small package as its RECORD has it, and then another text in one file of it."""
    package(site)
    (site / "sglang/helper.py").write_text("there = 1\n")
    (site / f"sglang/{name}.py").write_text("x = 1\n")
    vouch(site)
    (site / f"sglang/{name}.py").write_text(text)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("from sglang.gone import x\n", "sglang.gone"),
        ("import sglang.gone.deep\n", "sglang.gone.deep"),
        ("from .helper import there, gone\n", "sglang.helper.gone"),
        ("from sglang.helper import there\nfrom sglang import helper, srt\n", ""),
        ("from sglang.helper import *\nfrom sglang.helper import __name__\n", ""),
        ("try:\n    from sglang.gone import x\nexcept ImportError:\n    pass\n", ""),
        ("def late():\n    from sglang.gone import x\n", ""),
    ],
)
def test_a_patch_that_imports_what_is_not_there_is_damage(
    venv: Path, site: Path, text: str, missing: str
) -> None:
    patched(site, "late", text)
    found = record(venv)
    assert found.state == ("fail" if missing else "warn"), found
    words = f"cut off: there is no {missing}, which {site}/sglang/late.py:1 imports"
    assert found.detail.startswith(words if missing else "1 changed")


@pytest.mark.parametrize(
    "code",
    [
        "if x:\n    gone = 1\n",
        "gone, y = 1, 2\n",
        "for gone in range(3):\n    pass\n",
        "import os as gone\n",
        "def f():\n    global other, gone\n    gone = 1\nf()\n",
        "def __getattr__(name):\n    return 1\n",
        "globals()['gone'] = 1\n",
        "from sglang import *\n",
        "class gone:\n    pass\n",
        "with open('/dev/null') as gone:\n    pass\n",
        "print(gone := 1)\n",
    ],
)
def test_a_name_that_a_module_may_have_by_any_way_is_not_said_to_be_gone(
    venv: Path, site: Path, code: str
) -> None:
    patched(site, "launch_server", "from sglang.helper import gone\n")
    assert record(venv).state == "fail"
    (site / "sglang/helper.py").write_text("x = 1\n" + code)
    assert record(venv).state == "warn", record(venv)


def test_bytecode_that_is_cut_off_fails_where_python_takes_it(venv: Path, site: Path) -> None:
    package(site)
    worker = site / f"{SPECULATIVE}/dflash_worker.py"
    os.utime(worker, (1_700_000_000, 1_700_000_000))
    compiled = [str(venv / "bin/python"), "-m", "compileall", "-q", str(site / "sglang")]
    subprocess.run(compiled, check=True, timeout=60)
    (bytecode,) = worker.parent.glob("__pycache__/dflash_worker.*.pyc")
    assert checks(venv)["bytecode"].state == "pass"
    assert part("find_spec", venv)[0]["find_spec"].state == "pass"
    bytecode.write_bytes(bytecode.read_bytes()[:-20])
    assert checks(venv)["bytecode"].state == "fail"
    typed = part("find_spec", venv)[0]["find_spec"]
    assert typed.state == "fail"
    assert f"{worker} does not compile: EOFError" in typed.detail


def test_a_source_that_is_too_deep_for_the_compiler_is_damage(venv: Path, site: Path) -> None:
    package(site)
    (site / "sglang/late.py").write_text("x = " + "+".join(["1"] * 100_000) + "\n")
    found = record(venv)
    python = str(venv / "bin/python")
    done = subprocess.run([python, "-c", "import sglang.late"], check=False, capture_output=True, timeout=60)
    assert (found.state == "fail") == (done.returncode != 0)
