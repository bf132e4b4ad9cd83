"""The place of a package: who may write there, what is mounted there, and how much room there is."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dflash_console.agent.copy import layers
from dflash_console.agent.copy.surroundings import surroundings
from tests.agent.copy import mounts
from tests.agent.copy.client import Refusal
from tests.agent.copy.mounts import layered, remounted
from tests.agent.copy.trees import copying, package
from tests.agent.environments import make_venv

NOBODY = 65534
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user, or mount")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture
def shared(open_folder: Path) -> Path:
    """Site-packages of an environment that every user can read."""
    if PYTHON is None:
        pytest.skip("no Python that every user can run")
    site = make_venv(open_folder / "venv", PYTHON)
    package(site)
    return site


def own(folder: Path, user: int) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, user, user, follow_symlinks=False)


@needs_root
def test_a_user_who_may_write_nothing_looks_all_the_same_and_is_told_why_not(
    open_folder: Path, shared: Path
) -> None:
    with copying(PYTHON or "", user=NOBODY) as client:
        found = client.look(open_folder / "venv")
        assert found.state == "whole"
        assert found.files == len(client.entries) == 6
        assert not found.is_writable
        assert found.denied == f"{open_folder}/venv belongs to root, and nobody may not write there"
        own(open_folder / "venv", NOBODY)
        found = client.look(open_folder / "venv")
        assert (found.is_writable, found.denied) == (True, "")
        for path, words in (
            (shared, f"{shared} belongs to root"),
            (shared / "sglang", f"{shared}/sglang belongs to root"),
            (shared / "sglang-0.5.9.dist-info", f"{shared}/sglang-0.5.9.dist-info belongs to root"),
        ):
            os.chown(path, 0, 0)
            assert client.look(open_folder / "venv").denied == f"{words}, and nobody may not write there"
            os.chown(path, NOBODY, NOBODY)
        shared.chmod(0o555)
        assert "can't be written to, not even by its owner" in client.look(open_folder / "venv").denied
        shared.chmod(0o1777)
        os.chown(shared, 0, 0)
        assert client.look(open_folder / "venv").is_writable
        os.chown(shared / "sglang", 0, NOBODY)
        (shared / "sglang").chmod(0o777)
        assert "may only be moved by its owner" in client.look(open_folder / "venv").denied


@needs_root
def test_what_may_not_be_read_is_strange_and_is_not_left_out_in_silence(
    open_folder: Path, shared: Path
) -> None:
    (shared / "sglang" / "srt" / "server.py").chmod(0o600)
    (shared / "sglang" / "closed").mkdir(mode=0o700)
    (shared / "sglang" / "listed").mkdir(mode=0o744)
    (shared / "sglang" / "listed" / "x.py").write_text("1")
    with copying(PYTHON or "", user=NOBODY) as client:
        found = client.look(open_folder / "venv")
        assert found.state == "whole"
        assert sorted(found.strange) == [
            "sglang/closed: a folder that can't be read: Permission denied",
            "sglang/listed/x.py: Permission denied",
            "sglang/srt/server.py: Permission denied",
        ]
        assert "sglang/srt/server.py" not in [entry.path for entry in client.entries]
        (shared / "sglang" / "srt" / "server.py").chmod(0o644)
        client.look(open_folder / "venv")
        (shared / "sglang" / "srt" / "server.py").chmod(0o600)
        index = [entry.path for entry in client.entries].index("sglang/srt/server.py")
        with pytest.raises(Refusal, match=r"Permission denied: .*server\.py"):
            client.request("send", files=[index])
        (shared / "sglang").chmod(0o700)
        closed = client.look(open_folder / "venv")
        assert (closed.state, closed.problem) == ("broken", f"{shared}/sglang may not be read")
        shared.chmod(0o711)
        assert client.look(open_folder / "venv").state != "whole"


@contextmanager
def mounted(*arguments: str) -> Iterator[None]:
    """Something mounted; the last argument is where."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", arguments[-1]], check=True, timeout=60)


@needs_root
def test_a_read_only_mount_is_told(venv: Path, site: Path) -> None:
    package(site)
    with mounted("-o", "bind,ro", str(venv), str(venv)):
        told = surroundings(str(venv), str(site), ["sglang"])
        assert told["denied"] == f"{venv} is on a filesystem that is mounted read-only"
        assert not told["is_writable"]


@needs_root
@pytest.mark.parametrize("below", ["sglang", "sglang/srt", "sglang-0.5.9.dist-info"])
def test_a_mount_in_the_packages_place_is_told(venv: Path, site: Path, below: str) -> None:
    package(site)
    with mounted("--bind", str(site / below), str(site / below)):
        told = surroundings(str(venv), str(site), ["sglang", "sglang-0.5.9.dist-info"])
        assert told["mount"] == f"{site}/{below}"
        assert told["is_same_filesystem"]
    assert surroundings(str(venv), str(site), ["sglang"])["mount"] == ""


@needs_root
def test_one_filesystem_that_is_mounted_twice_counts_as_two(venv: Path, site: Path) -> None:
    package(site)
    assert surroundings(str(venv), str(site), [])["is_same_filesystem"]
    with mounted("--bind", str(site), str(site)):
        told = surroundings(str(venv), str(site), ["sglang"])
        assert not told["is_same_filesystem"]
        assert told["mount"] == ""


@needs_root
def test_another_filesystem_and_its_room_are_told(venv: Path, site: Path) -> None:
    with mounted("-t", "tmpfs", "-o", "size=4m,nr_inodes=100", "none", str(site)):
        assert not surroundings(str(venv), str(site), [])["is_same_filesystem"]
    (venv / ".dflash-console").mkdir()
    with mounted("-t", "tmpfs", "-o", "size=4m,nr_inodes=100", "none", str(venv / ".dflash-console")):
        told = surroundings(str(venv), str(site), [])
        assert (told["filesystem"], told["free"], told["free_inodes"]) == ("tmpfs", 4 << 20, 99)
        assert not told["is_same_filesystem"]


@needs_root
def test_a_folder_that_not_even_root_may_change_is_told(venv: Path, site: Path) -> None:
    done = subprocess.run(
        ["chattr", "+i", str(site)], capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        pytest.skip(f"no immutable folders here: {done.stderr.strip()}")
    try:
        assert "can't be written to" in surroundings(str(venv), str(site), [])["denied"]
    finally:
        subprocess.run(["chattr", "-i", str(site)], check=True, timeout=60)


@needs_root
def test_a_package_of_an_images_layer_is_told_from_one_of_the_writable_layer(
    tmp_path: Path,
) -> None:
    """Told before, and without trying, what a rename would say."""
    image = tmp_path / "image"
    site = make_venv(image / "venv")
    package(site)
    names = ["sglang", "sglang-0.5.9.dist-info"]
    with layered(tmp_path / "layers", image) as merged:
        place, there = merged / "venv", merged / site.relative_to(image)

        def layer() -> str:
            told = surroundings(str(place), str(there), [name for name in names if (there / name).exists()])
            assert told["filesystem"] == "overlay"
            return str(told["layer"])

        assert layer() == "lower"
        # Something new in it makes it no folder of the writable layer alone.
        (there / "sglang" / "new.py").write_text("1")
        assert layer() == "lower"
        with pytest.raises(OSError, match="cross-device"):
            (there / "sglang").rename(place / "sglang")
        shutil.rmtree(there / "sglang")
        package(tmp_path / "fresh")
        shutil.copytree(tmp_path / "fresh" / "sglang", there / "sglang")
        assert layer() == "lower", "its dist-info is still the image's"
        shutil.rmtree(there / names[1])
        assert layer() == "own"
        (there / "sglang").rename(place / "sglang")
        assert layer() == "own", "there is nothing that would have to be renamed"


@needs_root
def test_what_the_kernel_does_not_say_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = tmp_path / "image"
    site = make_venv(image / "venv")
    package(site)
    monkeypatch.setattr(layers, "_AT_HANDLE_FID", 0)
    with layered(tmp_path / "layers", image) as merged:
        there = merged / site.relative_to(image)
        assert surroundings(str(merged / "venv"), str(there), ["sglang"])["layer"] == "unknown"


@needs_root
def test_a_filesystem_that_has_failed_is_named_before_anything_is_done(tmp_path: Path) -> None:
    image = tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True, timeout=60)
    with mounts.mounted(tmp_path / "place", "loop", kind="ext4", source=str(image)):
        site = make_venv(tmp_path / "place" / "venv")
        assert surroundings(str(site.parents[2]), str(site), [])["is_writable"]
        remounted(tmp_path / "place", "abort")
        found = surroundings(str(site.parents[2]), str(site), [])
        assert not found["is_writable"]
        assert (
            "takes no more writes: see the kernel's log" in found["denied"] or "read-only" in found["denied"]
        )
