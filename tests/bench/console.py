"""What the console costs the operator's machine: how soon it shows something, what many hosts cost."""

from __future__ import annotations

import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import tomli_w

from dflash_console.model import PROTOCOL, Sample
from tests.bench.table import Row
from tests.bench.terminal import Terminal
from tests.hosts.commands import sh
from tests.hosts.fleet import Fleet
from tests.hosts.layout import put
from tests.hosts.watching import config_file, watching
from tests.waiting import until_sync

__all__ = ["measure_many", "measure_start"]

STARTS = 5
MEASURE = 30.0
AIMS = {2: 2.0, 64: 6.0, 256: 15.0}
"""Hosts to the most that they may cost, in percent of a core."""
LAG_AIM = 100.0
REPLAY = "/root/replay"
BARE = "asyncssh and json alone, nothing shown"


def measure_start(fleet: Fleet) -> list[Row]:
    """Seconds from the start of the process to the first frame, and to two panels with all sections."""
    tables: dict[str, dict[str, object]] = {
        "ct129": {"venvs": ["/root/ml-env"], "units": ["sglang-dflash.service"]},
        "ct200": {"venvs": ["/root/venv_sglang"], "units": ["dflash-absent.service"]},
    }
    whole = (
        "RTX A6000",
        "/root/ml-env",
        "sglang-dflash",
        "RTX PRO 6000",
        "/root/venv_sglang",
        "dflash-absent",
    )
    with tempfile.TemporaryDirectory() as folder:
        config = config_file(Path(folder), fleet, tables)
        command = [str(Path(sys.executable).with_name("dflash-console")), "--config", str(config)]
        firsts, wholes = [], []
        for _ in range(STARTS):
            with Terminal(command, columns=200, rows=50) as terminal:
                firsts.append(terminal.wait_for("ct129", "ct200"))
                wholes.append(terminal.wait_for(*whole))
    names = "start to first frame", "start to two full panels"
    return [
        Row(names[0], statistics.median(firsts), "s", 0.6, "python -c 'import textual.app'", _importing()),
        Row(
            names[1],
            statistics.median(wholes),
            "s",
            1.5,
            "ssh to both at once for systemctl show",
            _by_ssh(fleet),
        ),
    ]


def _importing() -> float:
    began = time.perf_counter()
    for _ in range(STARTS):
        subprocess.run([sys.executable, "-c", "import textual.app"], check=True)
    return (time.perf_counter() - began) / STARTS


def _by_ssh(fleet: Fleet) -> float:
    began = time.perf_counter()
    for _ in range(STARTS):
        running = [
            subprocess.Popen(
                ["ssh", "-F", str(fleet.ssh_config), name, "systemctl show ssh.service"],
                stdout=subprocess.DEVNULL,
            )
            for name in ("ct129", "ct200")
        ]
        for each in running:
            each.wait()
    return (time.perf_counter() - began) / STARTS


async def lay_replay(fleet: Fleet) -> None:
    """Records what a real agent sends on ct200 and puts it on every host to be played."""
    with tempfile.TemporaryDirectory() as folder:
        async with watching(config_file(Path(folder), fleet, {"ct200": {}})) as watch:
            await watch.until_whole("ct200")
            snapshot = watch.view("ct200").snapshot
    assert snapshot is not None
    parts = {name: getattr(snapshot, name) for name in ("host", "gpu", "venvs", "units", "paths")}
    first = _frame(Sample(at=0.0, **parts))
    tick = _frame(Sample(at=0.0, host=snapshot.host, gpu=snapshot.gpu))
    recorded = {"protocol": PROTOCOL, "first": first, "tick": tick}
    print(f"replayed: {len(first)} bytes at first, then {len(tick)} bytes a second a host")
    script = Path(__file__).with_name("replay.py").read_text()
    for host in fleet:
        put(host.root, REPLAY, f"#!/usr/bin/python3 -ISB\n{script}", 0o755)
        put(host.root, f"{REPLAY}.json", json.dumps(recorded))


def _frame(sample: Sample) -> str:
    """A sample's JSON, with marks where each played host differs."""
    text = msgspec.json.encode(sample).decode()
    return text.replace('"at":0.0', '"at":"AT"', 1).replace("GPU-b6000", "GPU-SERIAL-")


async def measure_many(fleet: Fleet) -> list[Row]:
    """CPU share of the whole console and the worst lag of its loop, at 1 Hz, painted at 200x50."""
    await lay_replay(fleet)
    return [
        row for count, aim in AIMS.items() for row in await asyncio.to_thread(_measure, fleet, count, aim)
    ]


def _measure(fleet: Fleet, count: int, aim: float) -> list[Row]:
    names = [host.name for host in fleet]
    tables = {
        f"host{number:03}": {"address": names[number % len(names)], "python": REPLAY}
        for number in range(count)
    }
    with tempfile.TemporaryDirectory() as folder:
        config, report = Path(folder) / "config.toml", Path(folder) / "report"
        config.write_text(tomli_w.dumps({"console": {"ssh_config": str(fleet.ssh_config)}, "hosts": tables}))
        command = [sys.executable, "-m", "tests.bench.metered", str(config), str(report)]
        with Terminal(command, columns=200, rows=50) as terminal:
            until_sync(lambda: _all_up(fleet, terminal, count), 180, f"{count} hosts are up")
            terminal.drain(10)
            before = _ask(terminal, report)
            terminal.drain(MEASURE)
            after = _ask(terminal, report)
    print(
        f"{count} hosts: the worst turn of the loop took {1000 * after['worst_cpu']:.0f} ms of CPU time itself"
    )
    bare = _bare(fleet, count)
    share = 100 * (after["cpu"] - before["cpu"]) / (after["at"] - before["at"])
    return [
        Row(f"console CPU, {count} hosts at 1 Hz", share, "% of a core", aim, BARE, bare),
        Row(f"console worst loop lag, {count} hosts", 1000 * after["worst"], "ms", LAG_AIM),
    ]


def _bare(fleet: Fleet, count: int) -> float:
    """The same hosts received and decoded by asyncssh and json, in percent of a core."""
    words = [fleet.slot.folder, count, MEASURE, REPLAY, *(host.address for host in fleet)]
    return float(sh(sys.executable, "-m", "tests.bench.bare", *words, timeout=300))


def _all_up(fleet: Fleet, terminal: Terminal, count: int) -> bool:
    terminal.drain(1)
    up = sum(REPLAY in process.command for host in fleet for process in host.processes())
    assert up >= count, f"{up} of {count}"
    return True


def _ask(terminal: Terminal, report: Path) -> dict[str, float]:
    report.unlink(missing_ok=True)
    terminal.process.send_signal(signal.SIGUSR1)
    while not report.exists():
        terminal.drain(0.05)
    answer: dict[str, float] = json.loads(report.read_text())
    return answer
