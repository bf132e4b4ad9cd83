"""Blocks: what is made of those that come right, and of those that do not."""

from __future__ import annotations

import hashlib
import os
import zlib
from pathlib import Path

import pytest

from dflash_console.agent.copy.expected import Expected
from dflash_console.agent.copy.place import Fault
from dflash_console.agent.copy.receive import HEADER, Modes, Receiver, make_folders
from tests.agent.copy.flow import BLOCK, END, blocks, entries_of

CONTENT = {
    "sglang/__init__.py": b"one\n",
    "sglang/big.bin": os.urandom(3 * BLOCK + 17),
    "sglang/empty.py": b"",
    "sglang/exact.bin": os.urandom(BLOCK),
    "sglang/last.py": b"last\n" * 40,
}


class Ground:
    """A source, and a stage that receives it."""

    def __init__(self, folder: Path) -> None:
        self.source, self.stage = folder / "source", folder / "stage"
        for path, data in CONTENT.items():
            (self.source / path).parent.mkdir(parents=True, exist_ok=True)
            (self.source / path).write_bytes(data)
        self.entries = entries_of(self.source)
        expected = Expected("sglang")
        expected.add(self.entries)
        expected.finish()
        self.stage.mkdir()
        self.fd = os.open(self.stage, os.O_RDONLY)
        self.receiver = Receiver(expected, self.fd, Modes(0o644, 0o755))
        make_folders(self.fd, expected, self.receiver.modes)
        self.all = [index for index in expected.files if expected.sizes[index]]
        self.receiver.wanted = set(self.all)

    def send(self, sent: list[bytes]) -> str:
        """The problem that they met, empty for none."""
        for block in sent:
            assert not self.receiver.feed(block)
        assert self.receiver.feed(END)
        try:
            self.receiver.end()
        except Fault as problem:
            return str(problem)
        return ""

    def path(self, index: int) -> str:
        return str(self.entries[index][0])

    def there(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.stage)): path.read_bytes() for path in self.stage.rglob("*.*")}


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("size", [7, 1000, BLOCK])
def test_files_are_put_together_from_blocks_of_any_size(ground: Ground, compress: bool, size: int) -> None:
    if size == 7:
        ground.all = [index for index in ground.all if not ground.path(index).endswith(".bin")]
        ground.receiver.wanted = set(ground.all)
    ground.receiver.begin(ground.all)
    assert ground.send(list(blocks(ground.source, ground.entries, ground.all, compress, size))) == ""
    assert ground.there() == {ground.path(index): CONTENT[ground.path(index)] for index in ground.all}
    assert ground.receiver.wanted == set()
    assert ground.receiver.files == len(ground.all)
    assert ground.receiver.bytes == sum(len(CONTENT[ground.path(index)]) for index in ground.all)


def test_blocks_without_wanted_files_may_be_left_out(ground: Ground) -> None:
    last = ground.all[-1]
    ground.receiver.wanted = {last}
    ground.receiver.begin(ground.all)
    sent = list(blocks(ground.source, ground.entries, ground.all))
    assert ground.send(sent[-1:]) == ""
    assert list(ground.there()) == [ground.path(last)]


def test_a_file_whose_part_did_not_come_stays_wanted_and_leaves_nothing(ground: Ground) -> None:
    big = ground.entries.index(next(entry for entry in ground.entries if entry[0] == "sglang/big.bin"))
    ground.receiver.wanted = {big}
    sent = list(blocks(ground.source, ground.entries, [big]))
    for part in (sent[1:], sent[:1] + sent[2:], [sent[0], sent[0]]):
        ground.receiver.begin([big])
        assert "sglang/big.bin" in ground.send(part)
        assert ground.there() == {}
    ground.receiver.begin([big])
    assert ground.send(sent[:2]) == ""
    assert ground.receiver.wanted == {big}
    assert ground.there() == {}
    ground.receiver.begin([big])
    assert ground.send(sent) == ""
    assert ground.there() == {"sglang/big.bin": CONTENT["sglang/big.bin"]}


@pytest.mark.parametrize("place", ["header", "data"])
def test_any_flipped_byte_is_noticed(ground: Ground, place: str) -> None:
    sent = list(blocks(ground.source, ground.entries, ground.all, compress=True))
    for at in range(HEADER.size) if place == "header" else range(HEADER.size, HEADER.size + 40):
        for stale in ground.stage.rglob("*.*"):
            stale.unlink()
        ground.receiver.wanted = set(ground.all)
        ground.receiver.begin(ground.all)
        flipped = bytearray(sent[0])
        flipped[at] ^= 0x10
        if flipped[0] == 255:
            continue
        problem = ground.send([bytes(flipped), *sent[1:]])
        # Some bits of the compressed form mean nothing.
        assert problem or not ground.receiver.wanted, f"byte {at} of the {place}"
        assert all(CONTENT[path] == data for path, data in ground.there().items())


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\0" * (HEADER.size - 1),
        HEADER.pack(0, 0, 0, 5) + b"four",
        HEADER.pack(0, 0, 0, 3) + b"four",
        HEADER.pack(7, 0, 0, 4) + b"four",
        HEADER.pack(1, 0, 0, 4) + b"four",
        HEADER.pack(0, 4_000_000_000, 0, 4) + b"four",
        HEADER.pack(0, 0, 1 << 63, 4) + b"four",
        HEADER.pack(0, 3, 0, 5000) + b"x" * 5000,
        HEADER.pack(0, 0, 0, 1 << 19) + b"x" * (1 << 19),
        HEADER.pack(1, 0, 0, 1000) + zlib.compress(b"\0" * (100 << 20)),
    ],
)
def test_a_block_that_makes_no_sense_is_refused_and_the_rest_is_dropped(ground: Ground, block: bytes) -> None:
    ground.receiver.begin(ground.all)
    assert ground.send([block, *blocks(ground.source, ground.entries, ground.all)])
    assert all(CONTENT[path] == data for path, data in ground.there().items())
    assert ground.receiver.wanted


@pytest.mark.parametrize("order", [[0, 0], [-1], [99], [True], ["0"], None, {}, [0.0], [2.5]])
def test_an_order_that_makes_no_sense_is_refused(ground: Ground, order: object) -> None:
    with pytest.raises(Fault):
        ground.receiver.begin(order)


def test_nothing_that_is_in_the_stage_already_is_written_through(ground: Ground, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"keep")
    (ground.stage / "sglang/last.py").symlink_to(outside)
    os.link(outside, ground.stage / "sglang/__init__.py")
    ground.receiver.begin(ground.all)
    assert "File exists" in ground.send(list(blocks(ground.source, ground.entries, ground.all)))
    assert outside.read_bytes() == b"keep"


def test_modes_are_given_whatever_the_umask_is(ground: Ground) -> None:
    before = os.umask(0o077)
    try:
        ground.receiver.write(0, b"one\n")
    finally:
        os.umask(before)
    assert (ground.stage / "sglang/__init__.py").stat().st_mode & 0o777 == 0o644
    assert hashlib.sha256(b"one\n").hexdigest() == ground.entries[0][4]
