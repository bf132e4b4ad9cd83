"""Whose import raised, and where: the package itself is not blamed for what is below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.test_verify_find_spec import find_spec, home, package

__all__ = ["home"]

NO_SIBLING = "import sglang.srt.gone\n"


@pytest.mark.parametrize(
    ("where", "code", "name"),
    [
        ("", NO_SIBLING, "sglang itself"),
        ("srt", NO_SIBLING, "sglang.srt"),
        ("srt/speculative", NO_SIBLING, "sglang.srt.speculative"),
        ("srt/speculative", "import os\nos._exit(3)\n", "sglang.srt.speculative"),
        ("srt", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "sglang.srt"),
        ("srt", "x = (\n", "sglang.srt"),
    ],
)
def test_the_package_whose_import_fails_is_named(
    venv: Path, site: Path, where: str, code: str, name: str
) -> None:
    folder = package(site) / where
    (folder / "__init__.py").write_text(f"import sys\n{code}")
    check = find_spec(venv)
    assert check.state == "fail"
    assert check.detail.startswith(f"{name} does not import: "), check
    if "_exit" not in code and "kill" not in code:
        assert check.detail.endswith(f"({folder}/__init__.py:2)"), check


def test_the_innermost_line_of_the_package_is_named_and_not_one_beyond_it(venv: Path, site: Path) -> None:
    tree = package(site)
    (site / "elsewhere.py").write_text("def f():\n    raise ValueError('no')\n")
    (tree / "srt/__init__.py").write_text("from sglang import deeper\n")
    (tree / "deeper.py").write_text("import elsewhere\n\nelsewhere.f()\n")
    check = find_spec(venv)
    assert check.detail == f"sglang.srt does not import: ValueError: no ({tree}/deeper.py:3)"


def test_what_was_handled_before_is_not_named(venv: Path, site: Path) -> None:
    tree = package(site)
    code = "try:\n    import sglang.old\nexcept ValueError as error:\n    raise KeyError('x') from error\n"
    (tree / "old.py").write_text("raise ValueError\n")
    (tree / "__init__.py").write_text(code)
    assert find_spec(venv).detail == f"sglang itself does not import: KeyError: 'x' ({tree}/__init__.py:4)"


def test_a_listed_module_that_is_a_package_is_blamed_for_its_own_import(venv: Path, site: Path) -> None:
    tree = package(site, modules=("dflash_info", "dflash_utils"))
    worker = tree / "srt/speculative/dflash_worker"
    worker.mkdir()
    (worker / "__init__.py").write_text("import sglang.srt.gone\n")
    (worker / "inner.py").write_text("x = 1\n")
    name = "sglang.srt.speculative.dflash_worker"
    check = find_spec(venv, modules=[[f"{name}.inner"]])
    assert check.detail == (
        f"{name} does not import: ModuleNotFoundError: No module named 'sglang.srt.gone' "
        f"({worker}/__init__.py:1)"
    )
