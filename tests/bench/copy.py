"""What a copy takes with all its checks, beside rsync, scp and tar that check nothing: same trees, same hosts."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.bench.table import Row
from tests.hosts.commands import sh
from tests.hosts.fleet import Fleet
from tests.hosts.proofs import FOLDER, NEWEST, OLD, lay_proof, remove_cases, site_of
from tests.hosts.venvs import lay_wheel, site_packages
from tests.hosts.watching import config_file
from tests.wheels import wheel

__all__ = ["measure_copy"]

TIMES, TIMES_MANY = 3, 1
"""Runs of which the median is taken; each figure and its peers in turn within a run."""
SOURCE, TARGET = "ct129", "ct200"
SPREAD = ("ct200", "kpro6", "ct129")
"""Hosts that the many targets are on: on none more than are changed there side by side, of which the source takes
one."""
MANY = 8
OF_RSYNC, OF_SCP, OF_TAR = 0.8, 1 / 3, 2.0
"""What a cold copy may take of the time that the peers take."""
OF_CHECKSUM, OF_ONE_BY_ONE = 0.5, 0.5
MEMORY = 150.0
"""Megabytes of the console's process, whatever the tree's size."""
CHANGED = ("utils.py", "version.py", "srt/server_args.py")
PEER = f"{FOLDER}/peer"
RSYNC = "rsync -a through this machine"


class Took(NamedTuple):
    """One run of the command."""

    seconds: float
    megabytes: float
    """The most that its process had in memory."""


def measure_copy(fleet: Fleet) -> list[Row]:
    """Seconds of a cold copy, of one with three changed files and of one to many targets; memory."""
    try:
        with tempfile.TemporaryDirectory(prefix="bench-copy-") as folder:
            return _Bench(fleet, Path(folder)).rows()
    except pytest.skip.Exception as why:
        print(f"copy: not measured: {why}")
        return []
    finally:
        remove_cases(fleet)


@dataclass
class _Bench:
    fleet: Fleet
    folder: Path

    def __post_init__(self) -> None:
        self.source = lay_proof(self.fleet[SOURCE], "bench-source", NEWEST)
        self.venvs = {
            f"target{number}": (self.fleet[SPREAD[number % len(SPREAD)]], f"bench-{number}")
            for number in range(MANY)
        }
        tables: dict[str, dict[str, object]] = {
            SOURCE: {"role": "source", "package_venv": self.source, "units": []}
        }
        for name, (host, case) in self.venvs.items():
            venv = lay_proof(host, case, OLD)
            tables[name] = {"address": host.name, "role": "target", "package_venv": venv, "units": []}
        self.config = config_file(self.folder, self.fleet, tables)
        self.ssh = ["ssh", "-F", str(self.fleet.ssh_config)]
        self.here = self.folder / "peers"
        self.tree = f"{site_packages(self.source)}/sglang"

    def rows(self) -> list[Row]:
        """All figures; every run of the command must end well, with the package verified in its place."""
        files = int(self.fleet[SOURCE].run(f"find {self.tree} -type f | wc -l"))
        size = int(self.fleet[SOURCE].run(f"du -sb {self.tree}").split()[0])
        print(f"copy: sglang {NEWEST}, {files} files, {size / 1e6:.0f} MB")
        self._copy("target0")  # both agents' bytecode and the page cache are warm for all that follow
        empty, over, rsyncs, scps, tars, again, checksums = (_Column() for _ in range(7))
        for _ in range(TIMES):
            rsyncs.add(self._timed(self._rsync))
            scps.add(self._timed(self._scp))
            tars.add(self._timed(self._tar))
            self._reset("target0")
            empty.add(self._copy("target0").seconds)
            self._reset("target0", OLD)
            over.add(self._copy("target0").seconds)
            self._timed(self._rsync)
            self._change()
            again.add(self._copy("target0").seconds)
            checksums.add(self._timed(lambda: self._rsync("--checksum"), is_fresh=False))
        return [
            _cold("onto none", empty, rsyncs, OF_RSYNC, RSYNC),
            _cold("onto none", empty, scps, OF_SCP, "scp -r through this machine"),
            _cold("onto none", empty, tars, OF_TAR, "ssh tar | ssh tar"),
            _cold(f"over {OLD}", over, rsyncs, OF_RSYNC, RSYNC),
            Row(
                "`copy` again, 3 files changed",
                again.median,
                "s",
                round(OF_CHECKSUM * checksums.median, 2),
                "rsync -a --checksum through this machine",
                checksums.median,
            ),
            *self._many(),
        ]

    def _many(self) -> list[Row]:
        took, memory, peers = _Column(), _Column(), _Column()
        for _ in range(TIMES_MANY):
            for name in self.venvs:
                self._reset(name)
            run = self._copy(*self.venvs)
            took.add(run.seconds)
            memory.add(run.megabytes)
            peers.add(self._timed(self._rsyncs))
        return [
            Row(
                f"`copy` to {MANY} targets",
                took.median,
                "s",
                round(OF_ONE_BY_ONE * peers.median, 2),
                f"{MANY} x rsync -a from this machine, one after another, fetched once",
                peers.median,
            ),
            Row(f"memory of `copy` to {MANY} targets, at most", memory.most, "MB", MEMORY),
        ]

    # ---- the command

    def _copy(self, *targets: str) -> Took:
        program = Path(sys.executable).with_name("dflash-console")
        command: list[str | Path] = [program, "--config", self.config, "copy", SOURCE, *targets]
        # The hosts' root is an overlay, where a swap may take two steps.
        command += ["--yes", "--allow", "warned", "--json"]
        with (self.folder / "out").open("w+b") as out, (self.folder / "err").open("w+b") as err:
            began = time.perf_counter()
            with subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL) as process:
                most = 0.0
                while process.poll() is None:
                    most = max(most, _high_water(process.pid))
                    time.sleep(0.01)
            seconds = time.perf_counter() - began
            out.seek(0)
            err.seek(0)
            told, words = out.read(), err.read().decode()
        if process.returncode:
            raise RuntimeError(f"copy: exit {process.returncode}: {words[-2000:]} {told[-2000:].decode()}")
        results: Sequence[dict[str, Any]] = json.loads(told)["results"]
        for result in results:
            if result["state"] != "done" or not result["verify"]["ready"]:
                raise RuntimeError(f"copy: {result}")
        return Took(seconds, most)

    def _reset(self, name: str, version: str = "") -> None:
        """The environment without the package, or with one of another version, as if nothing had been copied."""
        host, case = self.venvs[name]
        venv = f"{FOLDER}/{case}"
        host.run(f"rm -rf {site_packages(venv)}/sglang* {venv}/.dflash-console")
        if version:
            lay_wheel(host, venv, wheel(version))

    def _change(self) -> None:
        for name in CHANGED:
            with (site_of(self.fleet[SOURCE], self.source) / "sglang" / name).open("a") as file:
                file.write(f"# {time.time_ns()}\n")

    # ---- the peers

    def _timed(self, peer: Callable[[], None], *, is_fresh: bool = True) -> float:
        """Seconds of a peer, onto nothing if it `is_fresh`."""
        if is_fresh:
            sh("rm", "-rf", self.here)
            self.here.mkdir()
            for name in SPREAD:
                self.fleet[name].run(f"rm -rf {PEER}*; mkdir -p {PEER}")
        began = time.perf_counter()
        peer()
        return time.perf_counter() - began

    def _rsync(self, *more: str) -> None:
        words = ["rsync", "-a", *more, "-e", " ".join(self.ssh)]
        sh(*words, f"{SOURCE}:{self.tree}", f"{self.here}/", timeout=600)
        sh(*words, self.here / "sglang", f"{TARGET}:{PEER}/", timeout=600)

    def _scp(self) -> None:
        words = ["scp", "-F", self.fleet.ssh_config, "-q", "-r", "-p"]
        sh(*words, f"{SOURCE}:{self.tree}", f"{self.here}/", timeout=600)
        sh(*words, self.here / "sglang", f"{TARGET}:{PEER}/", timeout=600)

    def _tar(self) -> None:
        site = self.tree.removesuffix("/sglang")
        send = [*self.ssh, SOURCE, f"tar -C {site} -cf - sglang"]
        take = [*self.ssh, TARGET, f"tar -C {PEER} -xf -"]
        with subprocess.Popen(send, stdout=subprocess.PIPE) as sending:
            subprocess.run(take, stdin=sending.stdout, check=True, timeout=600)
        if sending.returncode:
            raise RuntimeError(f"tar: exit {sending.returncode}")

    def _rsyncs(self) -> None:
        words = ["rsync", "-a", "-e", " ".join(self.ssh)]
        sh(*words, f"{SOURCE}:{self.tree}", f"{self.here}/", timeout=600)
        for number, (host, _) in enumerate(self.venvs.values()):
            sh(*words, self.here / "sglang", f"{host.name}:{PEER}-{number}/", timeout=600)


class _Column:
    def __init__(self) -> None:
        self._figures: list[float] = []

    def add(self, figure: float) -> None:
        self._figures.append(figure)

    @property
    def median(self) -> float:
        return statistics.median(self._figures)

    @property
    def most(self) -> float:
        return max(self._figures)


def _cold(what: str, ours: _Column, peer: _Column, part: float, words: str) -> Row:
    name = f"`copy` of {NEWEST} {what}, all checks"
    return Row(name, ours.median, "s", round(part * peer.median, 2), words, peer.median)


def _high_water(pid: int) -> float:
    """The most megabytes that a process had in memory so far; 0 for one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM:")), 0.0)
