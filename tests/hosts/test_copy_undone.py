"""Copies that come to their swap on real hosts and go back by themselves, or that the disk stops on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_console.copies import Consent
from dflash_console.operations.copying import roll_back
from tests.hosts.copies import (
    BY,
    at,
    configured,
    console,
    content,
    copying_command,
    journal,
    lay,
    left,
    outcome,
    pair,
    settled,
)
from tests.hosts.disks import disk_at, plain_at
from tests.hosts.fleet import Fleet
from tests.hosts.host import Host
from tests.hosts.proofs import FOLDER, NEWEST, OLD, STABLE, site_of

pytestmark = pytest.mark.timeout(300)

WARNED = Consent(yes=True, allowed=frozenset({"warned"}))
BYTECODE = "/var/cache/bytecode"
"""Where an image has compiled its packages to, never to be compared with their sources again."""


def shadow(host: Host, site: str) -> None:
    """A checkout in the login's home, where a command that is typed over SSH begins."""
    host.write("/root/sglang/__init__.py", "__version__ = 'of the checkout'\n")


def compile_ahead(host: Host, site: str) -> None:
    """Bytecode of the old package, kept by its path: no stage sees it, and what lies at the real place is not read."""
    host.run(
        f"echo 'import sys; sys.pycache_prefix = \"{BYTECODE}\"' > {site}/bytecode.pth; "
        f"PYTHONPYCACHEPREFIX={BYTECODE} python3 -m compileall -q --invalidation-mode unchecked-hash "
        f"{site}/sglang/__init__.py"
    )


@pytest.mark.parametrize(
    ("version", "lay_trap", "words"),
    [
        (STABLE, shadow, "the working directory /root comes first: imports /root/sglang/__init__.py, not"),
        (NEWEST, compile_ahead, "No module named 'sglang.global_config'"),
    ],
)
def test_what_is_not_ready_in_its_place_is_undone_by_itself(
    places: Fleet, tmp_path: Path, version: str, lay_trap: Callable[[Host, str], None], words: str
) -> None:
    source, target = pair(places, new=version)
    host = places["ct200"]
    site = "/" + str(site_of(host, target.venv).relative_to(host.root))
    lay_trap(host, site)
    try:
        old = content(host, target)
        config = configured(tmp_path, places, source, target)
        code, (result,), said = outcome(copying_command(config, source, target))
    finally:
        host.run(f"rm -rf /root/sglang {BYTECODE}")
    assert (code, result["state"]) == (1, "undone"), result
    assert "verifying the package in its place" in said, "the stage was right: it came to the swap"
    assert "undoing it" in said
    assert words in result["detail"], result
    assert "the package before it is back in place" in result["detail"]
    assert content(host, target) == old
    assert (journal(host, target)[-1], left(host, target)) == ("undone", [])


# ---- disks that fail on the way


async def test_a_disk_that_runs_out_of_inodes_meanwhile_changes_nothing(
    places: Fleet, tmp_path: Path
) -> None:
    host, source = places["ct200"], lay(places["kpro6"], "source", STABLE)
    with disk_at(host, f"{FOLDER}/disk", tmp_path / "disk", inodes=16_000) as disk:
        target = lay(host, "disk/target", OLD)
        old = content(host, target)
        async with console(tmp_path, places, source, target) as one:
            plan = await one.plan(source, target)
            assert not plan.targets[0].failed, plan.targets[0].failed
            ballast = host.root / target.venv.lstrip("/") / "ballast"
            ballast.mkdir()
            for number in range(disk.free_inodes - 500):
                (ballast / str(number)).touch()
            (run,) = await one.copy(plan)
            assert run.state == "failed", run
            assert "the disk is full or has no inodes left; make room and start again" in run.detail
            assert "nothing was changed" in run.detail
            assert content(host, target) == old
            assert (journal(host, target)[-1], left(host, target)) == ("undone", [])
            again = await one.plan(source, target)
            assert [check.name for check in again.targets[0].failed] == ["inodes"]


@pytest.mark.parametrize("moment", ["sending", "swapping"])
async def test_a_disk_that_fails_meanwhile_is_left_whole_and_mended_by_the_next_copy(
    places: Fleet, tmp_path: Path, moment: str
) -> None:
    host, source = places["ct200"], lay(places["kpro6"], "source", STABLE)
    with disk_at(host, f"{FOLDER}/disk", tmp_path / "disk") as disk:
        target = lay(host, "disk/target", OLD)
        disk.sync()
        old = content(host, target)
        async with console(tmp_path, places, source, target) as one:
            plan = await one.plan(source, target)
            (run,) = await one.copy(plan, at(moment, disk.fail, received=int(moment == "sending")))
            assert run.state == "failed", run
            assert "the filesystem is read-only" in run.detail
            (run,) = await one.copy(await one.plan(source, target))
            assert run.state == "refused", run
            # Which of the two depends on the kernel.
            assert "has failed and takes no more writes" in run.detail or "read-only" in run.detail
            assert content(host, target) == old
            await asyncio.to_thread(disk.unmount)
            await asyncio.to_thread(disk.mount)
            assert content(host, target) == old
            await settled(one, host, source, target)
        record = f"sglang-{STABLE}.dist-info/RECORD"
        assert content(host, target) | {record: ""} == content(places["kpro6"], source) | {record: ""}


# ---- a filesystem that exchanges nothing


async def test_where_nothing_can_be_exchanged_it_is_renamed_in_two_steps_there_and_back(
    places: Fleet, tmp_path: Path
) -> None:
    host, source = places["ct200"], lay(places["kpro6"], "source", STABLE)
    target = lay(host, "shared/target", OLD)
    old = content(host, target)
    with plain_at(host, f"{FOLDER}/shared"):
        async with console(tmp_path, places, source, target) as one:
            plan = await one.plan(source, target)
            (need,) = plan.targets[0].needs
            assert need.code == "warned"
            assert "fuse.plain on ct200:" in need.text
            (run,) = await one.copy(plan)
            assert run.state == "refused"
            (run,) = await one.copy(plan, consent=WARNED)
            assert (run.state, run.swap) == ("done", "two-step"), run
            record = f"sglang-{STABLE}.dist-info/RECORD"
            assert content(host, target) | {record: ""} == content(places["kpro6"], source) | {record: ""}
            fleet, config = one.watch.fleet, one.config
            back = await roll_back(
                fleet, config, target, "", WARNED, lambda run: None, read_only=False, by=BY, look=None
            )
            assert (back.state, back.swap) == ("done", "two-step"), back
    assert content(host, target) == old
    assert left(host, target) == []
