"""Disks that are full, read-only, layered or mounted over: nothing is lost, and the words say what to do."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_console.agent.copy import backups, place, recover
from dflash_console.agent.copy.place import Fault
from dflash_console.agent.copy.target import Target
from tests.agent.copy.deaths import killed_at
from tests.agent.copy.flow import BY, ORIGIN, copy, entries_of, filled, lay_small, state_of, whole
from tests.agent.copy.mounts import bound, layered, mounted, remounted
from tests.agent.environments import make_venv


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return lay_small(tmp_path / "new", "0.5.23", extra={"sglang/big.bin": "x" * 400_000})


def claim(venv: Path) -> Target:
    target = Target(str(venv), "sglang")
    target.claim(BY, "copy", ORIGIN, "", "", dict)
    return target


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """An environment on a filesystem of 1 MiB and 200 inodes."""
    with mounted(tmp_path / "small", "size=1m", "nr_inodes=200"):
        venv = tmp_path / "small" / "venv"
        yield venv, make_venv(venv)


def fill_up(folder: Path, leave: int) -> Path:
    """Leave no more than some bytes free."""
    room = os.statvfs(folder)
    ballast = folder / "ballast"
    ballast.write_bytes(b"\0" * max(0, room.f_bavail * room.f_frsize - leave))
    return ballast


def test_a_full_disk_fails_the_transfer_and_leaves_the_old_tree(small: tuple[Path, Path], new: Path) -> None:
    venv, site = small
    lay_small(site, "0.5.9")
    before = state_of(site)
    ballast = fill_up(venv.parent, 300_000)
    target = claim(venv)
    entries = entries_of(new)
    target.expect(entries)
    wanted = target.want()["wanted"]
    with pytest.raises(Fault, match="disk is full"):
        filled(target, new, entries, wanted)
    target.release()
    whole(venv, site, before)
    assert recover.unsettled(str(venv), "sglang") is None
    ballast.unlink()
    copy(venv, new)
    assert state_of(site) != before


def test_a_disk_without_inodes_fails_the_transfer_and_leaves_the_old_tree(
    small: tuple[Path, Path], tmp_path: Path
) -> None:
    venv, site = small
    lay_small(site, "0.5.9")
    before = state_of(site)
    many = lay_small(tmp_path / "many", "0.5.23", extra={f"sglang/f{n}.py": f"{n}\n" for n in range(300)})
    target = claim(venv)
    entries = entries_of(many)
    target.expect(entries)
    wanted = target.want()["wanted"]
    with pytest.raises(Fault, match="no inodes left"):
        filled(target, many, entries, wanted)
    target.release()
    whole(venv, site, before)


def test_a_disk_that_fills_up_at_any_moment_of_a_swap_leaves_one_whole_tree(
    small: tuple[Path, Path], tmp_path: Path
) -> None:
    venv, site = small
    new = lay_small(tmp_path / "little", "0.5.23")
    lay_small(site, "0.5.9")
    before = state_of(site)
    undone = kept = 0
    for number in range(1000):
        shutil.rmtree(venv / place.FOLDER, ignore_errors=True)
        for path in site.glob("sglang*"):
            shutil.rmtree(path)
        lay_small(site, "0.5.9")
        target, _ = copy(venv, new, until="check")
        count = 0

        def fill(_: str, number: int = number) -> None:
            nonlocal count
            if count == number:
                fill_up(venv.parent, 0)
            count += 1

        place.watchers[:] = [fill]
        try:
            answer = target.swap()
            if answer.get("is_undone"):
                assert "disk is full" in answer["detail"]
                undone += 1
            else:
                kept += 1
            target.close()
        finally:
            place.watchers[:] = []
        is_over = count <= number
        (venv.parent / "ballast").unlink(missing_ok=True)
        claim(venv).release()
        whole(
            venv,
            site,
            before,
            *([state_of(site)] if "sglang-0.5.23.dist-info/METADATA" in state_of(site) else []),
        )
        assert (len(backups.listing(str(venv))) == 1) == (state_of(site) != before)
        if is_over:
            break
    assert undone
    assert kept


def test_a_read_only_filesystem_is_told_before_anything_is_done(small: tuple[Path, Path], new: Path) -> None:
    venv, site = small
    lay_small(site, "0.5.9")
    remounted(venv.parent, "ro")
    with pytest.raises(Fault, match="read-only"):
        claim(venv)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO])
def test_a_disk_that_takes_nothing_any_more_leaves_one_whole_tree_for_the_next_start(
    small: tuple[Path, Path], tmp_path: Path, number: int
) -> None:
    venv, site = small
    new = lay_small(tmp_path / "little", "0.5.23")
    outcomes: list[str] = []
    words: list[str] = []
    for first in range(1000):
        shutil.rmtree(venv / place.FOLDER, ignore_errors=True)
        for path in site.glob("sglang*"):
            shutil.rmtree(path)
        lay_small(site, "0.5.9")
        before = state_of(site)
        target, _ = copy(venv, new, until="check")
        count = 0

        def refuse(_: str, first: int = first) -> None:
            nonlocal count
            count += 1
            if count > first:
                raise OSError(number, os.strerror(number))

        place.watchers[:] = [refuse]
        try:
            answer = target.swap()
            outcomes.append("undone" if answer.get("is_undone") else "swapped")
        except Fault as fault:
            outcomes.append("left")
            words.append(str(fault))
        finally:
            target.close()
            place.watchers[:] = []
        told = recover.unsettled(str(venv), "sglang")
        assert told is not None
        claim(venv).release()
        is_new = "sglang-0.5.23.dist-info/METADATA" in state_of(site)
        assert ("will be finished" in told["outlook"]) == is_new
        whole(venv, site, *([] if is_new else [before]), *([state_of(site)] if is_new else []))
        if outcomes[-1] == "swapped":
            break
    assert "left" in outcomes
    assert all(os.strerror(number) in text or "read-only" in text for text in words)
    assert outcomes[-1] == "swapped"


# ---- mounts


def test_a_mount_at_the_place_of_the_package_is_refused(venv: Path, site: Path, tmp_path: Path) -> None:
    lay_small(tmp_path / "elsewhere", "0.5.9")
    (site / "sglang").mkdir()
    with bound(tmp_path / "elsewhere" / "sglang", site / "sglang"):
        with pytest.raises(Fault, match="is a mount point"):
            claim(venv)
        assert not (venv / place.FOLDER).exists()
    lay_small(site, "0.5.9")
    with (
        bound(tmp_path / "elsewhere" / "sglang", site / "sglang" / "srt"),
        pytest.raises(Fault, match="mount point"),
    ):
        claim(venv)


def test_a_mount_that_comes_before_the_swap_undoes_it(
    venv: Path, site: Path, new: Path, tmp_path: Path
) -> None:
    lay_small(site, "0.5.9")
    lay_small(tmp_path / "elsewhere", "0.5.8")
    before = state_of(site)
    target, _ = copy(venv, new, until="check")
    with bound(tmp_path / "elsewhere" / "sglang", site / "sglang"):
        answer = target.swap()
        assert answer["is_undone"]
        assert answer["swap"] == ""
        assert "nothing was changed" in answer["detail"]
        assert "mount" in answer["detail"]
        target.release()
    whole(venv, site, before)


def test_site_packages_on_a_filesystem_of_its_own_is_refused(venv: Path, site: Path) -> None:
    with mounted(site), pytest.raises(Fault, match="nothing can be swapped across"):
        claim(venv)


# ---- layers


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An environment with the package, for the layer of an image."""
    site = make_venv(tmp_path / "image" / "venv")
    lay_small(site, "0.5.9")
    return tmp_path / "image"


def site_of(venv: Path) -> Path:
    (site,) = venv.glob("lib/python3.*/site-packages")
    return site


def test_a_package_in_a_layer_of_an_image_is_copied_aside(image: Path, new: Path, tmp_path: Path) -> None:
    with layered(tmp_path / "layers", image) as merged:
        venv, site = merged / "venv", site_of(merged / "venv")
        before = state_of(site)
        target, answer = copy(venv, new, until="swap")
        assert answer["swap"] == "copied", answer
        wanted = state_of(site)
        assert wanted != before
        target.settle(True, "")
        target.release()
        whole(venv, site, wanted)
        (backup,) = backups.listing(str(venv))
        assert state_of(venv / place.FOLDER / "backups" / backup["id"]) == before
        target = claim(venv)
        assert target.restore("")["swap"] == "exchange"
        target.settle(True, "")
        target.release()
        whole(venv, site, before)


def test_a_package_in_a_layer_stays_without_the_yes_that_it_needs(
    image: Path, new: Path, tmp_path: Path
) -> None:
    with layered(tmp_path / "layers", image) as merged:
        venv, site = merged / "venv", site_of(merged / "venv")
        before = state_of(site)
        target, answer = copy(venv, new, until="swap", may_copy=False)
        assert (answer["swap"], answer["is_undone"]) == ("", True), answer
        assert "needs a yes of its own (layer)" in answer["detail"]
        target.release()
        whole(venv, site, before)


def test_an_undone_copy_over_a_layer_leaves_the_old_tree(image: Path, new: Path, tmp_path: Path) -> None:
    with layered(tmp_path / "layers", image) as merged:
        venv, site = merged / "venv", site_of(merged / "venv")
        before = state_of(site)
        target, _ = copy(venv, new, until="swap")
        target.settle(False, "verify failed")
        target.release()
        whole(venv, site, before)


def test_a_copy_over_a_layer_that_dies_at_any_step_is_brought_to_its_end(
    image: Path, new: Path, tmp_path: Path
) -> None:
    steps = []
    for number in range(1000):
        with layered(tmp_path / f"layers{number}", image) as merged:
            venv, site = merged / "venv", site_of(merged / "venv")
            before = state_of(site)
            step = killed_at(number, lambda venv=venv: copy(venv, new))  # type: ignore[misc]
            if not step:
                break
            steps.append(step)
            if step.startswith(("create", "copy file")):
                continue
            told = recover.unsettled(str(venv), "sglang")
            claim(venv).release()
            is_new = "sglang-0.5.23.dist-info/METADATA" in state_of(site)
            if not is_new:
                whole(venv, site, before)
            else:
                whole(venv, site, state_of(site))
                assert set(state_of(site)) == {entry[0] for entry in entries_of(new)}
            assert told is None or ("will be finished" in told["outlook"]) == is_new, step
    assert "remove sglang" in steps
