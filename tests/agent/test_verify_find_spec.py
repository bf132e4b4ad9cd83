"""The hand-typed command's own answer, whatever an import does to the interpreter that asks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_console.agent.verify import find_spec as find_spec_module
from dflash_console.agent.verify import question
from dflash_console.agent.verify.checks import DETAIL_LIMIT
from dflash_console.verdict import Check
from tests.agent.dead_mount import dead_mount
from tests.agent.driver import PATIENCE, is_gone
from tests.agent.environments import SPEC, WORKER, make_venv, pythons
from tests.agent.verify_loop import part
from tests.importable import IMPORTABLE, reach
from tests.waiting import until_sync
from tests.wheels import lay

MODULES = ("dflash_worker", "dflash_info", "dflash_utils")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own, and a login without PYTHONPATH."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def package(folder: Path, code: str = "", modules: tuple[str, ...] = MODULES) -> Path:
    """A package of sglang's shape, with something of one's own in its __init__.py."""
    speculative = folder / "sglang/srt/speculative"
    speculative.mkdir(parents=True)
    (folder / "sglang/__init__.py").write_text(f"x = 1\n{code}\n")
    for name in modules:
        (speculative / f"{name}.py").write_text("x = 1\n")
    return folder / "sglang"


def find_spec(venv: Path, **fields: object) -> Check:
    """The one check of the part."""
    found, _ = part("find_spec", venv, **fields)
    (check,) = found.values()
    assert check.name == "find_spec"
    return check


def typed(venv: Path, home: Path, worker: str = "dflash_worker") -> str:
    """What the hand-typed command says."""
    script = "import importlib.util\nfor name in %r:\n    print(importlib.util.find_spec(name).origin)\n"
    names = ["sglang", *(f"sglang.srt.speculative.{name}" for name in (worker, *MODULES[1:]))]
    command = [str(venv / "bin/python"), "-"]
    done = subprocess.run(
        command, input=script % names, cwd=home, text=True, capture_output=True, check=True, timeout=120
    )
    return done.stdout


@pytest.mark.parametrize("version", IMPORTABLE)
def test_a_real_package_is_found_where_the_hand_typed_command_finds_it(
    venv: Path, site: Path, home: Path, version: str
) -> None:
    lay(version, site)
    reach(site)
    check = find_spec(venv)
    worker = "dflash_worker_v2" if version == "0.5.23" else "dflash_worker"
    assert check.state == "pass", check
    assert check.detail.startswith(f"{site}/sglang/__init__.py; {worker}, dflash_info, dflash_utils (")
    assert not list(site.rglob("sglang/**/__pycache__"))
    for origin in typed(venv, home, worker).split():
        assert any(line.endswith(f": {origin}") for line in check.evidence)


def test_a_real_package_without_what_it_needs_does_not_import(venv: Path, site: Path) -> None:
    lay(IMPORTABLE[0], site)
    check = find_spec(venv)
    assert check.state == "fail"
    assert check.detail.startswith(
        f"sglang itself does not import: ModuleNotFoundError: No module named 'numpy' ({site}/sglang/"
    )
    assert any("Traceback" in line for line in check.evidence)


def test_missing_is_told_from_an_import_that_fails(venv: Path, site: Path) -> None:
    assert find_spec(venv).detail == "missing: sglang itself"
    package(site, modules=("dflash_worker_v2", "dflash_info"))
    check = find_spec(venv)
    assert (check.state, check.detail) == ("fail", "missing: dflash_utils")
    shutil.rmtree(site / "sglang/srt/speculative")
    assert find_spec(venv).detail == "missing: dflash_worker or dflash_worker_v2, dflash_info, dflash_utils"
    (site / "sglang/srt/speculative.py").write_text("")
    assert find_spec(venv).detail.startswith("missing: dflash_worker")
    (site / "sglang/__init__.py").write_text("import sglang.gone\n")
    assert find_spec(venv).detail == (
        "sglang itself does not import: ModuleNotFoundError: No module named 'sglang.gone' "
        f"({site}/sglang/__init__.py:1)"
    )
    (site / "sglang/__init__.py").unlink()
    assert "no __init__.py" in find_spec(venv).detail


def test_either_alternative_will_do_and_a_mere_folder_will_not(venv: Path, site: Path) -> None:
    package(site)
    worker = site / "sglang/srt/speculative/dflash_worker.py"
    worker.unlink()
    worker.with_suffix("").mkdir()
    assert find_spec(venv).detail == "a folder without __init__.py in the place of dflash_worker"
    (worker.parent / "dflash_worker_v2.py").write_text("x = 1\n")
    assert (find_spec(venv).state, "dflash_worker_v2" in find_spec(venv).detail) == ("pass", True)


@pytest.mark.parametrize("text", ["", "x = (\n", "x = 1\n\0\0"])
@pytest.mark.parametrize("name", ["dflash_worker", "dflash_worker_v2"])
def test_a_broken_alternative_is_told_though_another_one_serves(
    venv: Path, site: Path, name: str, text: str
) -> None:
    package(site, modules=("dflash_worker_v2", *MODULES))
    path = site / f"sglang/srt/speculative/{name}.py"
    path.write_text(text)
    check = find_spec(venv)
    other = {"dflash_worker": "dflash_worker_v2", "dflash_worker_v2": "dflash_worker"}[name]
    assert check.state == "warn", check
    words = f"empty: {path}" if not text else f"{path} does not compile: "
    assert check.detail.startswith(words)
    assert any(line.startswith(f"sglang.srt.speculative.{name}: {path}: ") for line in check.evidence)
    assert any(line.startswith(f"{other}: ") for line in check.evidence)


def test_an_alternative_that_the_files_have_and_the_interpreter_does_not_take_names_both(
    venv: Path, site: Path
) -> None:
    package(site, modules=("dflash_worker_v2", *MODULES))
    code = "import sys\nsys.modules['sglang.srt.speculative.dflash_worker'] = None\n"
    (site / "sglang/srt/speculative/__init__.py").write_text(code)
    check = find_spec(venv)
    assert check.state == "fail", check
    assert "dflash_worker_v2.py, not /" in check.detail


@pytest.mark.parametrize("modules", [[], [["sglang"]]])
def test_the_package_itself_is_imported_when_no_module_of_it_is_listed(
    venv: Path, site: Path, modules: list[list[str]]
) -> None:
    package(site, "raise ValueError('no')")
    check = find_spec(venv, modules=modules)
    assert check.state == "fail"
    assert check.detail.startswith("sglang itself does not import: ValueError: no")
    (site / "sglang/__init__.py").write_text("x = 1\n")
    check = find_spec(venv, modules=modules)
    assert check.state == "pass", check
    shutil.rmtree(site / "sglang")
    assert find_spec(venv, modules=modules).detail == "missing: sglang itself"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise ValueError('Either a revision or a version\\nmust be specified.')",
         "ValueError: Either a revision or a version must be specified."),
        ("import sys; sys.exit(7)", "SystemExit: 7"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import os; os._exit(0)", "the import ended Python, exit status 0"),
        ("import os; os._exit(5)", "the import ended Python, exit status 5"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "the import ended Python, killed by SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "the import ended Python, killed by SIGSEGV"),
        ("def f():\n    f()\nf()", "RecursionError"),
        ("x = (", "SyntaxError"),
        ("class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd", "Odd"),
    ],
)  # fmt: skip
def test_an_import_that_fails_is_told_with_its_error(venv: Path, site: Path, code: str, words: str) -> None:
    package(site, code)
    check = find_spec(venv)
    assert check.state == "fail"
    assert check.detail.startswith(f"sglang itself does not import: {words}"), check
    if "SIGSEGV" in words:
        assert any("sglang/__init__.py" in line for line in check.evidence)


def test_an_import_that_prints_without_end_is_heard_to_its_end(venv: Path, site: Path) -> None:
    package(
        site,
        "import sys\nfor n in range(200000):\n    print('x' * 100, n, file=sys.stderr)\nprint('last words')",
    )
    check = find_spec(venv)
    assert check.state == "pass", check
    assert any("last words" in line for line in check.evidence)
    assert not any("Traceback" in line for line in check.evidence)


def test_an_import_that_closes_or_takes_every_stream_is_heard(venv: Path, site: Path) -> None:
    package(site, "import os, sys\nsys.stdout = sys.stderr = None\nos.close(1); os.close(2)")
    assert find_spec(venv).state == "pass"


@pytest.mark.parametrize(
    ("code", "state"),
    [
        ("import os\nos.close(3)", "pass"),
        ("import os\nos.close(3)\nf = open(os.devnull, 'w')\nassert f.fileno() == 3", "pass"),
        ("import os\nos.closerange(3, 4096)", "unknown"),
        ("import os\nos.closerange(3, 4096)\nf = open(__file__ + '.log', 'w')", "unknown"),
    ],
)
def test_an_import_that_closes_files_that_are_not_its_own_is_heard_or_unknown(
    venv: Path, site: Path, code: str, state: str
) -> None:
    package(site, code)
    check = find_spec(venv)
    assert check.state == state, check
    if state == "unknown":
        assert "closes files that are not its own" in check.detail
    log = site / "sglang/__init__.py.log"
    assert not log.exists() or log.read_bytes() == b""


def test_secrets_that_an_import_prints_are_not_told(venv: Path, site: Path) -> None:
    package(site, "print('HF_TOKEN=hf_abcdefABCDEF0123456789abcd')")
    check = find_spec(venv)
    assert any("HF_TOKEN=***" in line for line in check.evidence)


def test_an_import_that_hangs_is_unknown_and_says_where(venv: Path, site: Path, tmp_path: Path) -> None:
    code = (
        "import os, subprocess, threading, time\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "away = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write('%d %d %d' % (os.getpid(), child.pid, away.pid))\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "def wait_for_ever():\n    time.sleep(1000)\nwait_for_ever()"
    )
    package(site, code)
    check = find_spec(venv, limit=3.0)
    assert check.state == "unknown"
    assert check.detail.startswith("no answer within 3 s: the import hangs in "), check
    assert "in wait_for_ever" in check.detail
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    until_sync(lambda: all(is_gone(pid) for pid in pids), PATIENCE, "all that it started is gone")


def test_what_an_import_starts_and_leaves_behind_is_ended(venv: Path, site: Path, tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        f"        os.rename({str(tmp_path / 'pid')!r}, {str(tmp_path / 'done')!r})\n"
        "        time.sleep(1000)\n"
        "    os._exit(0)\n"
        f"while not os.path.exists({str(tmp_path / 'done')!r}): time.sleep(0.01)"
    )
    package(site, code)
    assert find_spec(venv).state == "pass"
    pid = int((tmp_path / "done").read_text())
    until_sync(lambda: is_gone(pid), PATIENCE, "the daemon is gone")


def test_it_lives_no_longer_than_the_agent(venv: Path, site: Path, tmp_path: Path) -> None:
    code = f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write('%d\\n' % os.getpid())\ntime.sleep(1000)"
    package(site, code)
    program = (
        "import sys, pathlib; from tests.agent.verify_loop import part\n"
        "part('find_spec', pathlib.Path(sys.argv[1]))"
    )
    agent = subprocess.Popen([sys.executable, "-c", program, str(venv)], cwd=Path(__file__).parents[2])
    until_sync(
        lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(), 60, "it imports"
    )
    pid = int((tmp_path / "pid").read_text())
    agent.send_signal(signal.SIGKILL)
    agent.wait(PATIENCE)
    until_sync(lambda: is_gone(pid), PATIENCE, "the interpreter is gone")


# ---- what comes first


def test_the_home_that_shadows_the_package_fails_and_names_both(venv: Path, site: Path, home: Path) -> None:
    package(site)
    (home / "sglang").mkdir()
    assert find_spec(venv).state == "pass"
    (home / "sglang/__init__.py").write_text("")
    check = find_spec(venv)
    assert check.state == "fail"
    first = f"the working directory {home} comes first: imports {home}/sglang/__init__.py, not /"
    assert check.detail.startswith(first)
    (home / "sglang/__init__.py").write_text("raise ValueError('no')")
    assert any("ValueError: no" in line for line in find_spec(venv).evidence)


def test_pythonpath_that_shadows_the_package_fails_and_is_named(
    venv: Path, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(site)
    other = package(tmp_path / "other")
    monkeypatch.setenv("PYTHONPATH", f"/nowhere:{tmp_path}/other")
    check = find_spec(venv)
    assert check.state == "fail"
    words = f"PYTHONPATH has {tmp_path}/other: imports {other}/__init__.py, not {site}"
    assert check.detail.startswith(words[: DETAIL_LIMIT - 1])


def test_code_in_a_pth_file_that_shadows_the_package_fails(venv: Path, site: Path, tmp_path: Path) -> None:
    package(site)
    other = package(tmp_path / "other")
    (site / "evil.pth").write_text(f"import sys; sys.path.insert(0, {str(tmp_path / 'other')!r})\n")
    check = find_spec(venv)
    assert check.state == "fail"
    words = f"{tmp_path}/other comes first: imports {other}/__init__.py, not {site}/sglang/__init__.py"
    assert check.detail.startswith(words[: DETAIL_LIMIT - 1])
    shutil.rmtree(site / "sglang")
    only = find_spec(venv)
    assert only.state == "pass"
    assert "which its files do not show" in only.detail


def test_modules_from_elsewhere_fail_though_the_package_is_right(
    venv: Path, site: Path, tmp_path: Path
) -> None:
    other = package(tmp_path / "other")
    package(site, f"__path__.insert(0, {str(other)!r})")
    check = find_spec(venv)
    assert check.state == "fail"
    assert f"imports {other}/srt/speculative/dflash_worker.py, not {site}/sglang" in check.detail


def test_a_home_full_of_standard_names_does_no_harm_beyond_what_it_does_to_one_who_types(
    venv: Path, site: Path, home: Path
) -> None:
    package(site)
    for name in ("json", "ast", "signal", "traceback", "faulthandler"):
        (home / f"{name}.py").write_text("raise ImportError('shadowed')\n")
    assert find_spec(venv).state == "pass"


# ---- the interpreter


def test_a_module_that_does_not_compile_fails_though_find_spec_is_happy(
    venv: Path, site: Path, home: Path
) -> None:
    package(site)
    (site / "sglang/srt/speculative/dflash_info.py").write_bytes(b"x = 1\n" + b"\0" * 4096)
    assert "dflash_info.py" in typed(venv, home)
    check = find_spec(venv)
    assert check.state == "fail"
    assert f"{site}/sglang/srt/speculative/dflash_info.py does not compile: " in check.detail


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no interpreter"),
        ("#!/nowhere/python\n", "the interpreter can't be started: "),
        ("#!/bin/sh\necho 'Fatal Python error: no encodings' >&2\nexit 1\n",
         "the interpreter does not start (exit status 1): Fatal Python error: no encodings"),
        ("#!/bin/sh\nkill -9 $$\n", "the interpreter does not start (killed by SIGKILL)"),
    ],
)  # fmt: skip
def test_an_interpreter_that_does_not_start_fails(
    venv: Path, site: Path, text: str | None, words: str
) -> None:
    package(site)
    for path in venv.glob("bin/python*"):
        path.unlink()
    if text is not None:
        (venv / "bin/python").write_text(text)
        (venv / "bin/python").chmod(0o755)
    check = find_spec(venv)
    assert check.state == "fail"
    assert words in check.detail or text is None


def test_no_environment_fails(tmp_path: Path) -> None:
    check = find_spec(tmp_path / "gone")
    assert (check.state, check.detail) == ("fail", f"{tmp_path}/gone: no such folder")


def test_an_environment_on_a_dead_mount_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_spec_module, "SPARE", 0.2)
    (tmp_path / "dead").mkdir()
    with dead_mount(tmp_path / "dead"):
        check = find_spec(tmp_path / "dead/venv", limit=0.3)
    assert (check.state, "no answer within 0.5 s" in check.detail) == ("unknown", True)


@pytest.mark.parametrize("minor", list(pythons()))
def test_any_python_can_be_asked_and_can_ask(tmp_path: Path, minor: str) -> None:
    site = make_venv(tmp_path / "venv", pythons()[minor])
    package(site, "raise ValueError('here')")
    program = (
        "import json, sys; from dflash_console.agent.verify import find_spec\n"
        "print(json.dumps(find_spec.look(sys.argv[1], 'sglang', json.loads(sys.argv[2]), 30.0)))"
    )
    words = [pythons()[minor], "-B", "-S", "-c", program, str(tmp_path / "venv"), json.dumps(SPEC["modules"])]
    told = json.loads(subprocess.check_output(words, cwd=Path(__file__).parents[2], text=True))
    assert told["detail"].startswith("sglang itself does not import: ValueError: here (")
    assert told["detail"].endswith("/sglang/__init__.py:2)")
    (site / "sglang/__init__.py").write_text("x = 1\n")
    told = json.loads(subprocess.check_output(words, cwd=Path(__file__).parents[2], text=True))
    assert told["state"] == "pass", told


def test_the_innermost_call_is_that_of_the_thread_that_imports() -> None:
    text = (
        'Thread 0x1 (most recent call first):\n  File "/x/threading.py", line 5 in run\n\n'
        'Current thread 0x2 (most recent call first):\n  File "/v/slow.py", line 3 in wait\n'
        '  File "/v/__init__.py", line 9 in <module>\n'
    )
    assert question.innermost(text.split("\n")) == '"/v/slow.py", line 3 in wait'
    assert question.innermost([]) == ""


def test_the_script_names_each_module_of_the_config(venv: Path, site: Path) -> None:
    package(site)
    strange = [["sglang.x'\"\\\n.y"], [WORKER]]
    assert find_spec(venv, modules=strange).detail.startswith("missing: y")
    assert os.path.exists(site)
