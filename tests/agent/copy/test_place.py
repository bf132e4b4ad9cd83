"""The folder of ours, its lock and its small files, when they are somebody else's or spoilt."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_console.agent.copy import backups, journal, place, recover
from dflash_console.agent.copy.place import FOLDER, Fault, Place
from dflash_console.agent.copy.target import Target
from tests.agent.copy.flow import BY, ORIGIN, copy, lay_small, state_of, whole
from tests.agent.copy.mounts import mounted
from tests.waiting import until_sync

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return lay_small(tmp_path / "new", "0.5.23")


def claim(venv: Path) -> str:
    """What the next copy says that it found."""
    target = Target(str(venv), "sglang")
    answer = target.claim(BY, "copy", ORIGIN, "", "", dict)
    target.release()
    return str(answer["recovered"])


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(4000))


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def deep(path: Path) -> None:
    path.write_text("[" * 60_000)


def odd(path: Path) -> None:
    path.write_text(json.dumps({"state": ["x"], "id": {}, "at": "yesterday", "entries": [[1, 2]], "by": 7}))


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def nowhere(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def folder(path: Path) -> None:
    path.mkdir()


def empty(path: Path) -> None:
    path.write_bytes(b"")


HOSTILE: list[Callable[[Path], None]] = [garbage, huge, deep, odd, fifo, link, nowhere, folder, empty]


def marks(path: Path) -> tuple[int, ...]:
    """What is another one when the file is; not when it was read last."""
    seen = path.lstat()
    return (seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


@pytest.mark.parametrize("spoil", HOSTILE)
@pytest.mark.parametrize("name", ["provenance.json", "manifest.json", "journal.jsonl", "lock", "backups"])
def test_looks_at_spoilt_files_of_ours_say_nothing_wrong_and_change_nothing(
    venv: Path, spoil: Callable[[Path], None], name: str
) -> None:
    (venv / FOLDER).mkdir(mode=0o700)
    spoil(venv / FOLDER / name)
    before = marks(venv / FOLDER / name)
    assert place.read_provenance(str(venv)) is None
    assert place.read_manifest(str(venv)) == []
    assert place.holder(str(venv)) is None
    assert backups.listing(str(venv)) == []
    recover.unsettled(str(venv), "sglang")
    assert marks(venv / FOLDER / name) == before
    assert os.listdir(venv / FOLDER) == [name]


@pytest.mark.parametrize("spoil", HOSTILE)
@pytest.mark.parametrize("name", ["provenance.json", "manifest.json", "journal.jsonl"])
def test_a_copy_is_made_over_spoilt_files_of_ours(
    venv: Path, site: Path, new: Path, spoil: Callable[[Path], None], name: str
) -> None:
    lay_small(site, "0.5.9")
    (venv / FOLDER).mkdir(mode=0o700)
    spoil(venv / FOLDER / name)
    before = Path("/etc/passwd").read_bytes()
    copy(venv, new)
    assert Path("/etc/passwd").read_bytes() == before
    assert place.read_provenance(str(venv)) is not None
    assert place.read_manifest(str(venv))
    assert recover.unsettled(str(venv), "sglang") is None


@pytest.mark.parametrize("spoil", [fifo, link, nowhere, folder])
def test_a_lock_that_is_no_file_is_refused(venv: Path, spoil: Callable[[Path], None]) -> None:
    (venv / FOLDER).mkdir(mode=0o700)
    spoil(venv / FOLDER / "lock")
    with pytest.raises(Fault, match="/lock is no regular file: look who put it there, and remove it"):
        claim(venv)
    assert not (venv / FOLDER / "nowhere").exists()


def test_a_folder_of_ours_that_is_a_link_is_refused(venv: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (venv / FOLDER).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Fault, match="is a link or a file"):
        claim(venv)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("spoil", [empty, link, nowhere])
def test_a_folder_of_backups_that_is_none_is_refused_by_its_own_name(
    venv: Path, spoil: Callable[[Path], None]
) -> None:
    (venv / FOLDER).mkdir(mode=0o700)
    spoil(venv / FOLDER / "backups")
    with pytest.raises(Fault, match=f"{FOLDER}/backups is a link or a file, not a folder"):
        claim(venv)


def test_a_folder_of_ours_that_is_a_file_is_refused(venv: Path) -> None:
    (venv / FOLDER).write_text("mine")
    with pytest.raises(Fault, match="is a link or a file"):
        claim(venv)


@AS_ROOT
def test_a_folder_of_another_user_is_refused_with_his_name(venv: Path) -> None:
    (venv / FOLDER).mkdir(mode=0o700)
    os.chown(venv / FOLDER, 65534, 65534)
    with pytest.raises(Fault, match="belongs to nobody, not to root: copy as nobody, or remove it"):
        claim(venv)


def test_a_folder_of_ours_that_others_may_read_is_closed_to_them(venv: Path) -> None:
    (venv / FOLDER).mkdir()
    (venv / FOLDER).chmod(0o755)
    claim(venv)
    assert stat.S_IMODE((venv / FOLDER).stat().st_mode) == 0o700


@AS_ROOT
def test_an_environment_that_may_not_be_written_is_refused(tmp_path: Path, venv: Path) -> None:
    code = f"""
import os, pwd, sys
sys.path.insert(0, {str(Path(place.__file__).parents[3])!r})
from dflash_console.agent.copy.place import Fault, Place
os.setgid(65534); os.setuid(65534)
try:
    Place({str(venv)!r})
except Fault as fault:
    print(fault)
"""
    for above in [venv, *venv.parents]:
        if above == Path("/tmp"):
            break
        above.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "nobody may not" in done.stdout


def test_the_lock_of_a_killed_copy_is_free(venv: Path, site: Path, new: Path) -> None:
    pid = os.fork()
    if pid == 0:
        copy(venv, new, until="fill")
        (venv / "ready").touch()
        os.kill(os.getpid(), 19)
    until_sync((venv / "ready").exists, 60, "the copy to come so far")
    assert (place.holder(str(venv)) or {})["pid"] == pid
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert place.holder(str(venv)) is None
    assert "was cut short" in claim(venv)
    whole(venv, site, {})


def test_a_look_at_the_lock_does_not_hinder_a_copy(venv: Path) -> None:
    claim(venv)
    fd = os.open(venv / FOLDER / "lock", os.O_RDONLY)
    held = place.holder(str(venv))
    os.close(fd)
    assert held is None
    claim(venv)


@AS_ROOT
def test_a_lock_on_another_filesystem_is_not_taken_for_this_one(tmp_path: Path) -> None:
    """Inode numbers are only their own filesystem's."""
    with mounted(tmp_path / "one"), mounted(tmp_path / "other"):
        locks = []
        for name in ("one", "other"):
            (tmp_path / name / FOLDER).mkdir(mode=0o700)
            locks.append(tmp_path / name / FOLDER / "lock")
            locks[-1].write_text(json.dumps({"by": BY, "since": 1.8e9, "what": "a copy", "pid": 1}))
        assert locks[0].stat().st_ino == locks[1].stat().st_ino
        with locks[1].open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert (place.holder(str(tmp_path / "other")) or {})["by"] == BY
            assert place.holder(str(tmp_path / "one")) is None


@AS_ROOT
def test_a_lock_is_known_without_taking_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> bool:
        raise AssertionError("the kernel's list tells it")

    monkeypatch.setattr(place, "_is_locked", refuse)
    with mounted(tmp_path / "memory") as stack:
        there = Place(str(tmp_path / "memory"))
        stack.callback(there.close)
        assert there.take_lock(BY, "a copy") is None
        assert (place.holder(str(tmp_path / "memory")) or {})["by"] == BY


# ---- the journal


def line(state: str, number: str = "20261130-000000-abcdef", **more: object) -> str:
    return json.dumps({"state": state, "id": number, "at": 1.8e9, "by": BY, "what": "copy", **more}) + "\n"


@pytest.mark.parametrize("length", [1, 5, 12, 60])
def test_a_line_that_was_cut_short_is_of_a_step_that_was_not_begun(venv: Path, length: int) -> None:
    Place(str(venv)).close()
    path = venv / FOLDER / "journal.jsonl"
    for torn in (line("claimed", "20261130-000001-abcdef")[:length], "\0" * length):
        path.write_text(line("done") + torn)
        assert recover.unsettled(str(venv), "sglang") is None
        assert claim(venv) == ""
        states = [json.loads(text)["state"] for text in path.read_text().splitlines()]
        assert states == ["done", "claimed", "undone"]


def test_a_journal_stays_short(venv: Path) -> None:
    Place(str(venv)).close()
    path = venv / FOLDER / "journal.jsonl"
    path.write_text(line("done", what="x" * 500) * 1000)
    claim(venv)
    lines = path.read_text().splitlines()
    assert len(lines) == 202
    assert json.loads(lines[-1])["state"] == "undone"


def test_a_damaged_journal_is_set_aside_and_said(venv: Path, site: Path, new: Path) -> None:
    lay_small(site, "0.5.9")
    before = state_of(site)
    copy(venv, new)
    wanted = state_of(site)
    path = venv / FOLDER / "journal.jsonl"
    path.write_text("\0" * 100 + "\n" + path.read_text())
    told = claim(venv)
    assert "line 1 of journal.jsonl makes no sense" in told
    (aside,) = (venv / FOLDER).glob("damaged-*")
    assert aside.name in told
    whole(venv, site, wanted)
    target = Target(str(venv), "sglang")
    target.claim(BY, "rollback", ORIGIN, "", "", dict)
    target.restore("")
    target.close()
    whole(venv, site, before)


def test_a_stage_that_a_damaged_journal_may_tell_of_is_kept_as_a_backup(
    venv: Path, site: Path, new: Path
) -> None:
    lay_small(site, "0.5.9")
    before = state_of(site)
    pid = os.fork()
    if pid == 0:
        target, _ = copy(venv, new, until="check")
        # Right after the exchange, when the stage holds the old tree.
        place.watchers[:] = [lambda name: os._exit(0) if name == "gather sglang" else None]
        target.swap()
        os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    (venv / FOLDER / "journal.jsonl").write_text("garbage\n")
    told = recover.unsettled(str(venv), "sglang")
    assert told is not None
    assert "kept as backups" in told["outlook"]
    assert "was kept as backup" in claim(venv)
    kept = [
        {path: text for path, text in state_of(venv / FOLDER / "backups" / item["id"]).items() if "/" in path}
        for item in backups.listing(str(venv))
    ]
    package = {path: text for path, text in before.items() if path.startswith("sglang/")}
    assert any(package.items() <= state.items() for state in kept)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "package": "../../etc",
            "site": "/",
            "new_in": "stage-20261130-000000-abcdef",
            "inodes": {"../../etc": [1, 2, 0]},
        },
        {
            "package": "sglang",
            "site": "/etc",
            "new_in": "stage-20261130-000000-abcdef",
            "inodes": {"sglang": [0, 2, 0]},
        },
        {"package": "sglang", "site": "SITE", "new_in": "../..", "inodes": {"sglang": [0, 2, 0]}},
        {"package": "sglang", "site": "SITE", "new_in": "backups/../..", "inodes": {"sglang": [0, 2, 0]}},
        {"package": "sglang", "site": "SITE", "new_in": 7, "inodes": {"sglang": [0, 2, 0]}},
        {
            "package": "sglang",
            "site": "SITE",
            "new_in": "stage-20261130-000000-abcdef",
            "inodes": {"sglang": "x"},
        },
        {
            "package": "sglang",
            "site": "SITE",
            "new_in": "stage-20261130-000000-abcdef",
            "inodes": {"torch": [5, 6, 0]},
        },
        {
            "package": "sglang",
            "site": "SITE",
            "new_in": "stage-20261130-000000-abcdef",
            "inodes": {"sglang": [5, 6, 0]},
        },
        {
            "package": "sglang",
            "site": "SITE",
            "new_in": "stage-20261130-000000-abcdef",
            "inodes": {"sglang": [0, 0, "LIVE"]},
        },
        {"package": "sglang", "site": "SITE", "new_in": "stage-20261130-000000-abcdef", "inodes": []},
    ],
)
@pytest.mark.parametrize("state", ["swapping", "swapped", "undoing"])
def test_a_journal_that_tells_lies_moves_nothing(
    venv: Path, site: Path, state: str, more: dict[str, object]
) -> None:
    lay_small(site, "0.5.9")
    before = state_of(site)
    text = json.dumps(more).replace("SITE", str(site)).replace('"LIVE"', "7")
    Place(str(venv)).close()
    (venv / FOLDER / "journal.jsonl").write_text(line(state, **json.loads(text)))
    assert recover.unsettled(str(venv), "sglang") is not None
    assert claim(venv)
    whole(venv, site, before)
    assert recover.unsettled(str(venv), "sglang") is None


def test_a_stage_that_no_journal_tells_of_is_swept_away(venv: Path, site: Path, new: Path) -> None:
    copy(venv, new)
    stage = venv / FOLDER / "stage-20200101-000000-abcdef"
    (stage / "sglang").mkdir(parents=True)
    (stage / "sglang").chmod(0o500)
    (stage / "link").symlink_to(site)
    (venv / FOLDER / ".info.json.new").touch()
    assert claim(venv) == ""
    whole(venv, site, state_of(site))
    assert state_of(site)


def test_what_somebody_else_put_there_after_a_death_is_left_and_the_old_tree_kept(
    venv: Path, site: Path, new: Path, tmp_path: Path
) -> None:
    lay_small(site, "0.5.9")
    before = state_of(site)
    pid = os.fork()
    if pid == 0:
        target, _ = copy(venv, new, until="check")
        place.watchers[:] = [lambda name: os._exit(0) if name == "gather sglang" else None]
        target.swap()
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    os.rename(site / "sglang", tmp_path / "by hand")
    lay_small(site, "9.9", infos=False)
    told = recover.unsettled(str(venv), "sglang")
    assert told is not None
    assert "somebody else" in told["outlook"]
    assert "somebody else has replaced the package" in claim(venv)
    assert (site / "sglang/__init__.py").read_text() == '__version__ = "9.9"\n'
    (backup,) = backups.listing(str(venv))
    assert state_of(venv / FOLDER / "backups" / backup["id"]) == before
    assert journal.read_past(os.open(venv / FOLDER, os.O_RDONLY)).unsettled is None
