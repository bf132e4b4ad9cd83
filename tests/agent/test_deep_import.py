"""Real imports by an environment's own interpreter, of modules that succeed, fail, crash, hang and start things."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_console.verdict import Check
from tests.agent.deep_part import DRIVER, checks
from tests.agent.driver import is_gone
from tests.agent.environments import make_venv, pythons
from tests.importable import reach
from tests.waiting import until_sync
from tests.wheels import lay


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An environment with an empty package `sglang`."""
    site = make_venv(tmp_path / "venv")
    (site / "sglang").mkdir()
    (site / "sglang/__init__.py").write_text("")
    return site


def imports(site: Path, *modules: object, **fields: object) -> list[Check]:
    listed = [module if isinstance(module, list) else [module] for module in modules]
    found = checks("import", site.parents[2], {}, modules=listed, **fields)
    assert list(found) == [f"import {alternatives[0]}" for alternatives in listed]
    return list(found.values())


def write(site: Path, **modules: str) -> None:
    for name, text in modules.items():
        (site / "sglang" / f"{name}.py").write_text(text)


@pytest.mark.parametrize("minor", ["3.8", "3.11", "3.13"])
def test_a_module_that_imports_is_told_with_its_file(tmp_path: Path, minor: str) -> None:
    python = pythons().get(minor)
    if python is None:
        pytest.skip(f"no Python {minor} here")
    site = make_venv(tmp_path / "venv", python)
    (site / "sglang").mkdir()
    write(site, __init__="", worker="print('noise\\n' * 100000)")
    (found,) = imports(site, "sglang.worker")
    assert found.state == "pass"
    assert found.detail.startswith(f"{site}/sglang/worker.py in ")
    assert not list(site.rglob("__pycache__"))


def test_the_first_alternative_that_is_there_serves(site: Path) -> None:
    write(site, worker_v2="")
    (found,) = imports(site, ["sglang.worker", "sglang.worker_v2"])
    assert found.state == "pass"
    assert f"sglang.worker_v2: {site}/sglang/worker_v2.py" in found.evidence


def test_the_package_itself_is_imported_when_no_module_is_listed(site: Path) -> None:
    write(site, __init__="raise ValueError('no')")
    (found,) = checks("import", site.parents[2], {}, modules=[]).values()
    assert (found.name, found.state) == ("import sglang", "fail")
    write(site, __init__="")
    (found,) = checks("import", site.parents[2], {}, modules=[]).values()
    assert found.state == "pass"


def test_an_import_that_closes_files_that_are_not_its_own_is_heard_or_unknown(site: Path) -> None:
    write(site, one="import os\nos.close(3)", all="import os\nos.closerange(3, 4096)")
    (found,) = imports(site, "sglang.one")
    assert found.state == "pass"
    (found,) = imports(site, "sglang.all")
    assert (found.state, "closes files that are not its own" in found.detail) == ("unknown", True)


def test_an_alternative_that_fails_is_not_passed_over(site: Path) -> None:
    write(site, worker="import sglang.gone", worker_v2="")
    (found,) = imports(site, ["sglang.worker", "sglang.worker_v2"])
    assert found.state == "fail"
    assert found.detail == f"ModuleNotFoundError: No module named 'sglang.gone' ({site}/sglang/worker.py:1)"


def test_none_of_the_alternatives_is_a_failure_that_names_the_first(site: Path) -> None:
    (found,) = imports(site, ["sglang.worker", "sglang.worker_v2"])
    assert (found.state, found.detail) == ("fail", "ModuleNotFoundError: No module named 'sglang.worker'")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "x = 1\nraise ValueError('Either a revision\\nor a version')",
            "ValueError: Either a revision or a version (",
        ),
        ("import sys; sys.exit(3)", "SystemExit: 3 ("),
        ("def broken(:", "SyntaxError: "),
        ("import os; os._exit(0)", "the interpreter ended with exit status 0 in the middle of the import"),
        ("import os; os.abort()", "the import crashed the interpreter: killed by SIGABRT in "),
        ("import ctypes; ctypes.string_at(0)", "the import crashed the interpreter: killed by SIGSEGV in "),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL, as when memory is short"),
        (
            "class E(Exception):\n    def __str__(self): raise TypeError\nraise E",
            "E: (its text can't be made)",
        ),
    ],
)
def test_a_failure_is_told_and_hides_no_other_answer(site: Path, text: str, words: str) -> None:
    write(site, first="", broken=text, last="")
    first, broken, last = imports(site, "sglang.first", "sglang.broken", "sglang.last")
    assert (first.state, broken.state, last.state) == ("pass", "fail", "pass")
    assert words in broken.detail


def test_every_module_below_a_package_that_does_not_import_tells_the_same_reason(site: Path) -> None:
    # In one process the second import would say KeyError: 'sglang'.
    write(site, __init__="raise ValueError('Either a revision or a version must be specified.')", a="", b="")
    details = {check.detail for check in imports(site, "sglang.a", "sglang.b")}
    assert details == {
        f"ValueError: Either a revision or a version must be specified. ({site}/sglang/__init__.py:1)"
    }


def test_a_real_sglang_without_its_dependencies_names_the_first_that_is_missing(tmp_path: Path) -> None:
    site = make_venv(tmp_path / "venv")
    lay("0.5.13.post1", site)
    (found,) = imports(site, "sglang.srt.speculative.dflash_info")
    assert found.state == "fail"
    assert found.detail.startswith("ModuleNotFoundError: No module named '")
    assert f"({site}/sglang/" in found.detail


@pytest.mark.timeout(1500)
def test_a_real_import_sees_what_find_spec_does_not(tmp_path: Path) -> None:
    # find_spec imports sglang alone, which has all it needs here.
    site = make_venv(tmp_path / "venv")
    lay("0.5.13.post1", site)
    reach(site)
    sglang, info = imports(site, "sglang", "sglang.srt.speculative.dflash_info", limit=200)
    assert (sglang.state, info.state) == ("pass", "fail"), info
    assert info.detail.startswith("ModuleNotFoundError: No module named 'transformers'")


def test_an_import_that_hangs_is_ended_and_the_place_named(site: Path) -> None:
    write(site, first="", hanging="import time\ntime.sleep(600)", last="")
    first, hanging, last = imports(site, "sglang.first", "sglang.hanging", "sglang.last", limit=5)
    assert (first.state, hanging.state, last.state) == ("pass", "unknown", "unknown")
    assert hanging.detail.startswith("not imported within ")
    assert "hangs in " in hanging.detail
    assert "hanging.py" in hanging.detail
    assert last.detail == "not reached: the time was over"


def test_nothing_that_an_import_started_stays(site: Path, tmp_path: Path) -> None:
    start = "import subprocess\nchild = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    write(site, starting=f"{start}open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))")
    (found,) = imports(site, "sglang.starting")
    assert found.state == "pass"
    pid = int((tmp_path / "pid").read_text())
    until_sync(lambda: is_gone(pid), 30, "what the import started has ended")


def test_no_gpu_is_shown_and_nothing_is_written_beside_the_modules(site: Path, tmp_path: Path) -> None:
    words = "os.environ['CUDA_VISIBLE_DEVICES'], os.getcwd(), sys.stdin.read()"
    write(site, look=f"import os, sys\nopen({str(tmp_path / 'seen')!r}, 'w').write(repr(({words})))")
    imports(site, "sglang.look")
    assert (tmp_path / "seen").read_text() == "('', '/', '')"


def test_a_missing_driver_library_is_not_held_against_the_package_without_a_driver(site: Path) -> None:
    text = (
        "try:\n    import ctypes; ctypes.CDLL('libcuda.so.1')\nexcept OSError as error:\n"
        "    raise ImportError(f'[sgl_kernel] CRITICAL: Could not load any common_ops library! {error}') from error\n"
    )
    write(site, kernel=text)
    (found,) = imports(site, "sglang.kernel")
    assert found.state == "unknown"
    assert found.detail.startswith(
        "it needs libcuda.so.1 of the NVIDIA driver, which is not on this host: ImportError"
    )
    (found,) = imports(site, "sglang.kernel", driver=DRIVER)
    assert found.state == "fail"


def test_an_import_that_asks_for_a_gpu_is_not_held_against_the_package(site: Path) -> None:
    (site / "torch/cuda").mkdir(parents=True)
    (site / "torch/__init__.py").write_text("")
    torch = "def _lazy_init():\n    raise RuntimeError('No CUDA GPUs are available')\n"
    (site / "torch/cuda/__init__.py").write_text(torch)
    write(site, asks="import torch.cuda\ntorch.cuda._lazy_init()")
    (found,) = imports(site, "sglang.asks", driver=DRIVER)
    assert found.state == "unknown"
    assert found.detail.endswith("RuntimeError: No CUDA GPUs are available")


def test_secrets_in_what_is_told_are_hidden(site: Path) -> None:
    write(site, leaking="raise RuntimeError('--api-key sk-12345678abcdef')")
    (found,) = imports(site, "sglang.leaking")
    assert found.detail.startswith("RuntimeError: --api-key *** (")
    assert not any("12345678" in line for line in found.evidence)


def test_an_environment_without_an_interpreter_is_told(site: Path) -> None:
    for name in ("python", "python3", "python3.11"):
        (site.parents[2] / "bin" / name).unlink(missing_ok=True)
    (found,) = imports(site, "sglang")
    assert found.state == "fail"
    assert found.detail.startswith("the interpreter can't be started: ")
