"""A copy from one process to another over the wire, by hand: what the requests on the target's side do in all."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dflash_console.copies import Claim, Entry, Look, Swapped
from tests.agent.copy.client import Client, Refusal
from tests.agent.copy.trees import copying, expected, package
from tests.agent.environments import make_venv, pythons

END = struct.pack(">BIQI", 255, 0, 0, 0)
NAMES = ("sglang", "sglang-0.5.9.dist-info")
RECORD = b'"../../../bin/sglang",sha256=x,1\r\nsglang/__init__.py,sha256=y,2\r\nsglang-0.5.9.dist-info/RECORD,,\r\n'
"""With a script that is not copied, as an installer writes it."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An environment with a new package."""
    site = make_venv(tmp_path / "source")
    folder = package(site)
    (site / NAMES[1] / "RECORD").write_bytes(RECORD)
    (folder / "large.bin").write_bytes(os.urandom(1_000_000))
    (folder / "link.py").symlink_to("srt/server.py")
    return tmp_path / "source"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """One with an old package."""
    folder = package(make_venv(tmp_path / "target"), version="0.5.8")
    (folder / "old.py").write_text("old\n")
    return tmp_path / "target"


def site_of(venv: Path) -> Path:
    (site,) = venv.glob("lib/python3.*/site-packages")
    return site


def claim(client: Client, venv: Path, look: Look | None = None, **fields: object) -> Claim:
    given: dict[str, Any] = {
        "venv": str(venv),
        "package": "sglang",
        "by": "kim@laptop",
        "what": "copy from ct129",
        "origin": {"host": "ct129", "venv": "/source", "version": "0.5.9"},
        "stamp": look.stamp if look is not None else "",
        "tree": "",
    }
    return msgspec.convert(client.request("claim", **{**given, **fields}), Claim)


def fill(reading: Client, entries: list[Entry], writing: Client, wanted: list[int]) -> list[int]:
    """Bring the files over; what is still missing."""
    number = reading.ask("send", files=wanted)
    reading.take(number)
    number = writing.ask("fill", order=wanted)
    for block in reading.blocks:
        writing.write(1, block)
    writing.write(1, END)
    missing: list[int] = writing.take(number)["missing"]
    return missing


def stage(reading: Client, source: Path, writing: Client, target: Path) -> Look:
    """All up to the check; the source's look."""
    look = writing.look(target)
    assert claim(writing, target, look) == Claim()
    found = reading.look(source)
    entries = reading.entries
    for at in range(0, len(entries), 3):
        writing.request("expect", entries=msgspec.to_builtins(entries[at : at + 3]))
    wanted = writing.request("want")["wanted"]
    assert fill(reading, entries, writing, wanted) == []
    return found


def check(client: Client) -> dict[str, str]:
    checks = client.request("check", modules=[["sglang"]], limit=60.0)["checks"]
    return {each["name"]: each["state"] for each in checks}


def is_old(target: Path) -> bool:
    site = site_of(target)
    paths = {str(row[0]) for row in expected(site, "sglang", "sglang-0.5.8.dist-info")}
    return (
        "sglang/old.py" in paths
        and "sglang-0.5.8.dist-info/METADATA" in paths
        and "sglang/large.bin" not in paths
    )


def leftovers(target: Path) -> list[str]:
    ours = target / ".dflash-console"
    return [path.name for path in ours.glob("stage-*")] if ours.exists() else []


@pytest.fixture
def reading() -> Iterator[Client]:
    with copying() as client:
        yield client


@pytest.mark.parametrize("minor", [minor for minor in pythons() if minor in ("3.8", "3.11", "3.13")])
def test_a_copy_and_a_rollback_go_through_and_the_look_tells_of_them(
    source: Path, target: Path, reading: Client, minor: str
) -> None:
    with copying(pythons()[minor]) as writing:
        found = stage(reading, source, writing, target)
        assert is_old(target)
        assert set(check(writing).values()) == {"pass"}
        swapped = msgspec.convert(writing.request("swap"), Swapped)
        assert not swapped.is_undone
        assert writing.request("settle", keep=True, note="")["undone"] is False
        assert writing.request("release") is None
        now = writing.look(target)
        assert (now.state, now.version, now.dist_version) == ("whole", "0.5.9", "0.5.9")
        assert now.provenance is not None
        assert (now.provenance.from_host, now.provenance.by) == ("ct129", "kim@laptop")
        assert now.provenance.tree == now.tree
        assert now.lock is None
        assert now.unsettled is None
        assert [backup.version for backup in now.backups] == ["0.5.8"]
        assert (now.tree, now.files) == (found.tree, found.files)

        assert claim(writing, target, now, what="rollback") == Claim()
        back = writing.request("restore", backup=now.backups[0].id, modules=[["sglang"]], limit=60.0)
        assert not msgspec.convert(back, Swapped).is_undone
        writing.request("settle", keep=True, note="")
        writing.request("release")
        assert is_old(target)
        assert writing.look(target).version == "0.5.8"
    assert leftovers(target) == []


def test_only_one_may_claim_and_the_other_is_told_who_has_it(target: Path, reading: Client) -> None:
    with copying() as writing:
        assert claim(writing, target) == Claim()
        with pytest.raises(Refusal, match="claimed an environment already"):
            claim(writing, target)
        other = claim(reading, target)
        assert other.locked is not None
        assert other.locked.by == "kim@laptop"
        seen = reading.look(target)
        assert seen.lock is not None
        assert seen.lock.pid == writing.process.pid
        writing.request("release")
        assert claim(reading, target) == Claim()


def test_a_tree_that_changed_since_the_plan_is_not_claimed(target: Path) -> None:
    with copying() as writing:
        look = writing.look(target)
        (site_of(target) / "sglang" / "old.py").write_text("new\n")
        assert "not as it was" in claim(writing, target, look).changed
        # Nothing is held by that.
        assert claim(writing, target, writing.look(target)) == Claim()


ENDS = ["eof", "SIGTERM", "SIGHUP"]


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("step", ["claim", "expect", "want", "fill", "check"])
def test_whatever_ends_it_before_the_swap_leaves_the_old_tree_and_nothing_else(
    source: Path, target: Path, reading: Client, step: str, how: str
) -> None:
    with copying() as writing:
        if step == "claim":
            claim(writing, target)
        elif step in ("expect", "want", "fill"):
            claim(writing, target)
            reading.look(source)
            entries = reading.entries
            writing.request("expect", entries=msgspec.to_builtins(entries))
            if step != "expect":
                wanted = writing.request("want")["wanted"]
            if step == "fill":
                reading.take(reading.ask("send", files=wanted))
                writing.ask("fill", order=wanted)
                writing.write(1, reading.blocks[0])
                assert json.loads(writing.frame()[1])["type"] == "progress"
        else:
            stage(reading, source, writing, target)
            check(writing)
        if how == "eof":
            writing.stdin.close()
        else:
            writing.process.send_signal(getattr(signal, how))
        assert writing.ended() == 0
    assert is_old(target)
    assert leftovers(target) == []
    seen = reading.look(target)
    assert (seen.lock, seen.unsettled, seen.backups) == (None, None, ())


def test_an_end_after_the_swap_keeps_the_new_tree_and_settles_it(
    source: Path, target: Path, reading: Client
) -> None:
    with copying() as writing:
        stage(reading, source, writing, target)
        check(writing)
        writing.request("swap")
        writing.stdin.close()
        assert writing.ended() == 0
    seen = reading.look(target)
    assert (seen.version, seen.lock, seen.unsettled) == ("0.5.9", None, None)


def test_a_wrong_byte_is_named_and_the_process_stays_in_step(
    source: Path, target: Path, reading: Client
) -> None:
    with copying() as writing:
        claim(writing, target)
        reading.look(source)
        entries = reading.entries
        writing.request("expect", entries=msgspec.to_builtins(entries))
        wanted = writing.request("want")["wanted"]
        reading.take(reading.ask("send", files=wanted))
        number = writing.ask("fill", order=wanted)
        for block in reading.blocks:
            writing.write(1, block[:-1] + bytes([block[-1] ^ 1]))
        writing.write(1, END)
        with pytest.raises(Refusal, match="sglang"):
            writing.take(number)
        assert writing.request("ping")["at"] > 1e9
        with pytest.raises(Refusal, match="no request"):
            writing.request("dance")
    assert is_old(target)


def test_who_runs_from_the_package_is_told_with_the_lock_and_again_before_the_swap(
    source: Path, target: Path, reading: Client
) -> None:
    """Not the interpreters that the copy itself asks."""
    say = "print('ready', flush=True); import time; time.sleep(1000)"

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([target / "bin" / "python", "-c", say], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    with copying() as writing:
        look = writing.look(target)
        assert look.importers == ()
        with start() as first:
            (row,) = claim(writing, target, look).importers
            assert row.startswith(f"process {first.pid} (")
            first.kill()
        reading.look(source)
        writing.request("expect", entries=msgspec.to_builtins(reading.entries))
        wanted = writing.request("want")["wanted"]
        assert fill(reading, reading.entries, writing, wanted) == []
        assert check(writing)["importers"] == "pass"
        with start() as second:
            checks = writing.request("check", modules=[["sglang"]], limit=60.0)["checks"]
            (told,) = [each for each in checks if each["name"] == "importers"]
            assert told["state"] == "warn"
            assert [line.partition(" (")[0] for line in told["evidence"]] == [f"process {second.pid}"]
            second.kill()


def test_a_backup_that_can_not_be_put_back_is_told_to_have_changed_nothing(target: Path) -> None:
    """As an answer: of a fault that comes back instead, nobody could tell whether it was before the swap."""
    with copying() as writing:
        claim(writing, target, what="rollback")
        swapped = msgspec.convert(writing.request("restore", backup="none", modules=[]), Swapped)
        assert swapped.is_undone
        assert swapped.swap == ""
        assert swapped.detail.startswith("nothing was changed: ")
    assert is_old(target)
