"""Copies and rollbacks that go well, and those that are refused or undone, on real environments."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dflash_console.agent.copy import backups, deal, disk, place, recover
from dflash_console.agent.copy.place import Fault
from dflash_console.agent.copy.target import Target
from dflash_console.copies import Provenance
from tests.agent.copy.deaths import FakeImporting
from tests.agent.copy.flow import (
    BY,
    END,
    ORIGIN,
    blocks,
    copy,
    entries_of,
    filled,
    lay_small,
    state_of,
    whole,
)
from tests.agent.environments import asked
from tests.wheels import lay, wheel

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
MODULES = [
    ["sglang.srt.speculative.dflash_worker", "sglang.srt.speculative.dflash_worker_v2"],
    ["sglang.same"],
]


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """What is copied."""
    return lay_small(tmp_path / "new", "0.5.23")


def states(answer: dict[str, Any]) -> dict[str, str]:
    """State by name of the checks in an answer."""
    return {check["name"]: check["state"] for check in answer["checks"]}


def rolled_back(venv: Path, modules: list[list[str]] = MODULES) -> dict[str, Any]:
    """A whole rollback; what `restore` answered."""
    target = Target(str(venv), "sglang")
    target.claim(BY, "rollback", ORIGIN, "", "", dict)
    try:
        answer = target.restore("", modules, 60.0)
        if not answer.get("is_undone"):
            target.settle(True, "")
    finally:
        target.release()
    return answer


def test_a_copy_lays_the_new_tree_and_keeps_the_old_one_as_a_backup(
    venv: Path, site: Path, new: Path
) -> None:
    lay_small(site, "0.5.9")
    before = state_of(site)
    target, answer = copy(venv, new, MODULES, until="check")
    assert set(states(answer).values()) == {"pass"}, answer
    assert state_of(site) == before
    swapped = target.swap()
    assert swapped["swap"] == "exchange"
    assert set(states(swapped).values()) == {"pass"}
    assert target.settle(True, "") == {"undone": False, "detail": ""}
    target.release()
    whole(venv, site, state_of(new))
    (backup,) = backups.listing(str(venv))
    assert backup["reason"] == "copy"
    assert backup["id"] == swapped["backup"]
    assert state_of(venv / place.FOLDER / "backups" / backup["id"]) == before
    assert asked(venv, ["sglang"]) == [str(site / "sglang" / "__init__.py")]
    provenance = place.read_provenance(str(venv))
    assert provenance is not None
    assert (provenance["from_host"], provenance["by"], provenance["files"]) == (
        "ct129",
        BY,
        len(state_of(new)),
    )
    for path, size, mode, mtime, ctime, inode, _ in place.read_manifest(str(venv)):
        seen = (site / path).lstat()
        assert (size, mode, mtime, ctime, inode) == (
            seen.st_size,
            seen.st_mode,
            seen.st_mtime_ns,
            seen.st_ctime_ns,
            seen.st_ino,
        )
    assert recover.unsettled(str(venv), "sglang") is None
    assert place.holder(str(venv)) is None


def test_the_old_version_and_its_origin_are_told_of_the_backup(venv: Path, site: Path, new: Path) -> None:
    lay_small(site, "0.5.9")
    copy(venv, new, look=lambda: {"stamp": "s", "tree": "t", "version": "0.5.9"})
    copy(venv, new, look=lambda: {"version": "0.5.23"})
    second, first = backups.listing(str(venv))
    assert (first["version"], first["tree"], first["provenance"]) == ("0.5.9", "t", None)
    assert second["provenance"]["from_host"] == "ct129"


def test_a_package_is_placed_where_there_was_none(venv: Path, site: Path, new: Path) -> None:
    target, answer = copy(venv, new, MODULES, until="swap")
    assert answer["swap"] == "placed"
    target.settle(True, "")
    target.release()
    whole(venv, site, state_of(new))
    (backup,) = backups.listing(str(venv))
    assert (backup["version"], backup["files"], backup["size"]) == ("", 0, 0)
    assert rolled_back(venv).get("is_undone") is None
    whole(venv, site, {})


def test_all_dist_infos_of_the_package_go_with_the_old_tree_and_others_stay(
    venv: Path, site: Path, new: Path
) -> None:
    lay_small(site, "0.5.9")
    shutil.copytree(site / "sglang-0.5.9.dist-info", site / "sglang-0.5.8.dist-info")
    lay_small(site, "1.0", package="sglang_router")
    before = state_of(site)
    copy(venv, new)
    assert sorted(path.name for path in site.glob("*.dist-info")) == [
        "sglang-0.5.23.dist-info",
        "sglang_router-1.0.dist-info",
    ]
    rolled_back(venv)
    whole(venv, site, before)


def test_an_undone_swap_leaves_the_old_tree_and_no_backup(venv: Path, site: Path, new: Path) -> None:
    lay_small(site, "0.5.9")
    before, inode = state_of(site), (site / "sglang").stat().st_ino
    target, _ = copy(venv, new, until="swap")
    assert state_of(site) == state_of(new)
    assert target.settle(False, "verify failed")["undone"]
    target.release()
    whole(venv, site, before)
    assert (site / "sglang").stat().st_ino == inode
    assert backups.listing(str(venv)) == []
    assert place.read_provenance(str(venv)) is None


@pytest.mark.parametrize("until", ["claim", "want", "fill", "check"])
def test_a_console_that_leaves_before_the_swap_leaves_nothing_behind(
    venv: Path, site: Path, new: Path, until: str
) -> None:
    lay_small(site, "0.5.9")
    before = state_of(site)
    target, _ = copy(venv, new, until=until)
    target.close()
    target.close()
    whole(venv, site, before)
    assert recover.unsettled(str(venv), "sglang") is None
    assert backups.listing(str(venv)) == []


def test_a_console_that_leaves_after_the_swap_leaves_the_new_tree(venv: Path, site: Path, new: Path) -> None:
    lay_small(site, "0.5.9")
    target, _ = copy(venv, new, until="swap")
    target.close()
    whole(venv, site, state_of(new))
    assert place.read_provenance(str(venv)) is not None
    assert len(backups.listing(str(venv))) == 1


def test_a_second_console_is_told_who_holds_the_lock(venv: Path, site: Path, new: Path) -> None:
    target, _ = copy(venv, new, until="fill")
    other = Target(str(venv), "sglang")
    answer = other.claim("ann@desk", "copy", ORIGIN, "", "", dict)
    assert answer["locked"]["by"] == BY
    assert answer["locked"]["what"] == "copy from ct129"
    assert place.holder(str(venv)) == answer["locked"]
    other.close()
    assert place.holder(str(venv)) is not None
    assert recover.unsettled(str(venv), "sglang") is None
    target.release()
    assert place.holder(str(venv)) is None
    copy(venv, new)


def test_a_package_that_changed_since_the_plan_is_not_copied_over(venv: Path, site: Path) -> None:
    target = Target(str(venv), "sglang")
    answer = target.claim(BY, "copy", ORIGIN, "planned", "", lambda: {"stamp": "now"})
    assert "plan again" in answer["changed"]
    assert place.holder(str(venv)) is None
    assert recover.unsettled(str(venv), "sglang") is None


# ---- who has looked at it in its place


def test_only_what_the_console_kept_counts_as_verified(venv: Path, site: Path, new: Path) -> None:
    lay_small(site, "0.5.9")
    target, _ = copy(venv, new, until="swap")
    target.close()
    provenance = place.read_provenance(str(venv)) or {}
    assert provenance["verified"] is False
    assert msgspec.convert(provenance, Provenance).verified is False
    copy(venv, new)
    assert "verified" not in (place.read_provenance(str(venv)) or {})
    # The backup of the one that nobody looked at is put back, and looked at.
    (unverified,) = [item for item in backups.listing(str(venv)) if item["provenance"]]
    assert unverified["provenance"]["verified"] is False
    rolled_back(venv)
    again = place.read_provenance(str(venv)) or {}
    assert msgspec.convert(again, Provenance).verified is True


# ---- what is reused


def test_unchanged_files_come_from_the_live_tree_as_new_inodes(venv: Path, site: Path, new: Path) -> None:
    lay_small(site, "0.5.9")
    inode = (site / "sglang/same.py").stat().st_ino
    target, answer = copy(venv, new, until="want")
    entries = entries_of(new)
    paths = {entries[index][0] for index in answer["wanted"]}
    assert "sglang/same.py" not in paths
    assert "sglang/empty.py" not in paths
    assert "sglang/__init__.py" in paths
    assert (answer["reused"], answer["reused_bytes"]) == (1, (new / "sglang/same.py").stat().st_size)
    target.close()
    copy(venv, new)
    assert (site / "sglang/same.py").stat().st_ino != inode
    assert (site / "sglang/same.py").stat().st_nlink == 1


def test_files_shared_by_hard_links_stay_as_they_are(
    venv: Path, site: Path, new: Path, tmp_path: Path
) -> None:
    cache = lay_small(tmp_path / "cache", "0.5.9")
    shutil.copytree(cache, site, dirs_exist_ok=True, copy_function=os.link)
    before = {path: (path.read_bytes(), path.stat()) for path in cache.rglob("*") if path.is_file()}
    copy(venv, new)
    for path, (data, seen) in before.items():
        assert path.read_bytes() == data
        assert path.stat() == seen
    assert all(path.stat().st_nlink == 1 for path in (site / "sglang").rglob("*.py"))
    rolled_back(venv)
    assert all(path.stat().st_nlink == 2 for path, _ in before.items())


def test_live_files_that_are_links_become_files(venv: Path, site: Path, new: Path, tmp_path: Path) -> None:
    cache = lay_small(tmp_path / "cache", "0.5.9")
    shutil.copytree(cache, site, dirs_exist_ok=True, copy_function=os.symlink)
    target, answer = copy(venv, new, until="want")
    assert answer["reused"] == 1
    target.close()
    copy(venv, new)
    whole(venv, site, state_of(new))
    assert not (site / "sglang/same.py").is_symlink()


def test_a_reused_file_that_turns_out_different_is_wanted_after_all(
    venv: Path, site: Path, new: Path
) -> None:
    lay_small(site, "0.5.9")
    entries = entries_of(new)
    target = Target(str(venv), "sglang")
    target.claim(BY, "copy", ORIGIN, "", "", dict)
    target.expect(entries)
    # The look knew it before it changed.
    answer = target.want({entry[0]: entry[4] for entry in entries})
    missing = filled(target, new, entries, answer["wanted"])
    paths = {entries[index][0] for index in missing}
    assert "sglang/__init__.py" in paths
    assert "sglang/same.py" not in paths
    assert filled(target, new, entries, missing, compress=True) == []
    assert states(target.check([], 60.0))["hashes"] == "pass"
    target.close()


# ---- what comes wrong


def test_a_flipped_byte_is_noticed_and_the_file_can_be_sent_again(venv: Path, site: Path, new: Path) -> None:
    target, answer = copy(venv, new, until="want")
    entries = entries_of(new)
    wanted = answer["wanted"]
    target.begin_fill(wanted)
    for block in blocks(new, entries, wanted):
        target.feed(block[:-30] + bytes([block[-30] ^ 1]) + block[-29:])
    target.feed(END)
    with pytest.raises(Fault, match="wrong sha256") as caught:
        target.end_fill()
    assert str(caught.value).split(" ")[0] in {entry[0] for entry in entries}
    missing = filled(target, new, entries, wanted)
    assert missing == []
    assert states(target.check([], 60.0))["hashes"] == "pass"
    target.close()


def test_a_file_that_changed_on_the_disk_fails_the_check_and_nothing_is_swapped(
    venv: Path, site: Path, new: Path
) -> None:
    lay_small(site, "0.5.9")
    before = state_of(site)
    target, _ = copy(venv, new, until="fill")
    (stage,) = (venv / place.FOLDER).glob("stage-*")
    with (stage / "sglang/same.py").open("ab") as file:
        file.write(b"#")
    answer = target.check([], 60.0)
    assert states(answer)["hashes"] == "fail"
    with pytest.raises(Fault, match="not checked"):
        target.swap()
    target.release()
    whole(venv, site, before)


def test_a_file_that_did_not_come_fails_the_check(venv: Path, new: Path) -> None:
    target, _ = copy(venv, new, until="want")
    answer = target.check([], 60.0)
    assert states(answer) == {"files": "fail"}
    assert "did not come" in answer["checks"][0]["detail"]
    target.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise RuntimeError('broken on purpose')\n", "broken on purpose"),
        ("import os; os._exit(3)\n", "ended Python"),
        ("import time; time.sleep(1000)\n", "no answer within 2 s"),
    ],
)
def test_a_tree_that_does_not_import_is_not_swapped(
    venv: Path, site: Path, tmp_path: Path, text: str, words: str
) -> None:
    lay_small(site, "0.5.9")
    bad = lay_small(tmp_path / "bad", "0.5.23", extra={"sglang/__init__.py": text})
    target, _ = copy(venv, bad, until="fill")
    answer = target.check(MODULES, 2.0)
    (found,) = (check for check in answer["checks"] if check["name"] == "import")
    assert found["state"] == "fail"
    assert words in found["detail"]
    with pytest.raises(Fault, match="not checked"):
        target.swap()
    target.close()


def test_a_missing_module_fails_the_import_check(venv: Path, new: Path) -> None:
    target, _ = copy(venv, new, until="fill")
    answer = target.check([*MODULES, ["sglang.srt.speculative.dflash_info"]], 60.0)
    assert "missing: dflash_info" in [check["detail"] for check in answer["checks"]]
    target.close()


def test_the_import_check_takes_the_stage_and_not_the_live_tree(
    venv: Path, site: Path, tmp_path: Path
) -> None:
    lay_small(site, "0.5.9", extra={"sglang/only_live.py": ""})
    new = lay_small(tmp_path / "new", "0.5.23")
    target, _ = copy(venv, new, until="fill")
    answer = target.check([["sglang.only_live"]], 60.0)
    assert states(answer)["import"] == "fail"
    assert not list(venv.rglob("__pycache__"))
    target.close()


def test_a_tree_that_would_not_be_found_at_its_place_is_undone(
    venv: Path, site: Path, new: Path, tmp_path: Path
) -> None:
    lay_small(site, "0.5.9")
    before = state_of(site)
    target, _ = copy(venv, new, until="check")
    other = lay_small(tmp_path / "elsewhere", "0.0.1")
    # Such as one that a .pth file puts first since the check.
    target._spot.origin = lambda: str(other / "sglang/__init__.py")  # type: ignore[union-attr,method-assign]
    answer = target.swap()
    assert answer["is_undone"]
    assert "an import would take" in answer["detail"]
    target.release()
    whole(venv, site, before)


def test_signals_take_effect_only_after_a_swap(venv: Path, site: Path, new: Path) -> None:
    lay_small(site, "0.5.9")
    target, _ = copy(venv, new, until="check")
    pid = os.fork()
    if pid == 0:

        def send(_: str) -> None:
            for each in (signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
                os.kill(os.getpid(), each)

        place.watchers[:] = [send]
        for each in (signal.SIGHUP, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        target.swap()
        os._exit(9)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) in (signal.SIGHUP, signal.SIGTERM)
    assert state_of(site) == state_of(new)
    last = json.loads((venv / place.FOLDER / "journal.jsonl").read_text().splitlines()[-1])
    assert last["state"] == "swapped"
    target._place.close()  # type: ignore[union-attr]


def test_what_somebody_else_installs_during_a_swap_is_left(venv: Path, site: Path, new: Path) -> None:
    target, _ = copy(venv, new, until="check")

    def be_faster(step: str) -> None:
        if step.startswith("put"):
            lay_small(site, "0.0.1", infos=False)

    place.watchers[:] = [be_faster]
    try:
        answer = target.swap()
    finally:
        place.watchers[:] = []
    assert answer["is_undone"]
    assert answer["swap"] == ""
    assert "somebody else" in answer["detail"]
    target.close()
    assert (site / "sglang/__init__.py").read_text() == '__version__ = "0.0.1"\n'


@pytest.mark.parametrize("when", ["put", "exchange"])
def test_what_somebody_else_puts_in_place_of_the_old_package_is_left_and_no_backup_is_told_that_is_none(
    venv: Path, site: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Before it is looked at for the last time, or in the moment between that and the exchange."""
    lay_small(site, "0.5.9")
    target, _ = copy(venv, new, until="check")

    def be_faster() -> None:
        if not (tmp_path / "by hand").exists():
            (site / "sglang").rename(tmp_path / "by hand")
            lay_small(site, "0.0.1", infos=False)

    note, exchange = deal.Deal.note, disk.exchange

    def noted(self: deal.Deal) -> None:
        note(self)
        if when == "put":
            be_faster()

    def exchanged(*places: tuple[int, str]) -> None:
        if when == "exchange":
            be_faster()
        exchange(*places)

    monkeypatch.setattr(deal.Deal, "note", noted)
    monkeypatch.setattr(disk, "exchange", exchanged)
    answer = target.swap()
    assert answer["is_undone"]
    assert answer["swap"] == ""
    assert "somebody else has put another package there" in answer["detail"]
    assert "nothing of it came to the backups" in answer["detail"]
    target.close()
    assert (site / "sglang/__init__.py").read_text() == '__version__ = "0.0.1"\n'
    assert (tmp_path / "by hand/__init__.py").read_text() == '__version__ = "0.5.9"\n'
    assert backups.listing(str(venv)) == []


def test_a_real_tree_over_another_one_shares_nothing_with_the_cache_it_was_linked_from(
    venv: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without torch and numpy the real package does not import.
    monkeypatch.setattr("dflash_console.agent.copy.target.Importing", FakeImporting)
    lay("0.5.13.post1", site)
    before = state_of(site)
    copy(venv, wheel("0.5.23"))
    now = state_of(site)
    assert now == state_of(wheel("0.5.23"))
    assert all((site / path).lstat().st_nlink == 1 for path in now)
    assert rolled_back(venv, modules=[])["swap"] == "exchange"
    assert state_of(site) == before


# ---- owner and modes


@AS_ROOT
def test_owner_and_modes_are_those_of_the_tree_before(venv: Path, site: Path, new: Path) -> None:
    lay_small(site, "0.5.9")
    for path in [site / "sglang", *(site / "sglang").rglob("*")]:
        os.chown(path, 1234, 2345)
        path.chmod(0o2775 if path.is_dir() else 0o664)
    (new / "sglang/run.sh").write_text("#!/bin/sh\n")
    (new / "sglang/run.sh").chmod(0o755)
    before = os.umask(0o077)
    try:
        target, answer = copy(venv, new, until="check")
        assert states(answer)["owner"] == "pass"
        target.swap()
        target.close()
    finally:
        os.umask(before)
    for path in [site / "sglang", *(site / "sglang").rglob("*")]:
        seen = path.stat()
        assert (seen.st_uid, seen.st_gid) == (1234, 2345), path
        expected = 0o2775 if path.is_dir() else 0o775 if path.name == "run.sh" else 0o664
        assert stat.S_IMODE(seen.st_mode) == expected, path


@AS_ROOT
def test_the_security_label_is_that_of_the_tree_before(venv: Path, site: Path, new: Path) -> None:
    lay_small(site, "0.5.9")
    labels = {True: b"system_u:object_r:usr_t:s0\0", False: b"system_u:object_r:lib_t:s0\0"}
    try:
        for path in (site / "sglang", site / "sglang/__init__.py"):
            os.setxattr(path, "security.selinux", labels[path.is_dir()])
    except OSError:
        pytest.skip("this filesystem keeps no such attributes")
    target, answer = copy(venv, new, until="check")
    assert states(answer)["owner"] == "pass"
    target.swap()
    target.close()
    for path in [site / "sglang", *(site / "sglang").rglob("*")]:
        assert os.getxattr(path, "security.selinux") == labels[path.is_dir()], path


def test_ours_are_for_the_owner_alone(venv: Path, site: Path, new: Path) -> None:
    lay_small(site, "0.5.9")
    copy(venv, new)
    ours = venv / place.FOLDER
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700
    for path in ours.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_links_inside_the_package_stay_links(venv: Path, site: Path, new: Path) -> None:
    (new / "sglang/lib.so.1").write_bytes(b"\x7fELF")
    (new / "sglang/lib.so").symlink_to("lib.so.1")
    (new / "sglang/srt/up.py").symlink_to("../same.py")
    (new / "sglang/folder").symlink_to("srt")
    copy(venv, new)
    assert os.readlink(site / "sglang/lib.so") == "lib.so.1"
    assert os.readlink(site / "sglang/srt/up.py") == "../same.py"
    assert (site / "sglang/folder/__init__.py").read_text() == 'VERSION = "0.5.23"\n'


# ---- where nothing may be put


def test_an_editable_install_is_not_hidden_by_a_copy(
    venv: Path, site: Path, new: Path, tmp_path: Path
) -> None:
    source = lay_small(tmp_path / "checkout", "0.5.9", infos=False)
    (site / "__editable__.sglang.pth").write_text(f"{source}\n")
    with pytest.raises(Fault, match="editable install"):
        Target(str(venv), "sglang").claim(BY, "copy", ORIGIN, "", "", dict)
    assert not (venv / place.FOLDER).exists()


def test_a_single_file_module_is_not_copied_over(venv: Path, site: Path) -> None:
    (site / "sglang.py").write_text("")
    with pytest.raises(Fault, match="single file"):
        Target(str(venv), "sglang").claim(BY, "copy", ORIGIN, "", "", dict)


def test_a_folder_that_is_no_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="not a venv"):
        Target(str(tmp_path), "sglang").claim(BY, "copy", ORIGIN, "", "", dict)
    assert list(tmp_path.iterdir()) == []


def test_requests_out_of_their_order_are_refused(venv: Path, site: Path, new: Path) -> None:
    target = Target(str(venv), "sglang")
    for ask in (target.swap, target.want, lambda: target.settle(True, ""), lambda: target.restore("")):
        with pytest.raises(Fault):
            ask()
    target, _ = copy(venv, new, until="fill")
    with pytest.raises(Fault, match="not checked"):
        target.swap()
    with pytest.raises(Fault, match="copy is under way"):
        target.restore("")
    with pytest.raises(Fault, match="known already"):
        target.expect([])
    target.close()
