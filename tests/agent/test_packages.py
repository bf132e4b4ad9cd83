"""A package is told as it is, in every odd state a copy or an install leaves it in, without importing it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dflash_console import model
from dflash_console.agent.venvs.reading import read_venv
from dflash_console.model import Missing, Package, Venv
from tests.agent.environments import SPEC, WORKER, pythons
from tests.wheels import lay, wheel

ROOT = Path(__file__).parent.parent.parent
SPECULATIVE = "sglang/srt/speculative"


def read(folder: Path, **spec: Any) -> Venv:
    """The environment as the console gets it."""
    seen = read_venv(str(folder), "config", {**SPEC, **spec}, [])
    venv: Venv = msgspec.json.decode(json.dumps(seen["venv"]), type=Venv, dec_hook=model.decode_cell)
    return venv


def package(folder: Path, **spec: Any) -> Package:
    found = read(folder, **spec).package
    assert isinstance(found, Package), found
    return found


# ---- whole trees


def test_a_tree_without_dflash_has_none_of_its_modules(venv: Path, site: Path) -> None:
    lay("0.5.9", site)
    found = package(venv)
    assert found == Package(
        name="sglang",
        origin=str(site / "sglang/__init__.py"),
        kind="regular",
        version="0.5.9",
        dist_version="0.5.9",
        nested=False,
        modules={names[0]: None for names in list[list[str]](SPEC["modules"])},  # type: ignore[call-overload]
    )
    assert read(venv).packages == {"sglang": "0.5.9"}


def test_either_worker_will_do_and_is_named(venv: Path, site: Path) -> None:
    lay("0.5.13.post1", site)
    old = package(venv).modules
    assert old[WORKER] == str(site / SPECULATIVE / "dflash_worker.py")
    assert len(old) == 3
    assert all(old.values())
    shutil.rmtree(site / "sglang")
    lay("0.5.23", site)
    new = package(venv).modules
    assert next(iter(new)) == f"{WORKER}_v2"
    assert new[f"{WORKER}_v2"] == str(site / SPECULATIVE / "dflash_worker_v2.py")


def test_a_copied_tree_shows_by_its_two_versions(venv: Path, site: Path) -> None:
    lay("0.5.9", site)
    shutil.rmtree(site / "sglang")
    shutil.copytree(wheel("0.5.13.post1") / "sglang", site / "sglang", copy_function=os.link)
    found = package(venv)
    assert (found.version, found.dist_version) == ("0.5.13.post1", "0.5.9")
    assert all(found.modules.values())


def test_a_nested_copy_is_found_without_importing(venv: Path, site: Path) -> None:
    lay("0.5.9", site)
    (site / "sglang" / "__init__.py").unlink()
    (site / "sglang" / "__init__.py").write_text("raise SystemExit('imported')")
    shutil.copytree(wheel("0.5.13.post1") / "sglang", site / "sglang" / "sglang", copy_function=os.link)
    found = package(venv)
    assert (found.nested, found.version) == (True, "0.5.9")
    assert set(found.modules.values()) == {None}


def test_a_folder_without_init_is_a_namespace_with_no_origin(venv: Path, site: Path) -> None:
    lay("0.5.13.post1", site)
    (site / "sglang/__init__.py").unlink()
    found = package(venv)
    assert found.kind == "namespace"
    assert found.origin == Missing("not_found", f"a folder without __init__.py: {site / 'sglang'}")
    assert found.modules[WORKER] == str(site / SPECULATIVE / "dflash_worker.py")


def test_what_a_failed_uninstall_leaves_is_a_namespace(venv: Path, site: Path) -> None:
    (site / "sglang" / "srt").mkdir(parents=True)
    (site / "sglang" / "srt" / "left.json").write_text("{}")
    found = package(venv)
    assert (found.kind, found.nested) == ("namespace", False)
    assert isinstance(found.version, Missing)
    assert found.dist_version == Missing("not_found", "no dist-info of sglang")


def test_no_package_says_whether_its_metadata_is_there(venv: Path, site: Path) -> None:
    assert read(venv).package == Missing("not_found", "no sglang")
    lay("0.5.9", site)
    shutil.rmtree(site / "sglang")
    assert read(venv).package == Missing(
        "not_found", "no sglang, though its dist-info says 0.5.9 is installed"
    )


def test_a_venv_without_site_packages_says_so(venv: Path, site: Path) -> None:
    shutil.rmtree(site)
    where = f"lib/{site.parent.name}/site-packages"
    assert read(venv).package == Missing("not_found", f"no {where}")


# ---- modules that are there and can't serve


def test_a_module_of_zero_bytes_is_missing_with_the_reason(venv: Path, site: Path) -> None:
    lay("0.5.13.post1", site)
    path = site / SPECULATIVE / "dflash_worker.py"
    path.unlink()
    path.touch()
    assert package(venv).modules[WORKER] == Missing("error", f"zero bytes: {path}")
    (site / SPECULATIVE / "dflash_worker_v2.py").write_text("x = 1")
    modules = package(venv).modules
    assert WORKER not in modules
    assert isinstance(modules[f"{WORKER}_v2"], str)


def test_a_folder_in_a_modules_place_is_missing_with_the_reason(venv: Path, site: Path) -> None:
    (site / SPECULATIVE / "dflash_worker").mkdir(parents=True)
    reason = package(venv).modules[WORKER]
    assert reason == Missing("error", f"a folder without __init__.py: {site / SPECULATIVE / 'dflash_worker'}")


def test_a_module_that_cannot_be_read_is_missing_with_the_reason(
    venv: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay("0.5.13.post1", site)

    real = os.open

    def refuse(path: str, *rest: Any) -> int:
        if path.endswith("dflash_info.py"):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest)

    monkeypatch.setattr(os, "open", refuse)
    reason = package(venv).modules["sglang.srt.speculative.dflash_info"]
    assert reason == Missing("permission", f"Permission denied: {site / SPECULATIVE / 'dflash_info.py'}")


def test_a_compiled_module_of_another_python_is_not_found(venv: Path, site: Path) -> None:
    lay("0.5.13.post1", site)
    name = "sglang.srt.grpc._core"
    is_ours = sys.version_info[:2] == (3, 11)
    assert isinstance(package(venv, modules=[[name]]).modules[name], str) == is_ours


# ---- where it comes from


def test_an_editable_install_by_path_shows_where_it_points(venv: Path, site: Path, tmp_path: Path) -> None:
    source = tmp_path / "work" / "python"
    source.mkdir(parents=True)
    shutil.copytree(wheel("0.5.13.post1") / "sglang", source / "sglang", copy_function=os.link)
    (site / "__editable__.sglang-0.5.13.pth").write_text(f"{source}\n")
    info = site / "sglang-0.5.13.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.13\n\nVersion: 9\n")
    (info / "direct_url.json").write_text(
        json.dumps({"url": f"file://{source}", "dir_info": {"editable": True}})
    )
    found = package(venv)
    assert (found.kind, found.outside, found.editable_from) == ("editable", True, str(source))
    assert found.origin == str(source / "sglang/__init__.py")
    assert (found.version, found.dist_version) == ("0.5.13.post1", "0.5.13")
    assert all(found.modules.values())
    lay("0.5.9", site)
    shadowed = package(venv)
    assert (shadowed.kind, shadowed.outside) == ("regular", False)
    assert isinstance(shadowed.dist_version, Missing)


def test_an_old_develop_install_is_editable_too(venv: Path, site: Path, tmp_path: Path) -> None:
    (tmp_path / "src" / "sglang").mkdir(parents=True)
    (tmp_path / "src" / "sglang" / "__init__.py").write_text("__version__ = '1.2'\n")
    (tmp_path / "src" / "sglang.egg-info").mkdir()
    (tmp_path / "src" / "sglang.egg-info" / "PKG-INFO").write_text("Name: sglang\nVersion: 1.1\n")
    (site / "easy-install.pth").write_text(f"{tmp_path / 'src'}\n")
    (site / "sglang.egg-link").write_text(f"{tmp_path / 'src'}\n.")
    found = package(venv)
    assert (found.kind, found.version, found.dist_version) == ("editable", "1.2", "1.1")
    assert found.editable_from == str(tmp_path / "src" / "sglang")


def test_a_tree_reached_by_a_plain_path_file_is_outside_and_not_editable(
    venv: Path, site: Path, tmp_path: Path
) -> None:
    lay("0.5.13.post1", tmp_path / "shared")
    (site / "deps.pth").write_text(f"{tmp_path / 'shared'}\n")
    found = package(venv)
    assert (found.kind, found.outside, found.dist_version) == ("regular", True, "0.5.13.post1")


def test_a_link_out_of_the_venv_is_outside(venv: Path, site: Path, tmp_path: Path) -> None:
    (site / "sglang").symlink_to(wheel("0.5.9") / "sglang")
    found = package(venv)
    assert (found.kind, found.outside) == ("regular", True)
    assert found.origin == str(site / "sglang/__init__.py")


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        ({"url": "https://me:hunter2@host/x.git", "vcs_info": {"vcs": "git", "commit_id": "a" * 40}},
         "git+https://host/x.git@aaaaaaaaaaaa"),
        ({"url": "https://host/x.git", "vcs_info": {"vcs": "git", "requested_revision": "refs/pull/2/head"}},
         "git+https://host/x.git@refs/pull/2/head"),
        ({"url": "ssh://git@host/x.git", "vcs_info": {}}, "vcs+ssh://host/x.git"),
        ({"url": "https://host/x.whl?token=hunter2", "archive_info": {}}, "https://host/x.whl"),
        ({"url": "https://a@b:hunter2@host/x.whl"}, "https://host/x.whl"),
        ({"url": "file:///a%20b", "dir_info": {}}, "/a b"),
        ({"url": 3}, None),
        ([], None),
    ],
)  # fmt: skip
def test_the_url_of_a_direct_install_is_shown_without_secrets(
    venv: Path, site: Path, record: object, shown: str | None
) -> None:
    lay("0.5.9", site)
    (site / "sglang-0.5.9.dist-info" / "direct_url.json").write_text(json.dumps(record))
    found = package(venv)
    assert found.editable_from == shown
    assert found.kind == "regular"
    assert "hunter2" not in repr(found)


# ---- versions


@pytest.mark.parametrize(
    ("file", "text", "version"),
    [
        ("_version.py", "__version__ = version = '0.5.14.dev3+gabc'\n", "0.5.14.dev3+gabc"),
        ("version.py", 'version: str = "1"\n', "1"),
        ("__init__.py", "import x\n__version__ = '2'\n", "2"),
        ("version.py", "try:\n    __version__ = 'no'\nexcept E:\n    pass\n", None),
        ("version.py", "__version__ = get_version()\n", None),
        ("_version.py", "", None),
        ("_version.py", "__version__ = 'a\n", None),
        ("_version.py", "\0\udcff" * 100, None),
        ("_version.py", "x = 1\n" * 100_000 + "__version__ = 'beyond the limit'\n", None),
    ],
)
def test_the_trees_version_is_read_as_text(
    venv: Path, site: Path, file: str, text: str, version: str | None
) -> None:
    (site / "sglang").mkdir()
    (site / "sglang" / "__init__.py").write_text("")
    (site / "sglang" / file).write_bytes(text.encode("utf-8", "surrogateescape"))
    found = package(venv).version
    assert found == (version or Missing("not_found", "no version in _version.py, version.py or __init__.py"))


def test_two_dist_infos_at_once_are_told(venv: Path, site: Path) -> None:
    lay("0.5.9", site)
    shutil.copytree(wheel("0.5.23") / "sglang-0.5.23.dist-info", site / "sglang-0.5.23.dist-info")
    found = read(venv)
    assert isinstance(found.package, Package)
    both = "2 at once: sglang-0.5.23.dist-info, sglang-0.5.9.dist-info"
    assert found.package.dist_version == Missing("mismatch", both)
    assert found.packages == {"sglang": "0.5.23 and 0.5.9"}


def test_a_dist_info_without_metadata_is_told(venv: Path, site: Path) -> None:
    lay("0.5.9", site)
    (site / "sglang-0.5.9.dist-info" / "METADATA").unlink()
    found = package(venv)
    assert found.dist_version == Missing("error", "sglang-0.5.9.dist-info has no version in its METADATA")


def test_distributions_are_found_whatever_their_spelling(venv: Path, site: Path) -> None:
    for folder, name, version in (
        ("flashinfer_python-0.6.3.dist-info", "flashinfer-python", "0.6.3"),
        ("SGL.Kernel-0.3.21.dist-info", "sgl-kernel", "0.3.21"),
        ("torch-2.9.1+cu128.dist-info", "torch", "2.9.1+cu128"),
        ("~ransformers-4.0.dist-info", "transformers", "4.0"),
    ):
        (site / folder).mkdir()
        (site / folder / "METADATA").write_text(f"Name: {name}\r\nVersion: {version}\r\n\r\nText\r\n")
    assert read(venv).packages == {
        "torch": "2.9.1+cu128",
        "sgl-kernel": "0.3.21",
        "flashinfer-python": "0.6.3",
    }


def test_the_build_of_torch_is_read_as_text(venv: Path, site: Path) -> None:
    assert read(venv).torch_build == Missing("not_found", "no torch")
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("raise SystemExit")
    assert read(venv).torch_build == Missing("error", "no version in torch/version.py")
    text = "from typing import Optional\n__version__ = '2.11.0+cu130'\ndebug = False\ncuda = '13.0'\n"
    (site / "torch" / "version.py").write_text(text)
    assert read(venv).torch_build == "2.11.0+cu130"


# ---- hostile trees


def test_hostile_names_do_no_harm(venv: Path, site: Path) -> None:
    lay("0.5.9", site)
    for name in (b"\x1b]0;title\x07", b"\xff\xfe", "\u202e\u200b".encode(), b"x" * 255, b"-rf", b"a\nb.pth"):
        os.mkdir(os.path.join(os.fsencode(site), name))
        path = os.path.join(os.fsencode(site / "sglang"), name + b".py" if len(name) < 200 else name)
        with open(path, "wb"):
            pass
    with open(os.path.join(os.fsencode(site), b"\xff-1.dist-info"), "wb"):
        pass
    (site / "loop").symlink_to(site)
    (site / "self").symlink_to("self")
    (site / "self.pth").symlink_to("self.pth")
    (site / "zero.pth").symlink_to("/dev/zero")
    os.mkfifo(site / "pipe.pth")
    os.mkfifo(site / "sglang" / "_version.py.new")
    (site / "long.pth").write_text("/" + "x" * 4000 + "\n" + "/a" * 3000 + "\n\0\n")
    found = package(venv)
    assert (found.version, found.dist_version, found.kind) == ("0.5.9", "0.5.9", "regular")


def test_a_name_that_is_no_text_is_shown_with_its_bytes(venv: Path, site: Path) -> None:
    folder = venv.parent / os.fsdecode(b"tree-\xff")
    shutil.copytree(wheel("0.5.9") / "sglang", folder / "sglang", copy_function=os.link)
    (site / "deps.pth").write_bytes(os.fsencode(folder) + b"\n")
    found = package(venv)
    assert str(found.origin).endswith("/tree-\\xff/sglang/__init__.py")
    assert found.version == "0.5.9"


def test_a_fifo_in_a_files_place_is_not_waited_for(venv: Path, site: Path) -> None:
    (site / "sglang").mkdir()
    for name in ("__init__.py", "_version.py"):
        os.mkfifo(site / "sglang" / name)
    (site / "sglang-1.dist-info").mkdir()
    os.mkfifo(site / "sglang-1.dist-info" / "METADATA")
    assert package(venv).kind == "namespace"


# ---- the agent's own Python


@pytest.mark.parametrize("minor", list(pythons()))
def test_every_python_that_runs_the_agent_says_the_same(venv: Path, site: Path, minor: str) -> None:
    lay("0.5.13.post1", site)
    code = (
        f"import sys, json; sys.path.insert(0, {str(ROOT)!r})\n"
        "from dflash_console.agent.venvs.reading import read_venv\n"
        f"print(json.dumps(read_venv({str(venv)!r}, 'config', {SPEC!r}, [])['venv']))"
    )
    done = subprocess.run(
        [pythons()[minor], "-I", "-B", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert msgspec.json.decode(done.stdout, type=Venv, dec_hook=model.decode_cell) == read(venv)
