"""The one way to read a file that others write: regular ones, up to a limit, and never a wait."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_console.agent.regular import read_regular

Hostile = Callable[[Path], object]


def _linked_pipe(path: Path) -> None:
    os.mkfifo(f"{path}.pipe")
    path.symlink_to(f"{path}.pipe")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


NO_FILES: dict[str, tuple[Hostile, int]] = {
    "a pipe": (os.mkfifo, errno.EINVAL),
    "a link to a pipe": (_linked_pipe, errno.EINVAL),
    "an endless device": (lambda path: path.symlink_to("/dev/zero"), errno.EINVAL),
    "a socket": (_socket, errno.EINVAL),
    "a folder": (Path.mkdir, errno.EINVAL),
    "a link to nothing": (lambda path: path.symlink_to("nothing"), errno.ENOENT),
    "a link to itself": (lambda path: path.symlink_to(path.name), errno.ELOOP),
    "nothing": (lambda path: None, errno.ENOENT),
}


@pytest.mark.parametrize(("make", "number"), NO_FILES.values(), ids=NO_FILES)
def test_what_is_no_file_is_refused_without_being_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Hostile, number: int
) -> None:
    make(tmp_path / "it")
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("it was opened"))
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is checked
        read_regular(str(tmp_path / "it"), 100)
    assert caught.value.errno == number


def test_a_pipe_that_takes_the_files_place_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags: real(tmp_path / "pipe", flags))
    try:
        with pytest.raises(OSError, match="not a regular file"):
            read_regular(str(tmp_path / "file"), 100)
    finally:
        os.close(writer)


def test_of_a_file_of_terabytes_the_beginning_is_read(tmp_path: Path) -> None:
    path = tmp_path / "big"
    with path.open("wb") as file:
        file.write(b"begin")
        file.truncate(1 << 40)
    assert read_regular(str(path), 7) == b"begin\0\0"
    assert len(read_regular(str(path), (3 << 20) + 1)) == (3 << 20) + 1


def test_a_short_file_is_read_whole_whatever_its_name(tmp_path: Path) -> None:
    for name in (b"a\nb", b"\xff\xfe", b"\x1b[2J", b"-rf", "\u202e".encode(), b"x" * 255):
        path = os.path.join(os.fsencode(tmp_path), name)
        with open(path, "wb") as file:
            file.write(b"text")
        assert read_regular(os.fsdecode(path), 100) == b"text"


def test_a_file_that_may_not_be_read_is_an_error_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    before = os.listdir("/proc/self/fd")

    def broken(fd: int, size: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "read", broken)
    with pytest.raises(OSError, match="Input/output"):
        read_regular(str(tmp_path / "file"), 100)
    assert os.listdir("/proc/self/fd") == before
