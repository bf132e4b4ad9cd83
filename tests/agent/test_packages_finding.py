"""The finder agrees with the environment's own interpreter, on every Python at hand and on real trees."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_console.agent.venvs.distributions import Distributions
from dflash_console.agent.venvs.importing import Finder, search_path
from dflash_console.agent.venvs.interpreter import Interpreter, read_interpreter
from dflash_console.agent.venvs.look import Look
from tests.agent.environments import asked, make_venv, pythons
from tests.wheels import VERSIONS, lay, wheel

MULTIARCH = sysconfig.get_config_var("MULTIARCH")


def found(venv: Path, names: list[str]) -> list[str | None]:
    """What the agent's finder says, in the words of `asked`."""
    look = Look()
    interpreter = read_interpreter(str(venv), look)
    assert isinstance(interpreter, Interpreter), interpreter
    finder = Finder(interpreter, search_path(interpreter, look), look)
    modules = (finder.find(name) for name in names)
    return [module.origin if module else "absent" for module in modules]


def agrees(venv: Path, names: list[str]) -> list[str | None]:
    """Fails unless both say the same; gives back what they say."""
    ours = found(venv, names)
    theirs = asked(venv, names)
    assert dict(zip(names, ours, strict=True)) == dict(zip(names, theirs, strict=True))
    return ours


def names_in(site: Path, package: str) -> list[str]:
    """Every module and folder below a package, by dotted name."""
    names = set()
    for path in (site / package).rglob("*"):
        *folders, last = path.relative_to(site).parts
        if not any("." in folder for folder in folders) and not last.startswith("."):
            names.add(".".join([*folders, last.split(".")[0]]))
    return sorted(names)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_module_of_a_real_tree_is_found_where_the_interpreter_finds_it(
    tmp_path: Path, version: str
) -> None:
    site = make_venv(tmp_path / "venv")
    lay(version, site)
    names = names_in(site, "sglang")
    assert len(names) > 1500
    origins = agrees(tmp_path / "venv", names)
    compiled = [origin for origin in origins if origin and origin.endswith(".so")]
    expected = {"0.5.9": 0, "0.5.13.post1": 1, "0.5.23": 5}[version]
    assert len(compiled) == (expected if sys.version_info[:2] == (3, 11) else 0)


@pytest.mark.parametrize("minor", list(pythons()))
def test_every_kind_of_file_is_found_as_each_python_does(tmp_path: Path, minor: str) -> None:
    venv = tmp_path / "venv"
    site = make_venv(venv, pythons()[minor])
    lay_kinds(site, minor)
    lay_paths(site, tmp_path)
    names = [
        *names_in(site, "kinds"),
        "kinds.absent",
        "absent",
        "kinds.source.absent",
        "single",
        "single.inside",
    ]
    names += [
        *names_in(tmp_path / "more", "split"),
        "split.first",
        "linked",
        "linked.inside",
        "relative",
        "twice",
    ]
    names += ["hidden", "commented", "coded", "latin", "nul"]
    origins = dict(zip(names, agrees(venv, names), strict=True))
    tag = minor.replace(".", "")
    assert str(origins["kinds.compiled"]).endswith(f"cpython-{tag}-{MULTIARCH}.so")
    assert origins["kinds.stable"] not in ("absent", None)
    assert origins["kinds.foreign"] == "absent"
    assert origins["kinds.empty_folder"] is None
    assert str(origins["split.second"]).startswith(str(tmp_path / "more"))
    assert origins["coded"] == "absent"


def lay_kinds(site: Path, minor: str) -> None:
    """A package with a module of every kind."""
    kinds = site / "kinds"
    (kinds / "empty_folder").mkdir(parents=True)
    (kinds / "regular").mkdir()
    (kinds / "both").mkdir()
    for name in (
        "__init__",
        "source",
        "regular/__init__",
        "both",
        "both/__init__",
        "lower",
        "zero",
        "stem.more",
    ):
        (kinds / f"{name}.py").write_text("")
    tag = minor.replace(".", "")
    for name in (f"compiled.cpython-{tag}-{MULTIARCH}.so", "stable.abi3.so", "plain.so", "source.so"):
        (kinds / name).write_bytes(b"")
    (kinds / f"foreign.cpython-37-{MULTIARCH}.so").write_bytes(b"")
    (kinds / "Lower.txt").write_text("")
    py_compile.compile(str(kinds / "source.py"), str(kinds / "bytecode.pyc"))
    (kinds / "folder_named.py").mkdir()
    (kinds / "broken.py").symlink_to("nowhere.py")
    (kinds / "loop").symlink_to("loop")
    (kinds / "good_link.py").symlink_to("source.py")
    (site / "single.py").write_text("")


def lay_paths(site: Path, folder: Path) -> None:
    """A search path of every kind: .pth files with folders, comments, code, blanks and nonsense."""
    more = folder / "more"
    (more / "split").mkdir(parents=True)
    (more / "split" / "second.py").write_text("")
    (site / "split").mkdir()
    (site / "split" / "first.py").write_text("")
    (site / "linked").symlink_to(more)
    (more / "inside.py").write_text("")
    (more / "twice.py").write_text("")
    (site / "twice.py").write_text("")
    for name in ("relative", "commented", "coded", "hidden"):
        (folder / name).mkdir()
        (folder / name / f"{name}.py").write_text("")
    up = os.path.relpath(folder, site)
    (site / "a.pth").write_text(
        f"# {folder}/commented\n\n   \n{more}   \n{up}/relative\r\n{more}\n{folder}/gone\n"
    )
    (site / "b.pth").write_text(f"import sys; sys.flags\nimport\tsys\n{'x' * 5000}\n/proc/self/mem\n")
    (site / "c.txt").write_text(f"{folder}/coded\n")


def lay_nested(site: Path) -> None:
    lay("0.5.9", site)
    shutil.copytree(site / "sglang", site / "sglang" / "sglang")


def lay_without_init(site: Path) -> None:
    lay("0.5.13.post1", site)
    (site / "sglang" / "__init__.py").unlink()


def lay_file_and_folder(site: Path) -> None:
    (site / "sglang").mkdir()
    (site / "sglang.py").write_text("")


def lay_link(site: Path) -> None:
    lay("0.5.13.post1", site.parent / "elsewhere")
    (site / "sglang").symlink_to(site.parent / "elsewhere" / "sglang")


def lay_broken_link(site: Path) -> None:
    (site / "sglang").symlink_to("nowhere")


def lay_plain_file(site: Path) -> None:
    (site / "sglang").write_text("")


LAYOUTS = [lay_nested, lay_without_init, lay_file_and_folder, lay_link, lay_broken_link, lay_plain_file]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_odd_trees_are_found_where_the_interpreter_finds_them(
    tmp_path: Path, layout: Callable[[Path], None]
) -> None:
    site = make_venv(tmp_path / "venv")
    layout(site)
    base = "sglang.srt.speculative"
    names = ["sglang", "sglang.sglang", "sglang.srt", base, f"{base}.dflash_worker", f"{base}.dflash_info"]
    names += [f"sglang.{name}" for name in names[2:]]
    agrees(tmp_path / "venv", names)


@pytest.mark.parametrize("options", [[], ["--system-site-packages"]], ids=["alone", "with the system's"])
@pytest.mark.parametrize("python", sorted({sys.executable, *filter(os.path.exists, ["/usr/bin/python3"])}))
def test_the_systems_packages_are_seen_only_where_the_venv_sees_them(
    tmp_path: Path, python: str, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_venv(tmp_path / "venv", python, *options)
    code = "import json, site; print(json.dumps(site.getsitepackages()))"
    folders = [Path(folder) for folder in json.loads(subprocess.check_output([python, "-I", "-c", code]))]
    names = {path.name.split(".")[0] for folder in folders if folder.is_dir() for path in folder.iterdir()}
    # The standard library is no part of the search path, and `python -I` leaves out the user's own packages.
    names.discard("__pycache__")
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    (site / "own.py").write_text("")
    agrees(tmp_path / "venv", ["own", "absent", *sorted(name for name in names if name)])


@pytest.mark.parametrize("minor", list(pythons()))
def test_versions_are_those_that_importlib_metadata_says(tmp_path: Path, minor: str) -> None:
    site = make_venv(tmp_path / "venv", pythons()[minor])
    lay("0.5.9", site)
    (tmp_path / "more").mkdir()
    (site / "more.pth").write_text(f"{tmp_path / 'more'}\n")
    for folder, name in (
        (site / "flashinfer_python-0.6.3.dist-info", "METADATA"),
        (site / "torch-2.9.1+cu128.dist-info", "METADATA"),
        (tmp_path / "more" / "torch-9.dist-info", "METADATA"),
        (tmp_path / "more" / "legacy.egg-info", "PKG-INFO"),
        (tmp_path / "more" / "older-0.3-py3.11.egg-info", "PKG-INFO"),
    ):
        folder.mkdir()
        (folder / name).write_text(
            f"Metadata-Version: 2.1\nName: x\nVersion: of {folder.name}\n\nVersion: no\n"
        )
    (site / "flat-1.egg-info").write_text("Name: flat\nVersion: 1.0\n")
    names = ["sglang", "flashinfer-python", "Torch", "legacy", "older", "flat", "absent"]
    code = f"""
import importlib.metadata as m, json
def version(name):
    try:
        return m.version(name)
    except m.PackageNotFoundError:
        return None
print(json.dumps([version(name) for name in {names}]))
"""
    theirs = json.loads(subprocess.check_output([str(tmp_path / "venv/bin/python"), "-I", "-B", "-c", code]))
    look = Look()
    interpreter = read_interpreter(str(tmp_path / "venv"), look)
    assert isinstance(interpreter, Interpreter)
    ours = Distributions(search_path(interpreter, look).folders, look).versions(names)
    assert [ours.get(name) for name in names] == theirs
    assert None not in theirs[:-1]


LAYOUT_CHOICES = {
    "flat": "[tool.setuptools]\npackages = ['sglang', 'sglang.srt']\n",
    "source": "[tool.setuptools.packages.find]\nwhere = ['src']\n",
    "mapped": "[tool.setuptools]\npackages = ['sglang', 'sglang.srt']\npackage-dir = {sglang = 'odd/tree'}\n",
}


@pytest.mark.parametrize("choice", LAYOUT_CHOICES)
def test_an_editable_install_of_setuptools_is_followed(tmp_path: Path, choice: str) -> None:
    project = tmp_path / "project"
    tree = project / {"flat": "sglang", "source": "src/sglang", "mapped": "odd/tree"}[choice]
    (tree / "srt").mkdir(parents=True)
    for name in ("__init__", "srt/__init__", "srt/server"):
        (tree / f"{name}.py").write_text("")
    (project / "pyproject.toml").write_text(
        "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n"
        "[project]\nname = 'sglang'\nversion = '0.5.14.dev1'\n" + LAYOUT_CHOICES[choice]
    )
    venv = tmp_path / "venv"
    site = make_venv(venv)
    build = [
        sys.executable,
        "-I",
        "-B",
        "-c",
        BUILD,
        str(wheel("80.9.0", "setuptools")),
        str(tmp_path / "built"),
    ]
    subprocess.run(build, cwd=project, check=True, timeout=60, capture_output=True)
    (built,) = (tmp_path / "built").glob("*.whl")
    shutil.unpack_archive(built, site, "zip")
    origins = agrees(venv, ["sglang", "sglang.srt", "sglang.srt.server", "sglang.absent"])
    assert origins[0] == str(tree / "__init__.py")
    assert origins[2] == str(tree / "srt" / "server.py")


BUILD = """
import os, sys
sys.path.insert(0, sys.argv[1])
from setuptools import build_meta
os.makedirs(sys.argv[2])
build_meta.build_editable(sys.argv[2])
"""


def test_code_in_pth_files_and_finders_is_never_run(tmp_path: Path) -> None:
    site = make_venv(tmp_path / "venv")
    proof = tmp_path / "was-run"
    name = "__editable___evil_finder"
    (site / "evil.pth").write_text(f"import {name}; {name}.install()\nimport os; open({str(proof)!r}, 'w')\n")
    (site / f"{name}.py").write_text(
        f"open({str(proof)!r}, 'w')\nMAPPING = {{'evil': open({str(proof)!r}, 'w')}}\nNAMESPACES = [1]\n"
    )
    assert found(tmp_path / "venv", ["evil"]) == ["absent"]
    assert not proof.exists()


@pytest.mark.parametrize(
    "source",
    ["MAPPING = ", "x" * 3_000_000, "(" * 100_000, "\0", "MAPPING = {1: 2, 'a': ['b']}", "MAPPING = {[]: 1}"],
)
def test_a_broken_editable_finder_does_no_harm(tmp_path: Path, source: str) -> None:
    site = make_venv(tmp_path / "venv")
    name = "__editable___odd_finder"
    (site / "odd.pth").write_text(f"import {name}; {name}.install()\n")
    (site / f"{name}.py").write_text(source)
    assert found(tmp_path / "venv", ["odd", "a"]) == ["absent", "absent"]


def test_a_module_of_the_library_editables_is_followed(tmp_path: Path) -> None:
    site = make_venv(tmp_path / "venv")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "__init__.py").write_text("")
    (tree / "inside.py").write_text("")
    (site / "_sglang.pth").write_text("import _editable_impl_sglang\n")
    (site / "_editable_impl_sglang.py").write_text(
        "from editables.redirector import RedirectingFinder as F\nF.install()\n"
        f"F.map_module('sglang', {str(tree / '__init__.py')!r})\n"
    )
    origins = found(tmp_path / "venv", ["sglang", "sglang.inside"])
    assert origins == [str(tree / "__init__.py"), str(tree / "inside.py")]


def test_all_that_was_looked_at_is_marked(tmp_path: Path) -> None:
    site = make_venv(tmp_path / "venv")
    lay("0.5.9", site)
    look = Look()
    interpreter = read_interpreter(str(tmp_path / "venv"), look)
    assert isinstance(interpreter, Interpreter)
    finder = Finder(interpreter, search_path(interpreter, look), look)
    assert finder.find("sglang.srt.speculative.dflash_worker") is None
    for path in (site, site / "sglang", site / "sglang/srt", site / "sglang/srt/speculative"):
        assert str(path) in look.marks
    assert json.loads(json.dumps(look.marks)) == look.marks
