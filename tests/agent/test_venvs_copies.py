"""What copies left in an environment: told in the picture and by a verification in the same words, never trusted."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_console.agent.venvs import copies as copies_module
from dflash_console.agent.venvs import reading
from dflash_console.agent.venvs import section as venvs
from dflash_console.agent.venvs.copies import Copies, count_changes, read_copies
from dflash_console.agent.venvs.look import Look
from dflash_console.model import Copied, Missing, Venv
from tests.agent.test_verify_find_spec import package
from tests.agent.venv_loop import Loop, home, loop, settle
from tests.agent.verify_loop import checks

__all__ = ["home", "loop"]

AT = 1_790_000_000.5
PROVENANCE = {
    "from_host": "ct129",
    "from_venv": "/root/ml-env",
    "from_version": "0.5.13.post1",
    "at": AT,
    "by": "kim@laptop",
    "tree": "b2:1234",
    "files": 4,
}
ABOUT = {"id": "20261130-025811-0a1b2c", "what": "copy from ct129", "by": "kim@laptop"}


def entries(site: Path) -> list[list[Any]]:
    """A manifest of what lies there now."""
    found = []
    for path in sorted(set(site.glob("sglang*/**/*"))):
        if path.is_file() and "__pycache__" not in path.parts:
            seen = path.lstat()
            numbers = (seen.st_size, seen.st_mode, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino)
            found.append([str(path.relative_to(site)), *numbers, "0" * 64])
    return found


@pytest.fixture
def folder(venv: Path, site: Path) -> Path:
    """The folder of copies in an environment with a package that was copied."""
    package(site)
    (site / "sglang-1.dist-info").mkdir()
    (site / "sglang-1.dist-info/METADATA").write_text("Name: sglang\nVersion: 1\n")
    path = venv / ".dflash-console"
    path.mkdir(mode=0o700)
    (path / "provenance.json").write_text(json.dumps(PROVENANCE))
    (path / "manifest.json").write_text(json.dumps({"entries": entries(site)}))
    (path / "lock").touch()
    journal(path, "claimed", "done")
    return path


def journal(path: Path, *states: str) -> None:
    lines = [{**ABOUT, "state": state, "at": AT + number} for number, state in enumerate(states)]
    (path / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def told(venv: Path) -> Copies:
    return read_copies(str(venv), Look())


def changes(venv: Path) -> object:
    return count_changes(str(venv), [str(path) for path in venv.glob("lib/*/site-packages")])


# ---- where it came from, and what changed since


def test_where_a_package_was_copied_from_is_in_the_picture(loop: Loop, venv: Path, folder: Path) -> None:
    loop.configure(venv)
    (row,) = loop.first()
    assert row.copied == Copied("ct129", "/root/ml-env", "0.5.13.post1", AT, "kim@laptop", 0)
    assert row.interrupted == ""
    copy = checks(venv)["copy"]
    assert copy.state == "pass"
    assert copy.detail.startswith(
        "none under way; the last brought 0.5.13.post1 from ct129:/root/ml-env at 20"
    )
    (folder / "provenance.json").unlink()
    loop.soon()
    assert loop.until(lambda rows: rows[0].copied is None, "that nothing is known of a copy")


@pytest.mark.parametrize(
    ("said", "verified"), [(False, False), (True, True), (None, True), (0, True), ("no", True)]
)
def test_that_a_copy_was_never_verified_is_in_the_picture(
    venv: Path, folder: Path, said: object, verified: bool
) -> None:
    (folder / "provenance.json").write_text(json.dumps({**PROVENANCE, "verified": said}))
    copied = told(venv).copied
    assert copied is not None
    assert copied["verified"] is verified


def test_a_package_that_no_copy_brought_and_a_rollback_put_back_is_not_called_copied(
    venv: Path, folder: Path
) -> None:
    (folder / "provenance.json").write_text("null\n")
    assert told(venv).copied is None


CHANGES: dict[str, Callable[[Path], object]] = {
    "edited in place": lambda tree: (tree / "__init__.py").write_text("y = 22\n"),
    "replaced by the same": lambda tree: replace(tree / "__init__.py"),
    "touched": lambda tree: os.utime(tree / "__init__.py", (1, 1)),
    "removed": lambda tree: (tree / "srt/speculative/dflash_info.py").unlink(),
    "added": lambda tree: (tree / "srt/new.py").touch(),
    "a link": lambda tree: (tree / "srt/new.py").symlink_to("/etc/passwd"),
    "added to its metadata": lambda tree: (tree.parent / "sglang-1.dist-info/INSTALLER").touch(),
}


def replace(path: Path) -> None:
    text = path.read_text()
    seen = path.stat()
    new = path.with_name("new")
    new.write_text(text)
    os.utime(new, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    new.rename(path)


@pytest.mark.parametrize("change", CHANGES)
def test_each_changed_file_counts(venv: Path, site: Path, folder: Path, change: str) -> None:
    assert changes(venv) == 0
    CHANGES[change](site / "sglang")
    assert changes(venv) == 1


def test_bytecode_and_other_packages_do_not_count(venv: Path, site: Path, folder: Path) -> None:
    subprocess.run([venv / "bin/python", "-m", "compileall", "-q", site / "sglang"], check=True)
    (site / "other").mkdir()
    (site / "other/__init__.py").touch()
    assert changes(venv) == 0


def test_a_package_that_is_gone_has_all_its_files_changed(venv: Path, site: Path, folder: Path) -> None:
    (site / "sglang").rename(site / "away")
    assert changes(venv) == 4
    (site / "sglang-1.dist-info/METADATA").unlink()
    (site / "sglang-1.dist-info").rmdir()
    assert changes(venv) == 5


def test_changes_are_counted_anew_and_no_more_often_than_they_may_cost(
    loop: Loop, venv: Path, site: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.configure(venv)
    loop.first()
    settle(loop)
    (known,) = loop.section._known.values()
    assert known.count_at > loop.now
    (site / "sglang/srt/new.py").touch()
    (site / "sglang/srt/newer.py").touch()
    # Everything else is read anew, the count stands.
    loop.section.refresh()
    loop.until(lambda rows: not loop.section._due and not loop.section.fds(), "that it was read")
    assert changed(loop) == 0
    loop.ahead += venvs.FULL
    loop.until(lambda rows: changed(loop) == 2, "the two files")
    monkeypatch.setattr(reading, "process_time", iter([0.0, 0.5] * 9).__next__)
    before = loop.now
    loop.ahead += venvs.FULL
    loop.section.refresh()
    loop.until(
        lambda rows: next(iter(loop.section._known.values())).count_at >= before + 0.5 / venvs.COUNT_SHARE,
        "a pause that keeps the share",
    )


def changed(loop: Loop) -> object:
    rows: Any = loop.section.value
    return rows[0]["copied"]["changed"]


def test_another_manifest_is_counted_at_once(loop: Loop, venv: Path, site: Path, folder: Path) -> None:
    loop.configure(venv)
    loop.first()
    (site / "sglang/srt/new.py").touch()
    (folder / "fresh").write_text(json.dumps({"entries": entries(site)[1:]}))
    (folder / "fresh").rename(folder / "manifest.json")
    loop.soon()
    loop.until(lambda rows: changed(loop) == 1, "the count by the new manifest")


# ---- a copy that is not settled


def test_a_copy_that_was_cut_short_is_told_by_whom_and_since_when(venv: Path, folder: Path) -> None:
    for states in (("claimed",), ("claimed", "staged", "swapping"), ("done", "claimed", "undoing")):
        journal(folder, *states)
        words = told(venv).interrupted
        assert words.startswith("copy from ct129 by kim@laptop since 20"), words
        assert words.endswith(f", {states[-1]}")
        copy = checks(venv)["copy"]
        assert (copy.state, words in copy.detail) == ("warn", True)
    for state in ("done", "undone"):
        journal(folder, "claimed", state)
        assert (told(venv).interrupted, checks(venv)["copy"].state) == ("", "pass")


def test_a_stage_without_a_copy_is_told_and_half_a_last_line_is_not(venv: Path, folder: Path) -> None:
    with (folder / "journal.jsonl").open("a") as file:
        file.write('{"state": "clai')
    assert told(venv).interrupted == ""
    (folder / "stage-20261130-025811-0a1b2c").mkdir()
    assert "left stage-20261130-025811-0a1b2c" in told(venv).interrupted
    assert checks(venv)["copy"].evidence == (f"{folder}/stage-20261130-025811-0a1b2c",)


HOLD = """
import fcntl, json, sys
file = open(sys.argv[1], "r+")
fcntl.flock(file, fcntl.LOCK_EX)
json.dump({"by": "sam@desk", "since": 1790000000, "what": "copy from ct129", "pid": 7}, file)
file.flush()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_copy_that_runs_is_not_interrupted_until_it_dies(loop: Loop, venv: Path, folder: Path) -> None:
    journal(folder, "claimed")
    loop.configure(venv)
    command = [sys.executable, "-c", HOLD, str(folder / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        (row,) = loop.first()
        assert row.interrupted == ""
        copy = checks(venv)["copy"]
        assert copy.state == "warn"
        assert copy.detail.startswith("runs right now: copy from ct129 by sam@desk since 20")
        holder.kill()
    loop.soon()
    loop.until(lambda rows: rows[0].interrupted, "that it is interrupted")


def test_looking_at_the_lock_does_not_keep_it(venv: Path, folder: Path) -> None:
    journal(folder, "claimed")
    assert told(venv).interrupted
    with (folder / "lock").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert told(venv).running == "a copy"


# ---- whatever lies there


def instead(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


SPOILT: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: path.unlink(),
    "empty": lambda path: path.write_text(""),
    "no JSON": lambda path: path.write_text("{"),
    "bytes": lambda path: path.write_bytes(bytes(range(256))),
    "a list": lambda path: path.write_text("[1]"),
    "deep": lambda path: path.write_text("[" * 60_000),
    "odd types": lambda path: path.write_text(
        json.dumps({key: [{}] for key in [*PROVENANCE, "state", "entries"]})
    ),
    "odd entries": lambda path: path.write_text('{"entries": [1, [], ["x"]]}'),
    "evil paths": lambda path: path.write_text(
        json.dumps(
            {"entries": [[name, 1, 2, 3, 4, 5, ""] for name in ("/etc/passwd", "../x", "sglang/a", "")]}
        )
    ),
    "odd paths": lambda path: path.write_text(json.dumps({"entries": [["a\0b", 1, 2, 3, 4, 5, ""]]})),
    "numbers": lambda path: path.write_text(
        '{"at": 1e999, "files": -1, "from_host": "a\\u0000\\ud800\\u202e"}'
    ),
    "long": lambda path: path.write_text(json.dumps({"from_host": "x" * 60_000, "state": "x" * 60_000})),
    "a FIFO": lambda path: instead(path, os.mkfifo),
    "a folder": lambda path: instead(path, Path.mkdir),
    "a loop": lambda path: instead(path, lambda path: path.symlink_to(path.name)),
    "endless": lambda path: instead(path, lambda path: path.symlink_to("/dev/zero")),
    "huge": lambda path: os.truncate(path, 1 << 40),
}


@pytest.mark.parametrize("spoil", SPOILT)
@pytest.mark.parametrize("name", ["provenance.json", "manifest.json", "journal.jsonl", "lock"])
def test_whatever_the_files_hold_the_environment_is_told(
    loop: Loop, venv: Path, folder: Path, name: str, spoil: str
) -> None:
    if name == "lock":
        journal(folder, "claimed")
    SPOILT[spoil](folder / name)
    loop.configure(venv)
    (row,) = loop.first()
    assert isinstance(row.python, str)
    assert checks(venv)["copy"].state in ("pass", "warn")
    copied = row.copied
    if name == "provenance.json":
        if spoil == "nothing":
            assert copied is None
        else:
            assert copied is not None
            assert isinstance(copied.at, Missing)
            assert len(copied.from_host) <= 300
    else:
        assert copied is not None
        assert copied.from_host == "ct129"
        if name == "manifest.json" and spoil != "odd paths":
            assert isinstance(copied.changed, Missing)
        else:
            assert copied.changed == (1 if name == "manifest.json" else 0)
        assert bool(row.interrupted) == (name == "lock" or (name == "journal.jsonl" and is_unclear(spoil)))


def is_unclear(spoil: str) -> bool:
    return spoil not in ("nothing", "empty")


def test_a_folder_of_copies_that_is_none_is_passed_over(venv: Path, site: Path) -> None:
    for make in (Path.touch, os.mkfifo):
        make(venv / ".dflash-console")
        assert (told(venv).copied, checks(venv)["copy"].state) == (None, "pass")
        (venv / ".dflash-console").unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_folder_that_this_login_may_not_enter_is_a_reason(venv: Path, folder: Path) -> None:
    for parent in (venv, *venv.parents[:-1]):
        parent.chmod(parent.stat().st_mode | 0o011)
    os.seteuid(65534)
    try:
        copied = told(venv).copied
    finally:
        os.seteuid(0)
    assert copied is not None
    assert copied["at"]["missing"] == "permission"


def test_a_count_that_takes_too_long_is_given_up(
    venv: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies_module, "PATIENCE", -1.0)
    assert changes(venv) == {"missing": "hung", "detail": "its files can't be looked at within -1 s"}


def test_files_on_a_mount_of_another_machine_are_not_counted(venv: Path, folder: Path) -> None:
    row = reading.read_venv(
        str(venv), "config", {"package": "sglang", "modules": [], "distributions": []}, [str(venv)]
    )
    assert row["venv"]["copied"]["changed"]["missing"] == "unsupported"


def test_an_old_picture_has_neither() -> None:
    row = Venv("/venv", "config", "3.12", {}, Missing("not_found"))
    assert (row.copied, row.interrupted) == (None, "")
