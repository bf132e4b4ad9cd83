"""What a verification takes, beside what one types over SSH for the same answer."""

from __future__ import annotations

import asyncio
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dflash_console.config import load
from dflash_console.operations.orders import LIMITS, Order, order
from dflash_console.operations.verify import prove
from dflash_console.verdict import Verdict
from tests.bench.pyinfra import VERSION, ask_by_pyinfra
from tests.bench.table import Row
from tests.bench.usage import group_cpu_seconds, group_of
from tests.hosts.fleet import Fleet
from tests.hosts.host import Host
from tests.hosts.proofs import NEWEST, STABLE, lay_proof, remove_cases
from tests.hosts.venvs import site_packages
from tests.hosts.watching import Watching, config_file, watching

__all__ = ["measure_verify"]

TIMES, TIMES_MANY = 7, 3
"""Runs of which the median is taken."""
MANY = 32
ONE = "ct200"
AIM_FILES = 50.0
"""Milliseconds, the network's not counted; where files have changed, all have to be read, as by sha256sum."""
WHOLE_COMMAND = 1.6
"""What the whole command may take of that, with its start, its connections and its agents."""
SETTLE = 3.0
"""Seconds after a change in which the agent keeps nothing."""
MODULES = ("dflash_worker", "dflash_info", "dflash_utils")
TYPED = """\
import importlib.util
for name in ("sglang", *("sglang.srt.speculative." + name for name in %r)):
    print(importlib.util.find_spec(name).origin)
"""
BY_HAND = "ssh host python - <<PY, find_spec by hand"
HASHED = "sha256sum of the same files, there"


async def measure_verify(fleet: Fleet) -> list[Row]:
    """Milliseconds of the files' part, seconds of a verification of one host and of many."""
    try:
        for host in fleet:
            venv = lay_proof(host, "bench")
        newest = lay_proof(fleet[ONE], "bench-newest", NEWEST)
        with tempfile.TemporaryDirectory() as folder:
            tables: dict[str, dict[str, object]] = {ONE: {"venvs": [venv], "units": []}}
            config = config_file(Path(folder), fleet, tables)
            async with watching(config) as watch:
                await watch.until_whole(ONE)
                view = watch.view(ONE)
                stable, other = (
                    order(view, load(config, {}), path, (), is_deep=False) for path in (venv, newest)
                )
                rows = await _files(watch, fleet[ONE], stable, STABLE)
                rows += await _files(watch, fleet[ONE], other, NEWEST)
                rows += await _one(watch, fleet[ONE], stable, config)
            return rows + await _many(fleet, venv)
    except pytest.skip.Exception as why:
        print(f"verify: not measured: {why}")
        return []
    finally:
        remove_cases(fleet)


async def _median(times: int, once: Callable[[], Awaitable[float]]) -> float:
    return statistics.median([await once() for _ in range(times)])


# ---- the part `files`


async def _files(watch: Watching, host: Host, what: Order, version: str) -> list[Row]:
    tree = f"{site_packages(what.venv)}/sglang"

    async def ask(do: str, **fields: object) -> float:
        began = time.perf_counter()
        await watch.fleet.request(host.name, do, LIMITS["files"], **fields)
        return 1000 * (time.perf_counter() - began)

    async def files() -> float:
        return await ask("verify", part="files", limit=LIMITS["files"], **what.fields)

    async def after_a_change() -> float:
        await asyncio.to_thread(host.run, f"touch {tree}/__init__.py")
        return await files()

    network = await _median(TIMES, lambda: ask("ping"))
    first = await _median(TIMES, after_a_change) - network
    await asyncio.sleep(SETTLE)
    await files()
    again = await _median(TIMES, files) - network
    hashed = statistics.median([await asyncio.to_thread(_hashed, host, tree) for _ in range(TIMES)])
    print(f"verify: the network's share that is taken off: {network:.2f} ms")
    return [
        Row(f"files of {version}, read for the first time", first, "ms", hashed, HASHED, hashed),
        Row(f"files of {version}, seen before", again, "ms", AIM_FILES, HASHED, hashed),
    ]


def _hashed(host: Host, tree: str) -> float:
    find = f"find {tree} -type f -print0 | xargs -0 sha256sum >/dev/null"
    return 1000 * float(host.run(f"bash -c 'TIMEFORMAT=%R; time {{ {find}; }}' 2>&1"))


# ---- one host


@dataclass(frozen=True)
class Took:
    """Seconds of one verification on a connected host: to the first checks, and to the last."""

    first: float
    whole: float


async def _proved(watch: Watching, what: Order) -> Took:
    began = time.perf_counter()
    firsts: list[float] = []

    def changed(verdict: Verdict) -> None:
        if verdict.checks and not firsts:
            firsts.append(time.perf_counter() - began)

    verdict = await prove(watch.fleet, what, changed)
    whole = time.perf_counter() - began
    if not verdict.is_ready:
        raise RuntimeError(f"{what.host} is not ready: {verdict.reasons}")
    return Took(firsts[0], whole)


async def _one(watch: Watching, host: Host, what: Order, config: Path) -> list[Row]:
    took: list[Took] = []
    typed: list[float] = []
    commands: list[float] = []
    for _ in range(TIMES):
        took.append(await _proved(watch, what))
        typed.append(await asyncio.to_thread(_typed, host, what.venv))
        commands.append(await asyncio.to_thread(_command, config))
    by_hand = statistics.median(typed)
    first = statistics.median(each.first for each in took)
    whole = statistics.median(each.whole for each in took)
    return [
        Row("`v` on a connected host, first answer", first, "s", round(by_hand / 5, 3), BY_HAND, by_hand),
        Row("`v` on a connected host, whole", whole, "s", round(by_hand, 3), BY_HAND, by_hand),
        Row(
            "`dflash-console verify`, whole command",
            statistics.median(commands),
            "s",
            round(WHOLE_COMMAND * by_hand, 3),
            BY_HAND,
            by_hand,
        ),
    ]


def _typed(host: Host, venv: str) -> float:
    began = time.perf_counter()
    subprocess.run(
        ["ssh", "-F", str(host.ssh_config), host.name, f"{venv}/bin/python -"],
        input=TYPED % (MODULES,),
        text=True,
        capture_output=True,
        check=True,
    )
    return time.perf_counter() - began


def _command(config: Path) -> float:
    began = time.perf_counter()
    program = Path(sys.executable).with_name("dflash-console")
    subprocess.run([program, "--config", config, "verify", "--json"], capture_output=True, check=True)
    return time.perf_counter() - began


# ---- many hosts


async def _many(fleet: Fleet, venv: str) -> list[Row]:
    """The same environments under many names, each with a connection and an agent of its own."""
    cores = os.cpu_count() or 1
    names = [host.name for host in fleet]
    hosts = {f"host{number:02}": names[number % len(names)] for number in range(MANY)}
    tables: dict[str, dict[str, object]] = {
        name: {"address": alias, "venvs": [venv], "units": []} for name, alias in hosts.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        config = config_file(Path(folder), fleet, tables)
        async with watching(config) as watch:
            await watch.until_whole(*hosts)
            orders = [order(watch.view(name), load(config, {}), venv, (), is_deep=False) for name in hosts]
            together = [await _together(fleet, watch, orders) for _ in range(TIMES_MANY)]
            alone = [await _together(fleet, watch, orders[:1]) for _ in range(TIMES)]
        commands, peers = [], []
        script = f"{venv}/bin/python -c {shlex.quote(TYPED % (MODULES,))}"
        for _ in range(TIMES_MANY):
            commands.append(await asyncio.to_thread(_command, config))
            peers.append(await asyncio.to_thread(ask_by_pyinfra, fleet, hosts, script))
    one, cpu = (statistics.median(column) for column in zip(*alone, strict=True))
    took, spent = (statistics.median(column) for column in zip(*together, strict=True))
    bound = 2 * one + spent / cores
    print(
        f"verify: one of {MANY} hosts alone takes {one:.2f} s and {cpu:.2f} s of CPU time on it, so {cores} cores "
        f"that all share can't be faster than {MANY} x {cpu:.2f} / {cores} = {MANY * cpu / cores:.1f} s. "
        f"All together they spent {spent:.1f} s of CPU time: the aim is 2 x {one:.2f} + {spent:.1f} / {cores} "
        f"= {bound:.1f} s"
    )
    peer = f"pyinfra {VERSION} exec of find_spec by hand"
    pyinfra = statistics.median(peers)
    return [
        Row(f"`v` on {MANY} connected hosts", took, "s", round(bound, 1), peer, pyinfra),
        Row(
            f"`dflash-console verify` of {MANY} hosts",
            statistics.median(commands),
            "s",
            round(WHOLE_COMMAND * bound, 1),
            peer,
            pyinfra,
        ),
    ]


async def _together(fleet: Fleet, watch: Watching, orders: Sequence[Order]) -> tuple[float, float]:
    """Seconds until all are proved, side by side, and the seconds of CPU time that the hosts spent meanwhile."""
    groups = {group_of(agent.pid) for host in fleet for agent in host.agents()}
    before, began = sum(map(group_cpu_seconds, groups)), time.perf_counter()
    await asyncio.gather(*(_proved(watch, what) for what in orders))
    return time.perf_counter() - began, sum(map(group_cpu_seconds, groups)) - before
