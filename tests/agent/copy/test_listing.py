"""What a listing takes along, what it names as strange, and that it holds one state of the tree."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_console.agent.copy import hashing, walking
from dflash_console.agent.copy.hashing import Cache, Hashes
from dflash_console.agent.copy.place import MOST_PARTS, Fault
from dflash_console.agent.copy.walking import walk
from tests.agent.copy.trees import HeedlessPipe, expected, listed, package
from tests.wheels import lay


@pytest.mark.parametrize("version", ["0.5.9", "0.5.23"])
def test_a_real_package_is_listed_whole(tmp_path: Path, version: str) -> None:
    lay(version, tmp_path)
    names = ("sglang", f"sglang-{version}.dist-info")
    found = listed(tmp_path, *names)
    assert found.entries == expected(tmp_path, *names)
    assert not found.walked.strange
    assert not found.walked.followed


def test_bytecode_stays_behind_but_not_a_module_that_is_nothing_else(tmp_path: Path) -> None:
    folder = package(tmp_path)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "server.cpython-311.pyc").write_bytes(b"x")
    (folder / "srt" / "server.pyc").write_bytes(b"x")
    (folder / "srt" / "secret.pyc").write_bytes(b"x")
    paths = [entry[0] for entry in listed(tmp_path).entries]
    assert "sglang/srt/secret.pyc" in paths
    assert [path for path in paths if path.endswith(".pyc")] == ["sglang/srt/secret.pyc"]


def test_only_two_modes_travel_and_a_setuid_bit_is_named(tmp_path: Path) -> None:
    folder = package(tmp_path)
    for name, mode in (("a", 0o600), ("b", 0o777), ("c", 0o4755), ("d", 0o2644), ("e", 0o1644)):
        (folder / name).write_text(name)
        (folder / name).chmod(mode)
    found = listed(tmp_path)
    modes = {entry[0]: entry[3] for entry in found.entries}
    assert [modes[f"sglang/{name}"] for name in "abcde"] == [0o644, 0o755, 0o755, 0o644, 0o644]
    assert [words.partition(":")[0] for words in sorted(found.walked.strange)] == ["sglang/c", "sglang/d"]
    assert all("setuid or setgid" in words for words in found.walked.strange)


def test_equal_trees_have_equal_hashes_wherever_they_lie_and_whoever_wrote_them(tmp_path: Path) -> None:
    package(tmp_path / "one")
    package(tmp_path / "two")
    (tmp_path / "two" / "sglang" / "__init__.py").chmod(0o664)
    os.utime(tmp_path / "two" / "sglang" / "__init__.py", (1, 1))
    one, two = listed(tmp_path / "one"), listed(tmp_path / "two")
    assert one.tree == two.tree
    assert one.stamp != two.stamp
    changes: dict[str, Callable[[Path], object]] = {
        "mode": lambda folder: (folder / "__init__.py").chmod(0o755),
        "content": lambda folder: (folder / "__init__.py").write_text('__version__ = "0.5.8"\n'),
        "name": lambda folder: (folder / "__init__.py").rename(folder / "__init__.pyi"),
        "link": lambda folder: (folder / "link").symlink_to("__init__.py"),
        "empty file": lambda folder: (folder / "new.py").write_text(""),
    }
    seen = {one.tree}
    for what, change in changes.items():
        change(package(tmp_path / what))
        tree = listed(tmp_path / what).tree
        assert tree not in seen, what
        seen.add(tree)


@pytest.mark.parametrize(
    ("target", "kept"),
    [
        ("server.py", True),
        ("../__init__.py", True),
        ("./../srt//server.py", True),
        ("nothing", True),
        ("loop", True),
        ("..", True),
        ("../..", False),
        ("../../sglang/__init__.py", False),
        ("../../other.py", False),
        ("{site}/sglang/__init__.py", False),
        ("{site}/other.py", False),
        ("../out/other.py", False),
    ],
)
def test_a_link_that_stays_within_the_package_is_kept_and_another_is_followed(
    tmp_path: Path, target: str, kept: bool
) -> None:
    folder = package(tmp_path)
    (tmp_path / "other.py").write_text("outside\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "other.py").write_text("outside\n")
    (folder / "out").symlink_to("../outside")
    (folder / "srt" / "loop").symlink_to(target.format(site=tmp_path))
    found = listed(tmp_path)
    rows = {entry[0]: entry for entry in found.entries}
    named = [words for words in found.walked.followed if words.startswith("sglang/srt/loop -> ")]
    if kept:
        assert rows["sglang/srt/loop"] == ["sglang/srt/loop", "link", len(target), 0o777, target]
        assert not named
    else:
        assert len(named) == 1
        below = [row for path, row in rows.items() if path.startswith("sglang/srt/loop")]
        assert below
        assert all(row[1] == "file" for row in below)
    assert rows["sglang/out/other.py"][1] == "file"


def test_links_that_lead_out_in_circles_come_to_an_end(tmp_path: Path) -> None:
    folder = package(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("1")
    (outside / "back").symlink_to(folder)
    (outside / "self").symlink_to(".")
    (folder / "out").symlink_to(outside)
    found = listed(tmp_path)
    assert "sglang/out/file" in [entry[0] for entry in found.entries]
    assert any("circle" in words for words in found.walked.strange)


def test_a_link_out_to_nothing_is_strange(tmp_path: Path) -> None:
    (package(tmp_path) / "gone").symlink_to("/no/such/thing")
    assert listed(tmp_path).walked.strange == [
        "sglang/gone: a link to /no/such/thing: No such file or directory"
    ]


ODD_NAMES = {
    "newline": b"a\nb.py",
    "escape": b"a\x1b[2Jb.py",
    "bidi": "a\u202eyp.b".encode(),
    "invisible": "a\u200bb.py".encode(),
    "odd space": "a\u00a0b.py".encode(),
    "not UTF-8": b"caf\xe9.py",
    "half a pair": b"a\xed\xa0\x80b.py",
}


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES.keys())
def test_a_name_that_can_not_be_shown_as_it_is_is_strange(tmp_path: Path, name: bytes) -> None:
    folder = os.fsencode(package(tmp_path))
    Path(os.fsdecode(folder + b"/" + name)).write_text("1")
    os.mkdir(folder + b"/d" + name)
    Path(os.fsdecode(folder + b"/d" + name + b"/x.py")).write_text("1")
    before = expected(tmp_path, "sglang")
    found = listed(tmp_path)
    assert len(found.entries) == len(before) - 2
    assert len(found.walked.strange) == 2
    for words in found.walked.strange:
        assert words.isprintable()
        assert words.encode("utf-8")


def test_names_of_all_the_world_are_ordinary(tmp_path: Path) -> None:
    folder = package(tmp_path)
    for name in (
        "größe.py",
        "模型.py",
        "a b.py",
        "🦊.py",
        "-x",
        "a\\b",
        "C:",
        "nul",
        "Server.py",
        "server.py",
    ):
        (folder / name).write_text(name)
    found = listed(tmp_path)
    assert found.entries == expected(tmp_path, "sglang")
    assert not found.walked.strange


def test_what_is_no_file_is_strange_and_is_not_opened(tmp_path: Path) -> None:
    folder = package(tmp_path)
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        # A socket's path may be no longer than 107 bytes.
        here = os.open(folder, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
    (folder / "zero").symlink_to("/dev/zero")
    if os.geteuid() == 0:
        os.mknod(folder / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    found = listed(tmp_path)
    assert len(found.entries) == 4
    kinds = {words.partition(":")[0][7:]: words.partition(": ")[2] for words in found.walked.strange}
    assert kinds.pop("device", "a device, no file") == "a device, no file"
    assert kinds == {"pipe": "a pipe, no file", "socket": "a socket, no file", "zero": "a device, no file"}


def test_a_deep_tree_and_files_of_every_size_are_listed(tmp_path: Path) -> None:
    folder = package(tmp_path)
    deep = folder
    for number in range(MOST_PARTS - 3):
        deep = deep / f"d{number}"
    deep.mkdir(parents=True)
    for size in (0, 1, (1 << 18) - 1, 1 << 18, (1 << 20) - 1, 1 << 20, (4 << 20) + 1):
        (deep / f"{size}.bin").write_bytes(os.urandom(size))
    assert listed(tmp_path).entries == expected(tmp_path, "sglang")
    (deep / "below" / "more").mkdir(parents=True)
    (deep / "below" / "more" / "x.py").write_text("")
    (words,) = listed(tmp_path).walked.strange
    assert words.endswith(f": nested more than {MOST_PARTS} folders deep")


def test_a_tree_too_deep_for_a_path_is_named(tmp_path: Path) -> None:
    folder = package(tmp_path)
    here = os.open(folder, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    found = listed(tmp_path)
    assert len(found.entries) == 4
    (words,) = found.walked.strange
    assert "too long" in words


def test_more_files_than_a_package_has_are_refused_with_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = package(tmp_path)
    monkeypatch.setattr(walking, "MOST_FILES", 20)
    monkeypatch.setattr(walking, "MOST_SEEN", 80)
    assert len(listed(tmp_path).entries) == 4
    for number in range(30):
        (folder / str(number)).write_text("")
    with pytest.raises(Fault, match="more than 20 files"):
        listed(tmp_path)
    for number in range(30):
        (folder / str(number)).unlink()
        (folder / f"d{number}" / "e").mkdir(parents=True)
    assert len(listed(tmp_path).entries) == 4
    for number in range(100):
        (folder / f"d{number}" / "f").mkdir(parents=True)
    with pytest.raises(Fault, match="more than 20 files"):
        listed(tmp_path)


# ---- one state of the tree


class Meddler(HeedlessPipe):
    """Something else that works on the tree, in the middle of a walk."""

    def __init__(self, change: Callable[[], object], times: int) -> None:
        super().__init__()
        self.change, self.times = change, times

    def mind(self) -> None:
        # The second call is before the second folder, when the first one has been looked at.
        super().mind()
        if self.minded % 2 == 0 and self.times:
            self.times -= 1
            self.change()


def instead(file: Path, make: Callable[[Path], object]) -> None:
    file.unlink()
    make(file)


CHANGES: dict[str, Callable[[Path], object]] = {
    "grown": lambda file: file.write_text(file.read_text() + "# more\n"),
    "truncated": lambda file: file.write_text(""),
    "rewritten": lambda file: file.write_text(file.read_text()[::-1]),
    "removed": lambda file: file.unlink(),
    "replaced": lambda file: (file.with_name("new").write_text("new"), file.with_name("new").rename(file)),
    "a pipe": lambda file: instead(file, os.mkfifo),
    "a folder": lambda file: instead(file, os.mkdir),
    "a link": lambda file: instead(file, lambda path: os.symlink("srt/server.py", path)),
    "one more": lambda file: file.with_name("more.py").write_text("1"),
}


@pytest.mark.parametrize("how", CHANGES)
def test_what_changes_between_walk_and_reading_is_listed_as_it_is_afterwards(
    tmp_path: Path, how: str
) -> None:
    folder = package(tmp_path)
    file = folder / "changes.py"
    file.write_text("first\n")
    found = listed(tmp_path, pipe=Meddler(lambda: CHANGES[how](file), 1))
    again = listed(tmp_path)
    assert found.entries == again.entries
    assert found.stamp == again.stamp
    assert found.walked.restless == ["sglang/more.py" if how == "one more" else "sglang/changes.py"]
    assert again.walked.restless == []
    if how not in ("a pipe", "a link"):
        assert found.entries == expected(tmp_path, "sglang")


def test_what_never_stops_changing_is_named(tmp_path: Path) -> None:
    folder = package(tmp_path)
    file = folder / "changes.py"
    file.write_text("")
    found = listed(tmp_path, pipe=Meddler(lambda: file.write_text(file.read_text() + "x"), 100))
    assert found.walked.strange == ["sglang/changes.py: it changes while it is read"]
    assert "sglang/changes.py" not in [entry[0] for entry in found.entries]
    assert found.walked.restless == ["sglang/changes.py"]


def test_what_comes_and_goes_while_files_are_read_is_told(tmp_path: Path) -> None:
    folder = package(tmp_path)
    (folder / "old.py").write_text("1\n")

    def work() -> None:
        (folder / "old.py").unlink()
        (folder / "new.py").write_text("1\n")

    found = listed(tmp_path, pipe=Meddler(work, 1))
    assert found.walked.restless == ["sglang/new.py", "sglang/old.py"]
    assert found.entries == expected(tmp_path, "sglang")


def test_a_second_listing_reads_only_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "FINE", -(10**10))
    folder = package(tmp_path)
    cache = Cache()
    listed(tmp_path, cache=cache)
    assert not Hashes(walk(str(tmp_path), ["sglang"]), cache).waiting
    CHANGES["rewritten"](folder / "srt" / "server.py")
    CHANGES["replaced"](folder / "__init__.py")
    waiting = Hashes(walk(str(tmp_path), ["sglang"]), cache).waiting
    assert sorted(item.path for item in waiting) == ["sglang/__init__.py", "sglang/srt/server.py"]
    assert listed(tmp_path, cache=cache).entries == expected(tmp_path, "sglang")


@pytest.mark.parametrize("grain", [1, 10**9])
def test_a_file_that_was_only_just_written_is_read_again(tmp_path: Path, grain: int) -> None:
    """A second change within the clock's grain bears the times of the first."""
    file = package(tmp_path) / "__init__.py"
    cache = Cache()
    seen = os.stat(file)
    ctime = seen.st_ctime_ns // grain * grain

    class Status:
        st_dev, st_ino, st_size, st_mtime_ns, st_ctime_ns = seen.st_dev, seen.st_ino, 1, ctime, ctime

    status: os.stat_result = Status()  # type: ignore[assignment]
    cache.put(status, "0" * 64, ctime + 10_000_000)
    assert cache.get(status) is None
    cache.put(status, "0" * 64, ctime + 3_000_000_000)
    assert cache.get(status) == "0" * 64


def test_another_name_for_a_file_elsewhere_is_no_change(tmp_path: Path) -> None:
    folder = package(tmp_path / "one")
    os.link(folder / "__init__.py", tmp_path / "first")
    before = listed(tmp_path / "one")
    assert before.walked.hard_linked == 1
    os.link(folder / "__init__.py", tmp_path / "second")
    assert listed(tmp_path / "one").stamp == before.stamp


def test_a_record_lists_no_more_than_what_travels_and_is_else_as_it_was_to_the_byte(tmp_path: Path) -> None:
    package(tmp_path)
    record = tmp_path / "sglang-0.5.9.dist-info" / "RECORD"
    inside = b'sglang/a.py,sha256=x,1\r\n"sglang/b,c.py",sha256=y,2\n\nsglang-0.5.9.dist-info/RECORD,,'
    foreign = b"../../../bin/sglang,sha256=z,3\r\ntools/x.py,,\nsglang/../evil.py,,\nsglang_other/x.py,,\n"
    names = ("sglang", "sglang-0.5.9.dist-info")
    record.write_bytes(inside)
    short = listed(tmp_path, *names)
    record.write_bytes(foreign + inside)
    found = listed(tmp_path, *names)
    assert (found.tree, found.entries, found.size) == (short.tree, short.entries, short.size)
    assert found.stamp != short.stamp


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe,,\n", b'"sglang/a\nb.py",,\n', b"x" * 200_000 + b",,\n", b"\0,,\n"]
)
def test_a_record_that_makes_no_sense_travels_whole_or_without_its_foreign_rows(
    tmp_path: Path, data: bytes
) -> None:
    package(tmp_path)
    (tmp_path / "sglang-0.5.9.dist-info" / "RECORD").write_bytes(data)
    (size,) = (
        entry[2]
        for entry in listed(tmp_path, "sglang-0.5.9.dist-info").entries
        if entry[0].endswith("RECORD")
    )
    assert size in (0, len(data))
