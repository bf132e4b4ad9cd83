"""Hashes by child processes: the same as one's own, whatever happens to a file or to a child."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_console.agent.copy import digests as module
from dflash_console.agent.copy.digests import digests, key_of
from dflash_console.agent.copy.place import Fault
from tests.agent.driver import children_of, is_gone
from tests.waiting import until_sync


@pytest.fixture(params=["children", "alone"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether children are used, however little there is to do."""
    monkeypatch.setattr(module, "LITTLE", -1 if request.param == "children" else 1 << 60)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 4, 5, 6, 7})
    return str(request.param)


def files(folder: Path, sizes: list[int]) -> list[bytes]:
    paths = []
    for number, size in enumerate(sizes):
        path = folder / f"{number:04}"
        path.write_bytes(os.urandom(size))
        paths.append(os.fsencode(path))
    return paths


def hashed(path: bytes) -> str:
    return hashlib.sha256(Path(os.fsdecode(path)).read_bytes()).hexdigest()


def test_each_file_has_its_hash_in_order_and_all_is_counted(tmp_path: Path, how: str) -> None:
    sizes = [*range(300), 0, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_000]
    paths = files(tmp_path, sizes)
    told: list[tuple[int, int]] = []
    found = digests(paths, sizes, lambda files, size: told.append((files, size)))
    assert [digest.sha256 for digest in found] == [hashed(path) for path in paths]
    assert [digest.key for digest in found] == [key_of(os.stat(path)) for path in paths]
    assert {digest.problem for digest in found} == {None}
    assert told == sorted(told)
    assert told[-1][1] == sum(sizes)
    assert digests([], []) == []


def test_what_can_not_be_read_says_why_and_harms_no_other(tmp_path: Path, how: str) -> None:
    paths = files(tmp_path, [10] * 6)
    os.unlink(paths[1])
    os.unlink(paths[2])
    os.mkfifo(paths[2])
    os.unlink(paths[3])
    os.symlink(paths[3], paths[3])
    os.unlink(paths[4])
    os.mkdir(paths[4])
    found = digests(paths, [10] * 6)
    problems = [digest.problem for digest in found]
    assert problems == [None, "", "", "Too many levels of symbolic links", "", None]
    assert found[0].sha256 == hashed(paths[0])
    assert found[5].sha256 == hashed(paths[5])


def test_who_is_told_may_end_it_and_no_child_stays(tmp_path: Path, how: str) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    before = children_of(os.getpid())
    seen: list[int] = []

    def stop(files: int, size: int) -> None:
        seen.extend(children_of(os.getpid()))
        raise KeyError("enough")

    with pytest.raises(KeyError):
        digests([os.fsencode(tmp_path / "sparse")], [1 << 40], stop)
    ours = set(seen) - set(before)
    assert bool(ours) == (how == "children")
    until_sync(lambda: all(is_gone(pid) for pid in ours), 10, "the children are gone")


def test_a_file_that_changes_while_it_is_read_has_no_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LITTLE", 1 << 60)
    sizes = [5 << 20] * 3
    changes: list[Callable[[Path], object]] = [
        lambda path: path.open("r+b").close(),
        lambda path: os.truncate(path, path.stat().st_size - 1),
        lambda path: path.write_bytes(os.urandom(5 << 20)),
    ]
    paths = files(tmp_path, sizes)
    begun: set[int] = set()

    def meddle(number: int, size: int) -> None:
        # The first piece of a file was read.
        if number not in begun:
            begun.add(number)
            changes[number](Path(os.fsdecode(paths[number])))

    assert [digest.problem for digest in digests(paths, sizes, meddle)] == [None, "", ""]


def in_child(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Something happens to the child that reads the file 0003."""
    monkeypatch.setattr(module, "LITTLE", -1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    plain: Any = module._read

    def read(path: bytes, buffer: bytearray, began: int) -> Iterator[Any]:
        if path.endswith(b"0003"):
            happens()
        return plain(path, buffer, began)  # type: ignore[no-any-return]

    monkeypatch.setattr(module, "_read", read)


def test_a_child_that_is_killed_is_an_error_with_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_child(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(Fault, match="can't be read: ended with status -9"):
        digests(files(tmp_path, [10] * 6), [10] * 6)


def test_a_filesystem_that_does_not_answer_is_an_error_with_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALL", 0.5)
    in_child(monkeypatch, signal.pause)
    with pytest.raises(Fault, match="no answer for"):
        digests(files(tmp_path, [10] * 6), [10] * 6)
