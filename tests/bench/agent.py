"""What the agent costs the host that it runs on, beside what an operator would run there instead."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path

import pynvml

from tests.bench.table import Row
from tests.bench.usage import cpu_seconds, group_cpu_seconds, group_of, memory
from tests.hosts.fleet import Fleet
from tests.hosts.gpus import driver
from tests.hosts.host import AGENT_MARK, Host
from tests.hosts.layout import put
from tests.hosts.venvs import lay_venv, lay_wheel
from tests.hosts.watching import Watching, config_file, watching
from tests.waiting import until_sync
from tests.wheels import wheel

__all__ = ["measure_agent"]

SETTLE = 15.0
"""Seconds from the first whole picture until the measuring starts."""
MEASURE = 60.0
PEER_MEASURE = 20.0
UNITS = ("bench-server.service", "bench-idle.service", "bench-loop.service")

READ_ONCE = """\
import pynvml as n
n.nvmlInit()
for index in range(n.nvmlDeviceGetCount()):
    gpu = n.nvmlDeviceGetHandleByIndex(index)
    n.nvmlDeviceGetName(gpu), n.nvmlDeviceGetUtilizationRates(gpu), n.nvmlDeviceGetMemoryInfo(gpu)
    n.nvmlDeviceGetTemperature(gpu, 0), n.nvmlDeviceGetPowerUsage(gpu), n.nvmlDeviceGetEnforcedPowerLimit(gpu)
"""
PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,Result,NRestarts,MainPID,StateChangeTimestamp,NeedDaemonReload"
)
PEERS = {
    "systemctl show each second": f"systemctl show -p {PROPERTIES} -- {' '.join(UNITS)}",
    "python3 with pynvml each second": "python3 -S /root/peer/read_once.py",
}


def lay_bench(host: Host) -> None:
    """Eight GPUs, four venvs and three units, two of them up."""
    cards = driver(host)
    for index in range(8):
        cards.set(index, utilization=10 * index, memory_used=index << 33)
    for number, version in enumerate(("0.5.9", "0.5.13.post1", "0.5.23", None)):
        lay_venv(host, f"/root/bench-{number}")
        if version:
            lay_wheel(host, f"/root/bench-{number}", wheel(version))
    server = "/root/bench-1/bin/python3 -m http.server --bind 127.0.0.1 30000"
    for unit, start in zip(UNITS, (server, "/bin/sleep infinity", "/bin/false"), strict=True):
        put(host.root, f"/etc/systemd/system/{unit}", f"[Service]\nExecStart={start}\n")
    put(host.root, "/root/peer/read_once.py", READ_ONCE)
    put(host.root, "/root/peer/pynvml.py", Path(pynvml.__file__).read_text())
    host.run(f"systemctl daemon-reload; systemctl start --no-block {' '.join(UNITS)}")


async def measure_agent(fleet: Fleet) -> list[Row]:
    """CPU share and memory of the agent and its children at 1 Hz."""
    host = fleet["ct200"]
    await asyncio.to_thread(lay_bench, host)
    venvs = [f"/root/bench-{number}" for number in range(4)]
    tables: dict[str, dict[str, object]] = {"ct200": {"venvs": venvs, "units": list(UNITS)}}
    with tempfile.TemporaryDirectory() as folder:
        async with watching(config_file(Path(folder), fleet, tables)) as watch:
            await watch.until_whole("ct200")
            await asyncio.sleep(SETTLE)
            (agent,) = host.agents()
            group = group_of(agent.pid)
            before, sshd_before = group_cpu_seconds(group), cpu_seconds(_sshds(host))
            samples = watch.samples["ct200"]
            await asyncio.sleep(MEASURE)
            spent = group_cpu_seconds(group) - before
            sshd = cpu_seconds(_sshds(host)) - sshd_before
            ours = [process.pid for process in host.processes() if AGENT_MARK in process.command]
            resident, split = memory(ours)
            count = watch.samples["ct200"] - samples
            print(
                f"agent: {count} samples in {MEASURE:.0f} s, {len(ours)} processes, {venv_count(watch)} venvs"
            )
            print(f"agent: its sshd spent {100 * sshd / MEASURE:.2f} % of a core beside it")
    peers = {what: await asyncio.to_thread(_peer, host, command) for what, command in PEERS.items()}
    both = sum(peers.values())
    for what, share in peers.items():
        print(f"peer: {what}: {share:.2f} % of a core")
    share = 100 * (spent - sshd) / MEASURE
    return [
        Row("agent CPU, 8 GPUs, 4 venvs, 3 units", share, "% of a core", 0.5, _PEER, both),
        Row("agent memory, shared pages split up", split, "MB", 40),
        Row("agent memory, all processes summed up", resident, "MB", 40),
    ]


def venv_count(watch: Watching) -> int:
    """How many venvs the agent watches: those of the bench and those that it found."""
    snapshot = watch.view("ct200").snapshot
    return len(snapshot.venvs) if snapshot else 0


_PEER = "systemctl show + python3 with pynvml, once a second"


def _sshds(host: Host) -> list[int]:
    return [process.pid for process in host.processes() if process.command.startswith("sshd: root")]


def _peer(host: Host, command: str) -> float:
    """The share of a core, in percent, that a loop over a command spends on the host."""
    script = f"while :; do {command} >/dev/null; sleep 1; done; : peer-loop"
    options = ["-F", str(host.ssh_config)]
    with subprocess.Popen(["ssh", *options, host.name, script], stdin=subprocess.DEVNULL) as ssh:
        try:
            loop = until_sync(lambda: _loops(host), 30, "the peer's loop runs")[0]
            group = group_of(loop)
            before = group_cpu_seconds(group)
            time.sleep(PEER_MEASURE)
            return 100 * (group_cpu_seconds(group) - before) / PEER_MEASURE
        finally:
            ssh.kill()
            for pid in _loops(host):
                subprocess.run(["kill", str(pid)], check=False)


def _loops(host: Host) -> list[int]:
    return [process.pid for process in host.processes() if "peer-loop" in process.command]
