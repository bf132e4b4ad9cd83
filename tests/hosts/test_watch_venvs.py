"""Where the package really comes from, for every venv, on trees of real wheels."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dflash_console.model import Package, Venv
from tests.hosts.fleet import Fleet
from tests.hosts.host import Host
from tests.hosts.venvs import lay_venv, lay_wheel, site_packages
from tests.hosts.watching import Watching, config_file, is_reason, watching
from tests.wheels import wheel

WORKER = "sglang.srt.speculative.dflash_worker"
WORKER_V2 = "sglang.srt.speculative.dflash_worker_v2"
INFO = "sglang.srt.speculative.dflash_info"
UTILS = "sglang.srt.speculative.dflash_utils"


def package(watch: Watching, host: str, path: str) -> Package:
    """The package of a venv; fails while there is none."""
    found = watch.venv(host, path).package
    assert isinstance(found, Package), str(found)
    return found


async def test_three_trees_are_told_apart(tmp_path: Path, hosts: Fleet) -> None:
    tables: dict[str, dict[str, object]] = {
        "ct129": {"venvs": ["/root/ml-env"]},
        "ct200": {"venvs": ["/root/venv_sglang", "/root/venv", "/root/ml-env"]},
        "kpro6": {},
    }
    async with watching(config_file(tmp_path, hosts, tables)) as watch:
        await watch.until_whole(*tables)

        patched = package(watch, "ct129", "/root/ml-env")
        folder = f"{site_packages('/root/ml-env')}/sglang"
        assert patched.origin == f"{folder}/__init__.py"
        assert patched.version == patched.dist_version == "0.5.13.post1"
        assert (patched.kind, patched.nested, patched.outside) == ("regular", False, False)
        assert patched.modules == {
            WORKER: f"{folder}/srt/speculative/dflash_worker.py",
            INFO: f"{folder}/srt/speculative/dflash_info.py",
            UTILS: f"{folder}/srt/speculative/dflash_utils.py",
        }

        plain = package(watch, "ct200", "/root/venv_sglang")
        assert plain.version == "0.5.9"
        assert list(plain.modules.values()) == [None, None, None]

        newest = package(watch, "kpro6", "/root/venv_new")
        assert newest.version == "0.5.23"
        assert WORKER_V2 in newest.modules
        assert all(newest.modules.values())

        empty = watch.venv("ct200", "/root/venv")
        assert isinstance(empty.python, str)
        assert is_reason(empty.package, "not_found")

        absent = watch.venv("ct200", "/root/ml-env")
        assert is_reason(absent.python, "not_found")


def beside(host: Host, name: str) -> tuple[str, Path]:
    """A venv of a test's own beside the story's: its path, and its site-packages as seen from here."""
    venv = f"/root/{name}"
    shutil.rmtree(host.root / venv.lstrip("/"), ignore_errors=True)
    return venv, host.root / lay_venv(host, venv).lstrip("/")


ODD = ("nested", "namespace", "editable", "copied", "emptied")


@pytest.fixture
def odd_venvs(hosts: Fleet) -> Host:
    """One venv for each way in which a package can be there and not be what it seems."""
    host = hosts["ct200"]
    patched = wheel("0.5.13.post1")
    shutil.copytree(patched / "sglang", host.root / "root/incoming/sglang", dirs_exist_ok=True)

    nested, _ = beside(host, "nested")
    lay_wheel(host, nested, wheel("0.5.9"))
    host.run(f"cp -r /root/incoming/sglang {site_packages(nested)}/sglang")

    _, site = beside(host, "namespace")
    shutil.copytree(patched / "sglang" / "srt" / "speculative", site / "sglang" / "srt" / "speculative")

    _, site = beside(host, "editable")
    (site / "__editable__.sglang-0.5.13.pth").write_text("/root/incoming\n")
    info = site / "sglang-0.5.13.post1.dist-info"
    shutil.copytree(next(patched.glob("sglang-*.dist-info")), info)
    (info / "direct_url.json").write_text(
        json.dumps({"url": "file:///root/incoming", "dir_info": {"editable": True}})
    )

    copied, site = beside(host, "copied")
    lay_wheel(host, copied, wheel("0.5.9"))
    shutil.rmtree(site / "sglang")
    host.run(f"cp -r /root/incoming/sglang {site_packages(copied)}/sglang")

    emptied, site = beside(host, "emptied")
    lay_wheel(host, emptied, patched)
    (site / "sglang/srt/speculative/dflash_worker.py").write_bytes(b"")
    return host


async def test_trees_that_are_not_what_they_seem(tmp_path: Path, hosts: Fleet, odd_venvs: Host) -> None:
    tables: dict[str, dict[str, object]] = {"ct200": {"venvs": [f"/root/{name}" for name in ODD]}}
    async with watching(config_file(tmp_path, hosts, tables)) as watch:
        await watch.until_whole("ct200")

        nested = package(watch, "ct200", "/root/nested")
        assert nested.nested
        assert nested.version == "0.5.9"
        assert list(nested.modules.values()) == [None, None, None]

        namespace = package(watch, "ct200", "/root/namespace")
        assert namespace.kind == "namespace"
        assert not isinstance(namespace.origin, str)

        editable = package(watch, "ct200", "/root/editable")
        assert editable.kind == "editable"
        assert editable.outside
        assert editable.origin == "/root/incoming/sglang/__init__.py"
        assert "/root/incoming" in str(editable.editable_from)
        assert editable.modules[WORKER] == "/root/incoming/sglang/srt/speculative/dflash_worker.py"

        copied = package(watch, "ct200", "/root/copied")
        assert (copied.version, copied.dist_version) == ("0.5.13.post1", "0.5.9")
        assert copied.modules[WORKER]

        emptied = package(watch, "ct200", "/root/emptied")
        assert not isinstance(emptied.modules[WORKER], str | None)


async def test_a_tree_that_is_replaced_is_read_anew(tmp_path: Path, hosts: Fleet) -> None:
    host = hosts["ct200"]
    venv, site = beside(host, "replaced")
    lay_wheel(host, venv, wheel("0.5.9"))
    async with watching(config_file(tmp_path, hosts, {"ct200": {"venvs": [venv]}})) as watch:
        await watch.until_whole("ct200")
        assert package(watch, "ct200", venv).version == "0.5.9"
        for part in site.glob("sglang*"):
            shutil.rmtree(part)
        lay_wheel(host, venv, wheel("0.5.13.post1"))
        watch.fleet.refresh("ct200")
        await watch.until(
            lambda: package(watch, "ct200", venv).version == "0.5.13.post1", "the new tree is seen"
        )


async def test_the_venv_of_a_watched_unit_is_found_by_its_interpreter(tmp_path: Path, hosts: Fleet) -> None:
    host = hosts["ct129"]
    venv = "/var/lib/a/b/serving"
    lay_venv(host, venv)
    host.write(
        "/etc/systemd/system/dflash-other.service", f"[Service]\nExecStart={venv}/bin/python3 -c 'input()'\n"
    )
    host.run("systemctl daemon-reload")
    async with watching(config_file(tmp_path, hosts, {"ct129": {}})) as watch:
        await watch.until_whole("ct129")
        found: Venv = await watch.until(lambda: watch.venv("ct129", venv), "the unit's venv is listed")
        assert found.source == "unit"


async def test_paths_are_there_or_not_with_size_and_room(tmp_path: Path, hosts: Fleet) -> None:
    host = hosts["ct200"]
    host.run("mkdir -p /dev/shm/Qwen3.6-27B; head -c 4096 /dev/zero > /dev/shm/Qwen3.6-27B/model.safetensors")
    paths = ["/dev/shm/Qwen3.6-27B", "/root/models/Qwen3.6-27B-DFlash"]
    async with watching(config_file(tmp_path, hosts, {"ct200": {"paths": paths}})) as watch:
        await watch.until_whole("ct200")
        snapshot = watch.view("ct200").snapshot
        assert snapshot is not None
        there, absent = snapshot.paths
        assert (there.kind, there.size, there.entries) == ("folder", 4096, 1)
        assert is_reason(absent.kind, "not_found")
        assert not is_reason(absent.filesystem, "not_found")
        assert snapshot.host.hostname == "ct200"
    host.run("rm -r /dev/shm/Qwen3.6-27B")
