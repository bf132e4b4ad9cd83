"""Copies between real hosts with the real trees: what comes of them, and that a package is whole whatever dies."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import signal
import time
from pathlib import Path

import pytest

from dflash_console.copies import Side, TargetRun
from dflash_console.operations.copying import roll_back
from tests.hosts.copies import (
    BY,
    YES,
    at,
    beside,
    configured,
    console,
    content,
    copying_command,
    journal,
    lay,
    left,
    pair,
    settled,
    whole,
)
from tests.hosts.fleet import Fleet
from tests.hosts.proofs import FOLDER, NEWEST, OLD, STABLE, site_of
from tests.waiting import until, until_sync

pytestmark = pytest.mark.timeout(900)

SPECULATIVE = "sglang/srt/speculative"


# ---- the ordinary flow


async def test_a_cold_copy_a_second_one_and_the_way_back(
    places: Fleet, tmp_path: Path, figures: list[str]
) -> None:
    source, target = pair(places)
    there, here = places["ct200"], places["kpro6"]
    old, names = content(there, target), beside(there, target)
    async with console(tmp_path, places, source, target) as one:
        began = time.monotonic()
        (run,) = await one.copied(source, target)
        figures.append(f"cold copy of {NEWEST} over {OLD}: {time.monotonic() - began:.1f} s")
        new = content(here, source)
        assert content(there, target) == new
        assert run.swap == "exchange"
        assert run.verdict is not None
        assert run.verdict.is_ready
        expected = [name.replace(OLD, NEWEST) for name in names]
        assert beside(there, target) == expected, "something of ours is in site-packages"
        assert left(there, target) == []

        site = site_of(here, source.venv)
        for name in ("srt/server_args.py", "version.py", "srt/speculative/dflash_utils.py"):
            text = (site / "sglang" / name).read_text()
            (site / "sglang" / name).unlink()
            (site / "sglang" / name).write_text(f"{text}\n# patched\n")
        began = time.monotonic()
        (run,) = await one.copied(source, target)
        figures.append(f"copy of three changed files: {time.monotonic() - began:.1f} s")
        assert (run.changed, run.all_files) == (3, 3)
        assert content(there, target) == content(here, source)

        back = await roll_back(
            one.watch.fleet,
            one.config,
            target,
            "",
            YES,
            lambda run: None,
            read_only=False,
            by=BY,
            look=None,
        )
        assert back.state == "done", back
        assert content(there, target) == new
        plan = await one.plan(source, target)
        assert plan.targets[0].look is not None
        reasons = [backup.reason for backup in plan.targets[0].look.backups]
        assert reasons == ["rollback", "copy"]
        versions = [backup.version for backup in plan.targets[0].look.backups]
        assert versions == [NEWEST, OLD]
        assert old, "there was something to begin with"


async def test_a_copy_over_the_nested_mess_of_scp(places: Fleet, tmp_path: Path) -> None:
    source, target = pair(places)
    site = site_of(places["ct200"], target.venv)
    shutil.copytree(site_of(places["kpro6"], source.venv) / "sglang", site / "sglang/sglang", symlinks=True)
    async with console(tmp_path, places, source, target) as one:
        await one.copied(source, target)
    assert content(places["ct200"], target) == content(places["kpro6"], source)


async def test_eight_targets_are_served_at_once(places: Fleet, tmp_path: Path, figures: list[str]) -> None:
    source = lay(places["kpro6"], "source", STABLE)
    spread = (("ct200", 3), ("ct129", 3), ("kpro6", 2))
    targets = [lay(places[name], f"target{number}", OLD) for name, count in spread for number in range(count)]
    async with console(tmp_path, places, source, *targets) as one:
        began = time.monotonic()
        await one.copied(source, *targets)
        figures.append(f"copy of {STABLE} to 8 targets: {time.monotonic() - began:.1f} s")
    record = f"sglang-{STABLE}.dist-info/RECORD"
    new = content(places["kpro6"], source)
    for target in targets:
        # Of the programs in bin/ that this release has, a copy brings none, and its RECORD names none.
        assert content(places[target.host], target) | {record: ""} == new | {record: ""}
        assert left(places[target.host], target) == []


READER = """
import hashlib, importlib.util, os, subprocess, sys
site = sys.argv[1]
seen, turns = {}, 0
names = ["__init__.py", "version.py", "srt/server_args.py", "srt/utils/__init__.py", "lang/api.py"]
while not os.path.exists("/tmp/enough") or turns < 3:
    folder = os.open(site + "/sglang", os.O_RDONLY)  # never absent
    parts = []
    for name in names:
        try:
            fd = os.open(name, os.O_RDONLY, dir_fd=folder)
        except FileNotFoundError:
            parts.append("none")
            continue
        parts.append(hashlib.sha256(os.read(fd, 1 << 24)).hexdigest()[:12])
        os.close(fd)
    os.close(folder)
    spec = importlib.util.find_spec("sglang")
    assert spec is not None and spec.origin == site + "/sglang/__init__.py", spec
    if turns % 50 == 0:
        code = "import runpy; print(runpy.run_path(%r)['__version__'])" % (site + "/sglang/version.py")
        done = subprocess.run([sys.executable, "-I", "-B", "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    seen["-".join(parts)] = turns
    turns += 1
print(turns, *sorted(seen, key=seen.get))
"""


async def test_a_process_that_imports_from_the_tree_in_a_loop_only_ever_sees_a_whole_one(
    places: Fleet, tmp_path: Path
) -> None:
    source, target = pair(places)
    host = places["ct200"]
    host.write("/root/reader.py", READER)
    site = "/" + str(site_of(host, target.venv).relative_to(host.root))
    loop = f"rm -f /tmp/enough /root/read.txt; {target.venv}/bin/python -I -B /root/reader.py {site}"
    host.run(f"{loop} >/root/read.txt 2>&1 </dev/null & echo started")
    other = lay(places["ct129"], "other", STABLE)
    async with console(tmp_path, places, source, target, other) as one:
        running = YES.__class__(yes=True, allowed=frozenset({"running"}))
        for origin in (source, other, source):
            plan = await one.plan(origin, target)
            assert [need.code for need in plan.targets[0].needs] == ["running"], plan.targets[0].checks
            (run,) = await one.copy(plan, consent=running)
            assert run.state == "done", run.detail
    host.run("touch /tmp/enough")
    said = host.root / "root/read.txt"
    until_sync(lambda: said.read_text().strip(), 60, "the reader ends")
    turns, *trees = said.read_text().split()
    assert turns.isdigit(), said.read_text()
    assert int(turns) > 100
    assert len(trees) == 3, "the old one, and each of the two that came"
    host.run("rm -f /root/reader.py /root/read.txt /tmp/enough")


# ---- what dies on the way

MOMENTS = ("claiming", "sending", "checking", "swapping", "verifying")


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_console_leaves_a_whole_package(places: Fleet, tmp_path: Path, moment: str) -> None:
    source, target = pair(places)
    host = places["ct200"]
    old, new = content(host, target), content(places["kpro6"], source)
    config = configured(tmp_path, places, source, target)
    words = {
        "claiming": "taking the lock",
        "sending": "receiving",
        "checking": "checking every file",
        "swapping": "exchanging",
        "verifying": "verifying the package in its place",
    }[moment]
    process = copying_command(config, source, target)
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if words in line:
                break
        else:
            raise AssertionError(f"it ended before that: {said}")
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()
    until_sync(lambda: not host.agents(), 60, "no agent is left on the target")
    number = whole(host, target, old, new)
    assert left(host, target) == []
    # Nothing is written when it dies before the host has heard of it.
    assert journal(host, target)[-1:] in (
        [["done"]] if number else [["undone"], *([[]] * (moment == "claiming"))]
    )

    async def again() -> None:
        async with console(tmp_path, places, source, target) as one:
            await settled(one, host, source, target)

    asyncio.run(again())
    assert content(host, target) == new


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_host_that_loses_its_power_comes_back_with_a_whole_package(
    places: Fleet, tmp_path: Path, moment: str
) -> None:
    source, target = pair(places)
    host = places["ct200"]
    old, new = content(host, target), content(places["kpro6"], source)
    async with console(tmp_path, places, source, target) as one:
        plan = await one.plan(source, target)
        async with asyncio.TaskGroup() as tasks:
            reached = asyncio.Event()

            def stop() -> None:
                # At once: the rest of a copy may take less time than the power takes to be off.
                host.freeze()
                reached.set()

            strike = at(moment, stop, received=1 if moment == "sending" else 0)
            copying = tasks.create_task(one.copy(plan, strike))
            await reached.wait()
            await asyncio.to_thread(host.power_off)
            (run,) = await copying
        assert run.state == "unreachable", run
        before = whole(host, target, old, new) if moment != "swapping" else None
        await asyncio.to_thread(host.boot)
        await one.watch.until_link("ct200", "up")
        (again,) = await settled(one, host, source, target)
        assert bool(again.notes) == (moment != "claiming"), "what was found is said"
        assert before in (None, 0, 1)
    assert content(host, target) == new


@pytest.mark.parametrize("fault", ["cut", "freeze"])
async def test_a_link_that_dies_mid_stream_changes_nothing(places: Fleet, tmp_path: Path, fault: str) -> None:
    source, target = pair(places)
    other = lay(places["ct129"], "other", OLD)
    host = places["ct200"]
    old, new = content(host, target), content(places["kpro6"], source)
    async with console(tmp_path, places, source, target, other) as one:
        plan = await one.plan(source, target, other)
        do = host.cut if fault == "cut" else host.freeze

        def when_receiving(run: TargetRun) -> None:
            if run.side == target:
                strike(run)

        strike = at("sending", do, received=1)
        runs = await one.copy(plan, when_receiving)
        assert [run.state for run in runs] == ["unreachable", "done"], runs
        assert "nothing was changed" in runs[0].detail
        assert content(places["ct129"], other) == new
        host.mend() if fault == "cut" else host.thaw()
        await until(lambda: not left(host, target), 90, "the stage is gone by itself")
        assert whole(host, target, old) == 0
        await one.watch.until_link("ct200", "up")
        await settled(one, host, source, target)


async def test_a_disk_that_fills_up_meanwhile_changes_nothing(places: Fleet, tmp_path: Path) -> None:
    source = lay(places["kpro6"], "source", NEWEST)
    host = places["ct200"]
    host.run(f"mkdir -p {FOLDER}/target && mount -t tmpfs -o size=400m tmpfs {FOLDER}/target")
    venv = f"{FOLDER}/target"
    minor = site_of(host, venv).parent.name
    host.run(
        f"python3 -I -m venv --without-pip {venv} && cd {venv}/lib/{minor}/site-packages && "
        f"cp -a /root/venv_sglang/lib/{minor}/site-packages/sglang* . && "
        f"cp {FOLDER}/needs.pth . 2>/dev/null; true"
    )
    target = Side("ct200", venv)
    listing = (
        f"cd {venv}/lib/{minor}/site-packages && find sglang* -type f -not -path '*__pycache__*' -print0"
    )
    before = host.run(f"{listing} | sort -z | xargs -0 sha256sum")
    async with console(tmp_path, places, source, target) as one:
        plan = await one.plan(source, target)
        assert not plan.targets[0].failed, plan.targets[0].failed
        free = int(host.run(f"df --output=avail -B1 {venv} | tail -1"))
        host.run(f"head -c {free - (30 << 20)} /dev/zero > {venv}/ballast")
        (run,) = await one.copy(plan)
        assert run.state == "failed", run
        assert "the disk is full" in run.detail
        assert host.run(f"{listing} | sort -z | xargs -0 sha256sum") == before
        assert "stage" not in host.run(f"ls {venv}/.dflash-console")
        again = await one.plan(source, target)
        assert [check.name for check in again.targets[0].failed] == ["space"]


async def test_two_consoles_at_once_do_not_meet(places: Fleet, tmp_path: Path) -> None:
    source, target = pair(places)
    host = places["ct200"]
    async with console(tmp_path, places, source, target) as one:
        plan = await one.plan(source, target)
        async with asyncio.TaskGroup() as tasks:
            first, second = (tasks.create_task(one.copy(plan, by=by)) for by in (BY, "ana@desk"))
        runs = [first.result()[0], second.result()[0]]
    assert sorted(run.state for run in runs) == ["done", "refused"], runs
    winner, loser = sorted(runs, key=lambda run: run.state)
    by = BY if winner is runs[0] else "ana@desk"
    assert f"held by {by} since" in loser.detail or "plan again" in loser.detail
    assert content(host, target) == content(places["kpro6"], source)
    assert list(itertools.islice(reversed(journal(host, target)), 1)) == ["done"]


async def test_a_place_that_can_not_take_the_package_is_told_before_anything_is_done(
    places: Fleet, tmp_path: Path
) -> None:
    source = lay(places["ct129"], "source", STABLE)
    host = places["ct200"]
    mounted, read_only = lay(host, "mounted", OLD), lay(host, "read_only", OLD)
    site = "/" + str(site_of(host, mounted.venv).relative_to(host.root))
    host.run(f"mount --bind /root/venv_sglang{site.removeprefix(mounted.venv)}/sglang {site}/sglang")
    host.run(
        f"cd /; mount --bind {read_only.venv} {read_only.venv}; mount -o remount,ro,bind {read_only.venv}"
    )
    limits = {"small": "size=40m", "crowded": "size=400m,nr_inodes=300"}
    for name, limit in limits.items():
        venv = f"{FOLDER}/{name}"
        host.run(
            f"mkdir -p {venv}; mount -t tmpfs -o {limit} tmpfs {venv}; python3 -I -m venv --without-pip {venv}"
        )
    targets = [mounted, read_only, *(Side("ct200", f"{FOLDER}/{name}") for name in limits)]
    listing = f"find {FOLDER} -xdev -newer /tmp/mark"
    async with console(tmp_path, places, source, *targets) as one:
        host.run("touch /tmp/mark")
        plan = await one.plan(source, *targets)
        failed = [[check.name for check in target.failed] for target in plan.targets]
        assert failed == [["mount"], ["writable"], ["space"], ["inodes"]], plan.targets
        runs = await one.copy(plan)
        assert {run.state for run in runs} == {"refused"}
        assert "unmount it" in runs[0].detail
        assert host.run(listing) == "", "a plan writes nothing"
