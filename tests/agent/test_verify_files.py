"""What the files of an environment tell: each odd state of a package has its verdict, and a healthy one no warning."""

from __future__ import annotations

import base64
import codecs
import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_console.agent.verify import content, files, record
from dflash_console.verdict import Check
from tests.agent.dead_mount import dead_mount
from tests.agent.environments import SPEC, WORKER, make_venv, pythons
from tests.agent.verify_loop import checks, fingerprint, part, states
from tests.uv import uv
from tests.waiting import until_sync
from tests.wheels import VERSIONS, cache, lay, wheel

SPECULATIVE = "sglang/srt/speculative"
TREE = "0.5.13.post1"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own, without packages, and a login without PYTHONPATH."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path / "home"


def replace(path: Path, text: str) -> None:
    """Another file in a file's place: those of `lay` are hard links to the tests' cache."""
    path.unlink(missing_ok=True)
    path.write_text(text)


def copy(source: Path | str, target: Path, *options: str) -> None:
    """What an operator types."""
    subprocess.run(["cp", *options, str(source), str(target)], check=True, timeout=60)


def overlay(version: str, site: Path, options: str) -> None:
    """Copies a tree over another one, file by file."""
    copy(f"{wheel(version)}/sglang/.", site / "sglang", options)


def lay_by_copy(version: str, site: Path) -> None:
    # Installers write RECORD last, too.
    for item in sorted(wheel(version).iterdir(), key=lambda item: item.name.endswith(".dist-info")):
        copy(item, site, "-r")


# ---- healthy installs


def install(version: str, folder: Path, tool: str) -> Path:
    """A real installation from the real wheel."""
    wheel(version)
    (archive,) = (cache() / "wheels").glob(f"sglang-{version}-*.whl")
    make_venv(folder)
    python = str(folder / "bin/python")
    line = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index"]
    if tool == "uv":
        line = [str(uv()), "pip", "install", "--offline", "--link-mode=hardlink", "--python", python]
    environment = {**os.environ, "UV_CACHE_DIR": str(folder.parent / "uv-cache")}
    subprocess.run([*line, "--quiet", "--no-deps", str(archive)], check=True, timeout=300, env=environment)
    return folder


@pytest.mark.parametrize("tool", ["pip", "uv"])
@pytest.mark.parametrize("version", VERSIONS)
def test_what_an_installer_leaves_has_no_warning(tmp_path: Path, version: str, tool: str) -> None:
    venv = install(version, tmp_path / "venv", tool)
    found, facts = part("files", venv)
    expected = {"modules": "fail"} if version == "0.5.9" else {}
    assert states(found) == expected, found
    assert found["record"].detail.endswith(" files as installed")
    assert (facts["version"], facts["dist_version"]) == (version, version)
    assert facts["files"] == {"0.5.9": 1936, "0.5.13.post1": 3131, "0.5.23": 5771}[version]
    names = "dflash_worker_v2" if version == "0.5.23" else "dflash_worker"
    if version != "0.5.9":
        assert found["modules"].detail == f"{names}, dflash_info, dflash_utils"
    if tool == "uv":
        assert "hard-linked, as uv does" in found["links"].detail


def test_another_environment_of_the_same_uv_cache_does_not_spoil_the_first(tmp_path: Path) -> None:
    first = install(TREE, tmp_path / "first", "uv")
    (site,) = first.glob("lib/python3.*/site-packages")
    subprocess.run(
        [first / "bin/python", "-m", "compileall", "-q", site / "sglang/srt/speculative"], check=True
    )
    before, facts = part("files", first)
    install(TREE, tmp_path / "second", "uv")
    after, later = part("files", first)
    assert states(before) == states(after) == {}
    assert later["newest"] == facts["newest"]
    assert later["fingerprint"] == facts["fingerprint"]


def test_a_copy_of_a_whole_environment_with_its_bytecode_has_no_warning(tmp_path: Path) -> None:
    first = install(TREE, tmp_path / "first", "pip")
    subprocess.run(["cp", "-a", first, tmp_path / "venv"], check=True)
    assert states(checks(tmp_path / "venv")) == {}


# ---- the ways in which a copy goes wrong


def test_a_nested_copy_fails_and_says_where_the_modules_are(venv: Path, site: Path) -> None:
    lay("0.5.9", site)
    copy(wheel(TREE) / "sglang", site / "sglang", "-r")
    found = checks(venv)
    assert states(found) == {"modules": "fail", "nested": "warn", "record": "warn"}
    assert "nested" in found["nested"].detail
    assert found["modules"].detail.startswith(
        "missing: dflash_worker (or dflash_worker_v2), dflash_info, dflash_utils"
    )
    assert f"they lie in the nested {site}/sglang/sglang" in found["modules"].detail


@pytest.mark.parametrize("options", ["-a", "-r"])
def test_an_overlaid_tree_tells_both_versions_and_what_stayed_below(
    venv: Path, site: Path, options: str
) -> None:
    lay_by_copy("0.5.9", site)
    overlay(TREE, site, options)
    found = checks(venv)
    assert states(found) == {"version": "warn", "record": "unknown", "leftovers": "warn"}
    assert found["version"].detail == f"tree {TREE}, dist-info 0.5.9: the tree was copied over"
    old = {path.relative_to(wheel("0.5.9")) for path in wheel("0.5.9").rglob("sglang/**/*.py")}
    new = {path.relative_to(wheel(TREE)) for path in wheel(TREE).rglob("sglang/**/*.py")}
    assert found["leftovers"].detail.startswith(
        f"{len(old - new)} files of 0.5.9 below the tree of {TREE}: sglang/"
    )


@pytest.mark.parametrize("options", ["-a", "-r"])
def test_a_swapped_tree_is_told_by_its_two_versions_alone(venv: Path, site: Path, options: str) -> None:
    lay_by_copy("0.5.9", site)
    shutil.rmtree(site / "sglang")
    copy(wheel(TREE) / "sglang", site, options)
    found = checks(venv)
    assert states(found) == {"version": "warn", "record": "unknown"}
    assert found["leftovers"].detail == "none"


def test_a_tree_copied_over_hard_links_has_changed_other_environments_too(tmp_path: Path) -> None:
    venv = install("0.5.9", tmp_path / "venv", "uv")
    (site,) = venv.glob("lib/python3.*/site-packages")
    overlay(TREE, site, "-r")
    found = checks(venv)
    assert found["links"].state == "warn"
    assert "another environment or uv's cache has the change too" in found["links"].detail
    assert found["leftovers"].state == "warn"


@pytest.mark.skipif("3.12" not in pythons(), reason="there is no other Python here")
def test_a_tree_for_another_python_is_told(tmp_path: Path) -> None:
    site = make_venv(tmp_path / "venv", pythons()["3.12"])
    lay(TREE, site)
    found = checks(tmp_path / "venv")
    assert states(found) == {"python": "warn"}
    assert found["python"].detail.endswith(
        "1 compiled for another Python: srt/grpc/_core.cpython-311-x86_64-linux-gnu.so"
    )


def test_an_interrupted_copy_of_ours_is_told(venv: Path, site: Path) -> None:
    lay(TREE, site)
    (venv / ".dflash-console/stage-20261130").mkdir(parents=True)
    (venv / ".dflash-console/journal.jsonl").write_text('{"state": "staged"}\n{"state": "done"}\n')
    assert "stage-20261130" in checks(venv)["copy"].detail
    (venv / ".dflash-console/stage-20261130").rmdir()
    assert checks(venv)["copy"].state == "pass"
    (venv / ".dflash-console/journal.jsonl").write_text('{"state": "staged", "by": "kim"}\n{"sta')
    assert checks(venv)["copy"].detail == f"not settled: a copy by kim, staged; see {venv}/.dflash-console"


# ---- modules, origin


def test_an_emptied_module_fails_with_the_word(venv: Path, site: Path) -> None:
    lay(TREE, site)
    replace(site / SPECULATIVE / "dflash_worker.py", "")
    found = checks(venv)
    assert states(found) == {"modules": "fail", "record": "fail"}
    assert found["modules"].detail == "empty: dflash_worker"
    assert found["modules"].evidence[0].endswith(f"empty, zero bytes: {site}/{SPECULATIVE}/dflash_worker.py")


def test_an_emptied_package_fails_and_one_that_is_meant_to_be_empty_does_not(venv: Path, site: Path) -> None:
    lay(TREE, site)
    replace(site / "sglang/__init__.py", "")
    found = checks(venv)
    assert (found["origin"].state, found["origin"].detail) == ("fail", f"empty: {site}/sglang/__init__.py")
    assert checks(venv, package="tools", modules=[["tools"]])["origin"].state in ("fail", "pass")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_module_that_this_login_may_not_read_fails(tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    site = make_venv(folder)
    lay(TREE, site)
    replace(site / SPECULATIVE / "dflash_info.py", "x = 1")
    (site / SPECULATIVE / "dflash_info.py").chmod(0o600)
    found = as_nobody(tmp_path, folder)
    assert found["modules"].detail == "unreadable: dflash_info"
    (site / SPECULATIVE).chmod(0o700)
    found = as_nobody(tmp_path, folder)
    assert found["modules"].state == "fail"
    assert "folder may not be read" in found["record"].detail


def as_nobody(folder: Path, venv: Path) -> dict[str, Check]:
    """What a login without rights gets; it may not read this interpreter's files, so they are loaded before."""
    assert all((base64, csv, hashlib, codecs.lookup("ascii")))
    for parent in (folder, *folder.parents[:-1]):
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    os.seteuid(65534)
    try:
        return checks(venv)
    finally:
        os.seteuid(0)


def test_a_tree_without_init_fails_and_names_the_file(venv: Path, site: Path) -> None:
    lay(TREE, site)
    (site / "sglang/__init__.py").unlink()
    found = checks(venv)
    assert found["origin"].state == "fail"
    assert "__init__.py" in found["origin"].detail
    assert found["record"].detail == "1 missing (sglang/__init__.py)"


def test_no_package_no_environment_and_no_interpreter_are_three_answers(
    venv: Path, site: Path, tmp_path: Path
) -> None:
    found = checks(venv)
    assert states(found) == {"origin": "fail", "modules": "fail"}
    assert found["origin"].detail == f"{venv}: no sglang"
    gone = checks(tmp_path / "gone")
    assert states(gone) == {"python": "fail", "origin": "unknown", "modules": "unknown"}
    assert gone["python"].detail == f"{tmp_path}/gone: no such folder"
    lay(TREE, site)
    for name in ("python", "python3"):
        (venv / "bin" / name).unlink()
        (venv / "bin" / name).symlink_to("/nowhere/python3")
    broken = checks(venv)
    assert states(broken) == {"python": "fail"}
    assert "broken interpreter link: bin/python -> /nowhere/python3" in broken["python"].detail


def test_a_single_file_in_the_packages_place_fails(venv: Path, site: Path) -> None:
    (site / "sglang.py").write_text("x = 1\n")
    found = checks(venv)
    assert (found["origin"].state, found["modules"].state) == ("fail", "fail")
    assert "a single file, not a package" in found["origin"].detail


# ---- where it comes from


def test_an_editable_install_warns_and_names_the_checkout(venv: Path, site: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "work" / "python"
    checkout.mkdir(parents=True)
    shutil.copytree(wheel(TREE) / "sglang", checkout / "sglang", copy_function=os.link)
    (site / "__editable__.sglang.pth").write_text(f"{checkout}\n")
    found = checks(venv)
    assert states(found) == {"origin": "warn", "version": "warn", "record": "unknown"}
    assert str(checkout) in found["origin"].detail
    lay(TREE, site)
    hidden = checks(venv)
    assert states(hidden) == {"shadow": "warn"}
    assert hidden["shadow"].detail.startswith(
        f"{site}/sglang/__init__.py hides the editable install of {checkout}"
    )


def test_an_editable_install_by_a_finder_warns_too(venv: Path, site: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "odd" / "tree"
    shutil.copytree(wheel(TREE) / "sglang", checkout, copy_function=os.link)
    name = "__editable___sglang_0_5_13_finder"
    (site / f"{name}.py").write_text(f"MAPPING: dict[str, str] = {{'sglang': {str(checkout)!r}}}\n")
    (site / "__editable__.sglang-0.5.13.pth").write_text(f"import {name}; {name}.install()\n")
    found = checks(venv)
    assert states(found) == {"origin": "warn", "version": "warn", "record": "unknown"}
    assert f"{checkout}/__init__.py: an editable install of {checkout}" in found["origin"].detail


def test_a_tree_by_a_pth_file_or_a_link_is_outside_the_environment(
    venv: Path, site: Path, tmp_path: Path
) -> None:
    lay(TREE, tmp_path / "shared")
    (site / "shared.pth").write_text(f"{tmp_path}/shared\n")
    found = checks(venv)
    assert states(found) == {"origin": "warn"}
    assert found["record"].state == "pass"
    assert f"{tmp_path}/shared/sglang/__init__.py lies outside" in found["origin"].detail
    assert str(site) in found["origin"].detail
    (site / "sglang").symlink_to(tmp_path / "shared/sglang")
    linked = checks(venv)
    assert "is a link out of the environment" in linked["origin"].detail


@pytest.mark.parametrize("what", ["the package", "a module's folder", "site-packages"])
def test_a_link_that_stays_in_the_environment_leads_out_of_nothing(
    venv: Path, site: Path, tmp_path: Path, what: str
) -> None:
    lay(TREE, site)
    place = {
        "the package": site / "sglang",
        "a module's folder": site / SPECULATIVE,
        "site-packages": site,
    }[what]
    (venv / "src").mkdir()
    place.rename(venv / "src/it")
    place.symlink_to(os.path.relpath(venv / "src/it", place.parent))
    found = checks(venv)
    assert states(found) == {}, found
    assert found["origin"].detail == f"{site}/sglang/__init__.py"
    (venv / "src/it").rename(tmp_path / "it")
    place.unlink()
    place.symlink_to(tmp_path / "it")
    assert checks(venv)["origin"].state == ("warn" if what == "the package" else "pass")


def test_the_logins_pythonpath_that_puts_another_first_fails(
    venv: Path, site: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(TREE, site)
    (home / "src/sglang").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", f"/nowhere:src:{site}")
    assert states(checks(venv)) == {}
    (home / "src/sglang/__init__.py").write_text("")
    found = checks(venv)
    assert states(found) == {"shadow": "fail"}
    assert f"{home}/src/sglang/__init__.py before {site}/sglang/__init__.py" in found["shadow"].detail


# ---- RECORD


def record_of(site: Path) -> Path:
    (path,) = site.glob("sglang-*.dist-info/RECORD")
    return path


def test_patches_warn_with_counts_and_what_is_missing_fails(venv: Path, site: Path) -> None:
    lay(TREE, site)
    replace(site / "sglang/utils.py", "x = 1\n")
    replace(site / "sglang/my_patch.py", "x = 1\n")
    replace(site / "sglang/notes.txt", "x\n")
    found = checks(venv)
    assert states(found) == {"record": "warn"}
    assert found["record"].detail == (
        "1 changed (sglang/utils.py), 1 extra (sglang/my_patch.py): patched or damaged"
    )
    assert "and 1 file beside them that is no code" in found["record"].evidence
    (site / "sglang/README.md").unlink()
    assert checks(venv)["record"].state == "warn"
    shutil.rmtree(site / "tools")
    assert checks(venv)["record"].state == "warn"
    (site / "sglang/version.py").unlink()
    lost = checks(venv)
    assert lost["record"].state == "fail"
    assert "missing: sglang/version.py" in lost["record"].evidence


@pytest.mark.parametrize("text", ["def broken(:\n", "x = 1\n\0\0\0\0", "\0" * 500])
def test_a_changed_file_that_does_not_compile_is_damage_and_fails(venv: Path, site: Path, text: str) -> None:
    lay(TREE, site)
    replace(site / "sglang/srt/server_args.py", text)
    found = checks(venv)
    assert states(found) == {"record": "fail"}
    assert found["record"].detail.startswith(f"damaged: {site}/sglang/srt/server_args.py does not compile: ")


@pytest.mark.parametrize(
    ("text", "state", "words"),
    [
        (None, "unknown", "no RECORD in sglang-0.5.13.post1.dist-info"),
        ("", "unknown", "RECORD is empty"),
        ("\0\0\0\0" * 99, "unknown", "RECORD is damaged"),
        ("nonsense\n" * 50, "unknown", "RECORD is damaged"),
        ('"sglang/x.py', "unknown", "RECORD"),
        ("gone/x.py,,\n", "unknown", "RECORD lists none of the files that are there"),
    ],
)
def test_a_record_that_is_none_can_not_vouch(
    venv: Path, site: Path, text: str | None, state: str, words: str
) -> None:
    lay(TREE, site)
    record_of(site).unlink()
    if text is not None:
        record_of_path = site / f"sglang-{TREE}.dist-info/RECORD"
        record_of_path.write_text(text)
    found = checks(venv)
    assert states(found) == {"record": state}, found["record"]
    assert words in found["record"].detail


def test_a_record_without_hashes_can_not_vouch(venv: Path, site: Path) -> None:
    lay(TREE, site)
    (record,) = site.glob("sglang-*.dist-info/RECORD")
    rows = [line.split(",")[0] + ",," for line in record.read_text().splitlines()]
    record.unlink()
    record.write_text("\n".join(rows) + "\n")
    replace(site / "sglang/launch_server.py", "")
    found = checks(venv)
    assert found["record"].state == "unknown"
    assert found["record"].detail.startswith("RECORD has no hash for ")


def test_an_empty_package_that_stands_before_a_module_fails(venv: Path, site: Path) -> None:
    lay(TREE, site)
    (site / "sglang/srt/speculative/dflash_worker").mkdir()
    (site / "sglang/srt/speculative/dflash_worker/__init__.py").touch()
    found = checks(venv)
    assert found["modules"].state == "fail"
    assert "empty" in found["modules"].detail


def test_a_record_with_hostile_paths_leads_nowhere(venv: Path, site: Path, tmp_path: Path) -> None:
    lay(TREE, site)
    os.mkfifo(site / "sglang/pipe.py")
    odd = "sglang/new\nline \udcff \u202e.txt"
    (site / odd).write_text("x")
    rows = ["/etc/passwd", "../../../../../../etc/passwd", "../..", "sglang/../../../../../x", "a\0b"]
    lines = [f"{name},sha256=AAAA,4\n" for name in rows]
    lines += [
        "sglang/pipe.py,sha256=AAAA,0\n",
        "/dev/zero,sha256=AAAA,\n",
        "sglang,sha256=AAAA,4\n",
        "x,y\n",
        ",,\n",
    ]
    path = record_of(site)
    text = path.read_text()
    replace(path, text)
    with path.open("a", errors="surrogateescape") as file:
        file.writelines(lines[:4] + lines[5:])
        file.write(f'"{odd}",sha256=AAAA,1\n')
    found = checks(venv)
    assert found["record"].state == "fail"
    assert "RECORD leads out of the environment: /etc/passwd" in found["record"].evidence
    assert "missing: sglang/pipe.py" in found["record"].evidence
    assert "changed: sglang/new\\nline \\xff \\u202e.txt" in found["record"].evidence


def test_two_dist_infos_are_told(venv: Path, site: Path) -> None:
    lay(TREE, site)
    lay("0.5.9", site.parent / "other")
    (site.parent / "other/sglang-0.5.9.dist-info").rename(site / "sglang-0.5.9.dist-info")
    found = checks(venv)
    assert states(found) == {"version": "warn", "record": "unknown"}
    assert "0.5.9" in found["version"].detail


def test_no_dist_info_is_told(venv: Path, site: Path) -> None:
    lay(TREE, site)
    shutil.rmtree(site / f"sglang-{TREE}.dist-info")
    found = checks(venv)
    assert states(found) == {"version": "warn", "record": "unknown"}
    assert "pip does not know of it" in found["version"].detail


@pytest.mark.parametrize(
    "name",
    ["~glang", "~glang-0.5.9.dist-info", "sglang_bak", "sglang.old", "sglang-backup-1", "sglang (copy)"],
)
def test_what_was_put_aside_is_told(venv: Path, site: Path, name: str) -> None:
    lay(TREE, site)
    (site / name).mkdir()
    if "copy" in name:
        name = "sglang copy"
        (site / name).mkdir()
    found = checks(venv)
    assert states(found) == {"leftovers": "warn"}
    assert name in found["leftovers"].detail


@pytest.mark.parametrize("name", ["sglang_router", "sglang_kernel-0.4.3.dist-info", "sglang.libs", "~other"])
def test_what_only_begins_alike_is_not(venv: Path, site: Path, name: str) -> None:
    lay(TREE, site)
    (site / name).mkdir()
    assert states(checks(venv)) == {}


# ---- bytecode


def test_bytecode_that_is_not_of_its_source_fails_though_python_takes_it(venv: Path, site: Path) -> None:
    lay(TREE, site)
    path = site / SPECULATIVE / "dflash_info.py"
    replace(path, "value = 'old'\n")
    os.utime(path, ns=(0, 1_700_000_000_500_000_000))
    subprocess.run([venv / "bin/python", "-m", "compileall", "-q", path], check=True)
    assert checks(venv)["bytecode"].state == "pass"
    replace(path, "value = 'new'\n")
    os.utime(path, ns=(0, 1_700_000_000_900_000_000))
    code = f"import importlib.util as u; s = u.spec_from_file_location('x', {str(path)!r}); m = u.module_from_spec(s)"
    taken = subprocess.check_output(
        [venv / "bin/python", "-c", f"{code}; s.loader.exec_module(m); print(m.value)"]
    )
    assert taken == b"old\n"
    found = checks(venv)
    assert states(found) == {"record": "warn", "bytecode": "fail"}
    assert "srt/speculative/dflash_info.py" in found["bytecode"].detail
    replace(path, "value = 'old'\n")
    os.utime(path, ns=(0, 1_700_000_000_900_000_000))
    again = checks(venv)
    assert (again["bytecode"].state, again["bytecode"].detail) == (
        "pass",
        "1 file compared with the source, all alike",
    )


def test_unchecked_bytecode_of_another_source_fails(venv: Path, site: Path) -> None:
    lay(TREE, site)
    path = site / SPECULATIVE / "dflash_info.py"
    replace(path, "value = 'old'\n")
    compiling = [
        str(venv / "bin/python"),
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode",
        "unchecked-hash",
        str(path),
    ]
    subprocess.run(compiling, check=True)
    replace(path, "value = 'quite new'\n")
    assert checks(venv)["bytecode"].state == "fail"
    shutil.rmtree(path.parent / "__pycache__")
    subprocess.run([word if word != "unchecked-hash" else "checked-hash" for word in compiling], check=True)
    replace(path, "value = 'newest'\n")
    assert checks(venv)["bytecode"].state == "pass"


def test_bytecode_that_can_not_be_compared_is_unknown(venv: Path, site: Path) -> None:
    lay(TREE, site)
    path = site / SPECULATIVE / "dflash_info.py"
    replace(path, "value = 'old'\n")
    os.utime(path, ns=(0, 1_700_000_000_000_000_000))
    subprocess.run([venv / "bin/python", "-m", "compileall", "-q", path], check=True)
    replace(path, "value = 'new'\n")
    os.utime(path, ns=(0, 1_700_000_000_000_000_000))
    for name in ("python", "python3"):
        (venv / "bin" / name).unlink(missing_ok=True)
        (venv / "bin" / name).write_text("#!/bin/sh\necho no luck >&2\nexit 3\n")
        (venv / "bin" / name).chmod(0o755)
    found = checks(venv)["bytecode"]
    assert (found.state, "no luck" in found.detail) == ("unknown", True)


# ---- what is kept, and deadlines


def test_the_contents_are_read_once_until_a_file_changes(
    venv: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(TREE, site)
    real = record.compare
    reads = site.parent / "reads"
    reads.touch()

    def counting(*words: object) -> object:
        with reads.open("a") as file:
            file.write("x")
        return real(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(content, "compare", counting)
    first = checks(venv)

    def is_kept() -> bool:
        before = reads.stat().st_size
        return checks(venv) == first and reads.stat().st_size == before

    until_sync(is_kept, 30, "the checks are kept")
    replace(site / "sglang/utils.py", "x = 1\n")
    assert checks(venv)["record"].state == "warn"
    (site / "sglang/utils.py").unlink()
    os.link(wheel(TREE) / "sglang/utils.py", site / "sglang/utils.py")
    assert checks(venv)["record"].state == "pass"
    (site / "sglang_bak").mkdir()
    assert checks(venv)["leftovers"].state == "warn"
    assert (str(venv), "sglang") in files._kept


def test_the_fingerprint_is_that_of_the_files_and_changes_with_them_alone(venv: Path, site: Path) -> None:
    lay(TREE, site)
    told = part("files", venv)[1]["fingerprint"]
    assert fingerprint(venv) == told
    program = "import sys; from tests.agent.verify_loop import fingerprint as f; print(f(sys.argv[1]))"
    root = Path(__file__).parents[2]
    other = subprocess.check_output([sys.executable, "-c", program, str(venv)], cwd=root, text=True)
    assert other.strip() == told
    subprocess.run([venv / "bin/python", "-m", "compileall", "-q", site / SPECULATIVE], check=True)
    assert fingerprint(venv) == told
    seen = {told}
    changes: list[Callable[[], object]] = [
        lambda: replace(site / "sglang/utils.py", "x = 1\n"),
        lambda: (site / "sglang/utils.py").chmod(0o600),
        lambda: os.utime(site / "sglang/utils.py", (1, 1)),
        lambda: (site / "torch-9.dist-info").mkdir(),
        lambda: (site / "sglang/version.py").unlink(),
        lambda: shutil.rmtree(site / "sglang"),
        lambda: shutil.rmtree(venv),
    ]
    for change in changes:
        change()
        assert fingerprint(venv) not in seen
        seen.add(fingerprint(venv))


def test_a_dead_mount_is_unknown_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "dead").mkdir()
    with dead_mount(tmp_path / "dead"):
        found = checks(tmp_path / "dead/venv", limit=0.5)
    assert states(found) == dict.fromkeys(("python", "origin", "modules"), "unknown")
    assert "no answer within 0.5 s: the filesystem may be dead" in found["python"].detail


def test_a_tree_on_a_dead_mount_is_unknown_too(venv: Path, site: Path, tmp_path: Path) -> None:
    (tmp_path / "dead").mkdir()
    (site / "sglang").symlink_to(tmp_path / "dead/sglang")
    with dead_mount(tmp_path / "dead"):
        assert checks(venv, limit=0.5)["origin"].state == "unknown"


@pytest.mark.parametrize("minor", list(pythons()))
def test_the_agents_python_may_be_any(venv: Path, site: Path, minor: str, tmp_path: Path) -> None:
    lay(TREE, site)
    replace(site / SPECULATIVE / "dflash_info.py", "x = (\n")
    program = (
        "import json, sys, time; from dflash_console.agent.verify import files\n"
        "print(json.dumps(files.look(sys.argv[1], 'sglang', json.loads(sys.argv[2]), ('', [], {}), 30.0)[0]))"
    )
    words = [
        pythons()[minor],
        "-B",
        "-S",
        "-c",
        program,
        str(venv),
        json.dumps(SPEC["modules"]),
    ]
    answer = json.loads(subprocess.check_output(words, cwd=Path(__file__).parents[2], text=True))
    told = {check["name"]: check["state"] for check in answer["checks"] if check["state"] != "pass"}
    assert told == {"record": "fail"}
    assert WORKER.rpartition(".")[2] in next(c["detail"] for c in answer["checks"] if c["name"] == "modules")
