"""What the source sends: the files as they were listed, in full blocks, or the name of the one that has changed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.copy.client import BLOCK, Client, Refusal
from tests.agent.copy.trees import copying, package

FULL = 1 << 18


@pytest.fixture
def client() -> Iterator[Client]:
    with copying() as client:
        yield client


def index(client: Client, name: str) -> int:
    (found,) = (number for number, entry in enumerate(client.entries) if entry.path.endswith(name))
    return found


def test_blocks_are_full_and_small_files_share_them(client: Client, venv: Path, site: Path) -> None:
    folder = package(site)
    sizes = [0, 1, 100, FULL - 101, 0, FULL, FULL + 1, 0, 3 * FULL, 5, (4 << 20) + 7, 0]
    for number, size in enumerate(sizes):
        (folder / f"{number:02}.bin").write_bytes(os.urandom(size))
    client.look(venv)
    wanted = [index(client, f"/{number:02}.bin") for number in range(len(sizes))]
    found = client.send(wanted)
    assert [len(data) for data in found.values()] == sizes
    lengths = [BLOCK.unpack_from(block)[3] for block in client.blocks]
    assert set(lengths[:-1]) == {FULL}
    assert sum(lengths) == sum(sizes)
    # A block begins at a byte, never at an empty file or behind a file's end.
    for _, position, offset, _ in map(BLOCK.unpack_from, client.blocks):
        assert offset < sizes[position]


def test_any_order_and_any_choice_may_be_asked_for_again_and_again(
    client: Client, venv: Path, site: Path
) -> None:
    folder = package(site)
    for number in range(20):
        (folder / f"{number:02}.bin").write_bytes(os.urandom(number * 10_000))
    client.look(venv)
    wanted = [index(client, f"/{number:02}.bin") for number in (7, 3, 19, 0, 11)]
    assert list(client.send(wanted)) == [client.entries[number].path for number in wanted]
    assert client.send([]) == {}
    assert client.blocks == []
    assert list(client.send(wanted[::-1], compress=True)) == [
        client.entries[number].path for number in wanted[::-1]
    ]


def test_it_is_compressed_only_when_told_and_only_where_it_gains(
    client: Client, venv: Path, site: Path
) -> None:
    folder = package(site)
    (folder / "text.bin").write_bytes(b"text" * FULL)
    (folder / "noise.bin").write_bytes(os.urandom(FULL))
    client.look(venv)
    wanted = [index(client, "text.bin"), index(client, "noise.bin")]
    for compress, codecs in ((False, [0] * 5), (True, [1, 1, 1, 1, 0])):
        client.send(wanted, compress=compress)
        assert [block[0] for block in client.blocks] == codecs


def test_a_link_has_no_content_and_a_followed_one_has_that_of_its_file(
    client: Client, venv: Path, site: Path, tmp_path: Path
) -> None:
    folder = package(site)
    (tmp_path / "outside.py").write_text("outside\n")
    (folder / "inside.py").symlink_to("__init__.py")
    (folder / "out.py").symlink_to(tmp_path / "outside.py")
    look = client.look(venv)
    assert look.followed == (f"sglang/out.py -> {tmp_path}/outside.py",)
    assert client.send([index(client, "out.py")]) == {"sglang/out.py": b"outside\n"}
    entries = client.entries
    with pytest.raises(Refusal, match=r"sglang/inside\.py is a link"):
        client.request("send", files=[index(client, "inside.py")])
    client.entries = entries
    told = client.request("read", venv=str(venv), package="sglang", path="sglang/out.py", limit=100)
    assert told == {"size": 8, "is_cut": False}
    assert client.blocks == [b"outside\n"]


def instead(file: Path, make: Callable[[Path], object]) -> None:
    file.unlink()
    make(file)


CHANGES: dict[str, Callable[[Path], object]] = {
    "grown": lambda file: os.truncate(file, file.stat().st_size + 1),
    "cut": lambda file: os.truncate(file, file.stat().st_size - 1),
    "emptied": lambda file: os.truncate(file, 0),
    "rewritten": lambda file: file.write_bytes(os.urandom(file.stat().st_size)),
    "rewritten, with its old time": lambda file: rewrite(file),
    "removed": lambda file: file.unlink(),
    "replaced": lambda file: instead(file, lambda path: path.write_bytes(b"y" * 1_000_000)),
    "a pipe": lambda file: instead(file, os.mkfifo),
    "a folder": lambda file: instead(file, os.mkdir),
    "a link to nothing": lambda file: instead(file, lambda path: os.symlink("nothing", path)),
    "a link to itself": lambda file: instead(file, lambda path: os.symlink(path.name, path)),
    "a device": lambda file: instead(file, lambda path: os.symlink("/dev/zero", path)),
    "its folder is gone": lambda file: file.parent.rename(file.parent.with_name("moved")),
}


def rewrite(file: Path) -> None:
    times = file.stat()
    file.write_bytes(os.urandom(times.st_size))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("how", CHANGES)
def test_a_file_that_changed_since_the_look_is_named(
    client: Client, venv: Path, site: Path, how: str
) -> None:
    file = package(site) / "srt" / "changes.bin"
    file.write_bytes(os.urandom(1_000_000))
    client.look(venv)
    wanted = [index(client, "sglang/__init__.py"), index(client, "changes.bin")]
    entries = client.entries
    CHANGES[how](file)
    with pytest.raises(Refusal, match=r"sglang/srt/changes\.bin"):
        client.request("send", files=wanted)
    client.entries = entries
    # The others can still be had, and after another look this one as well.
    assert len(client.send(wanted[:1])) == 1
    if how in ("grown", "cut", "rewritten"):
        client.look(venv)
        assert client.send([index(client, "changes.bin")]) == {"sglang/srt/changes.bin": file.read_bytes()}


def await_block(client: Client) -> None:
    kind, _ = client.frame()
    assert kind == 1


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("which", ["the file that is read", "one that follows"])
def test_a_file_that_changes_while_others_are_sent_is_named(
    client: Client, venv: Path, site: Path, which: str, how: str
) -> None:
    folder = package(site)
    for name in ("first.bin", "second.bin"):
        (folder / name[:-4]).mkdir()
        (folder / name[:-4] / name).write_bytes(os.urandom(1 << 20))
    client.look(venv)
    number = client.ask("send", files=[index(client, "first.bin"), index(client, "second.bin")])
    # The pipe is full now, in the middle of the first file.
    await_block(client)
    name = "first" if which == "the file that is read" else "second"
    CHANGES[how](folder / name / f"{name}.bin")
    if which == "the file that is read" and how == "its folder is gone":
        # Nothing of the file itself has changed.
        name = "second"
        (folder / "second").rename(folder / "away")
    with pytest.raises(Refusal, match=rf"sglang/{name}/{name}\.bin"):
        client.take(number)


def test_a_folder_that_is_put_elsewhere_while_its_file_is_sent_takes_nothing_away(
    client: Client, venv: Path, site: Path
) -> None:
    folder = package(site)
    (folder / "large.bin").write_bytes(os.urandom(1 << 20))
    client.look(venv)
    number = client.ask("send", files=[index(client, "large.bin")])
    await_block(client)
    folder.rename(site / "moved")
    assert client.take(number)["raw"] == 1 << 20


def test_a_new_name_for_a_file_elsewhere_is_no_change(
    client: Client, venv: Path, site: Path, tmp_path: Path
) -> None:
    folder = package(site)
    os.link(folder / "__init__.py", tmp_path / "cache")
    client.look(venv)
    os.link(folder / "__init__.py", tmp_path / "another")
    assert len(client.send([index(client, "sglang/__init__.py")])) == 1


def test_a_console_that_never_reads_gets_the_process_stuck_only_until_it_goes(
    client: Client, venv: Path, site: Path
) -> None:
    (package(site) / "large.bin").write_bytes(os.urandom(1 << 20))
    client.look(venv)
    client.ask("send", files=[index(client, "large.bin")])
    await_block(client)
    client.process.send_signal(signal.SIGSTOP)
    client.stdin.close()
    client.process.send_signal(signal.SIGCONT)
    assert client.ended() == 0


def test_what_is_read_is_cut_at_the_limit_and_comes_in_frames(client: Client, venv: Path, site: Path) -> None:
    data = os.urandom(3 << 20)
    (package(site) / "large.bin").write_bytes(data)
    for limit, length in (
        (0, 0),
        (1, 1),
        (300_000, 300_000),
        (2 << 20, 2 << 20),
        (1 << 40, 2 << 20),
        (-1, 0),
    ):
        fields = {"venv": str(venv), "package": "sglang", "path": "sglang/large.bin", "limit": limit}
        told = client.request("read", **fields)
        assert told == {"size": 3 << 20, "is_cut": True}
        assert b"".join(client.blocks) == data[:length]
    path = "sglang/srt/server.py"
    assert client.request("read", venv=str(venv), package="sglang", path=path, limit=1500)["is_cut"] is False


def test_of_a_record_its_own_rows_are_sent(client: Client, venv: Path, site: Path) -> None:
    package(site)
    kept = b"sglang/__init__.py,sha256=x,1\r\n" * 20_000
    record = site / "sglang-0.5.9.dist-info" / "RECORD"
    record.write_bytes(b"../../../bin/sglang,,\r\n" + kept)
    client.look(venv)
    assert list(client.send([index(client, "/RECORD")]).values()) == [kept]
    record.write_bytes(kept)
    with pytest.raises(Refusal, match="RECORD changed while it was read"):
        client.send([index(client, "/RECORD")])
