"""Packages to be copied between real hosts, and what a copy makes of them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dflash_console.config import Config, load
from dflash_console.copies import Consent, CopyPlan, Side, TargetRun
from dflash_console.operations.copying import copy
from dflash_console.operations.planning import make_plan
from tests.hosts.fleet import Fleet
from tests.hosts.host import Host
from tests.hosts.proofs import FOLDER, NEWEST, OLD, site_of
from tests.hosts.venvs import lay_venv, lay_wheel, reach_needs
from tests.hosts.watching import Watching, config_file, watching
from tests.wheels import wheel

__all__ = [
    "BY",
    "YES",
    "Console",
    "at",
    "beside",
    "configured",
    "console",
    "content",
    "copying_command",
    "journal",
    "kill_copying",
    "lay",
    "left",
    "outcome",
    "pair",
    "settled",
    "whole",
]

BY = "kim@laptop"
YES = Consent(yes=True)


def lay(host: Host, name: str, version: str | None) -> Side:
    """An environment with a real tree, which reaches what sglang needs."""
    venv = f"{FOLDER}/{name}"
    if not (host.root / venv.lstrip("/")).exists():
        lay_venv(host, venv)
        reach_needs(host, venv)
    if version is not None:
        lay_wheel(host, venv, wheel(version))
    return Side(host.name, venv)


def pair(hosts: Fleet, old: str | None = OLD, new: str = NEWEST) -> tuple[Side, Side]:
    """A new tree on one host, an older one on another."""
    return lay(hosts["kpro6"], "source", new), lay(hosts["ct200"], "target", old)


def whole(host: Host, side: Side, *trees: dict[str, str]) -> int:
    """Which of the trees is there; fails when it is none of them, or when anything was left lying."""
    found = content(host, side)
    for number, tree in enumerate(trees):
        if found == tree:
            return number
    differing = {name for tree in trees for name in found.keys() ^ tree.keys()}
    raise AssertionError(
        f"neither the old nor the new tree: {len(found)} files, odd {sorted(differing)[:10]}"
    )


def content(host: Host, side: Side) -> dict[str, str]:
    """The package and its dist-info as they are on the host's disk: each file's hash, without bytecode."""
    site = site_of(host, side.venv)
    found = {}
    for top in (*site.glob("sglang"), *site.glob("sglang-*.dist-info")):
        for folder, names, files in os.walk(top):
            names[:] = [name for name in names if name != "__pycache__"]
            for name in files:
                path = Path(folder, name)
                found[str(path.relative_to(site))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def beside(host: Host, side: Side) -> list[str]:
    """All names in site-packages: nothing of ours may be among them."""
    return sorted(path.name for path in site_of(host, side.venv).iterdir())


def left(host: Host, side: Side) -> list[str]:
    """What a copy has left in its own folder, apart from what is meant to stay."""
    folder = host.root / side.venv.lstrip("/") / ".dflash-console"
    kept = {"lock", "journal.jsonl", "backups", "provenance.json", "manifest.json"}
    return sorted(path.name for path in folder.iterdir() if path.name not in kept) if folder.exists() else []


def journal(host: Host, side: Side) -> list[str]:
    """The states in a target's journal."""
    path = host.root / side.venv.lstrip("/") / ".dflash-console/journal.jsonl"
    return [json.loads(line)["state"] for line in path.read_text().splitlines()] if path.exists() else []


class Console:
    """A console that copies between real hosts."""

    def __init__(self, watch: Watching, config: Config) -> None:
        self.watch = watch
        self.config = config

    async def plan(self, source: Side, *targets: Side) -> CopyPlan:
        """A plan, once all hosts have told what they are."""
        await self.watch.until_whole(*dict.fromkeys((source.host, *(side.host for side in targets))))
        return await make_plan(self.watch.fleet, self.config, source, targets)

    async def copy(
        self,
        plan: CopyPlan,
        changed: Callable[[TargetRun], None] = lambda run: None,
        consent: Consent = YES,
        by: str = BY,
    ) -> tuple[TargetRun, ...]:
        """Carries it out."""
        return await copy(self.watch.fleet, self.config, plan, consent, changed, read_only=False, by=by)

    async def copied(self, source: Side, *targets: Side) -> tuple[TargetRun, ...]:
        """Both; all must go well."""
        plan = await self.plan(source, *targets)
        assert not plan.problem, plan.problem
        runs = await self.copy(plan)
        assert [run.state for run in runs] == ["done"] * len(targets), [run.detail for run in runs]
        return runs


def at(state: str, do: Callable[[], object], *, received: int = 0) -> Callable[[TargetRun], None]:
    """Does something once, when a run comes to a state and has received so many bytes."""
    is_done = False

    def changed(run: TargetRun) -> None:
        nonlocal is_done
        if not is_done and run.state == state and run.bytes >= received:
            is_done = True
            do()

    return changed


async def settled(one: Console, host: Host, source: Side, target: Side) -> tuple[TargetRun, ...]:
    """A copy after whatever happened: it goes on as if nothing had, and clears up."""
    runs = await one.copied(source, target)
    assert left(host, target) == []
    # One that finds the same package there already leaves it alone.
    assert journal(host, target)[-1] == ("done" if runs[0].swap else "undone")
    return runs


@asynccontextmanager
async def console(
    folder: Path, fleet: Fleet, *sides: Side, units: Sequence[str] = ()
) -> AsyncIterator[Console]:
    """A console that watches the hosts of these environments."""
    path = configured(folder, fleet, *sides, units=units)
    async with watching(path) as watch:
        yield Console(watch, load(path, {}))


def kill_copying(host: Host, watchers: set[int]) -> int:
    """Kills the copy processes of a host with all that they started: its agents but those that were there before;
    how many these were."""
    processes = host.processes()
    ours = [process.pid for process in host.agents() if process.pid not in watchers]
    known = set(ours)
    while more := {process.pid for process in processes if process.parent in known} - known:
        known |= more
    for pid in known:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(ours)


def configured(folder: Path, fleet: Fleet, *sides: Side, units: Sequence[str] = ()) -> Path:
    """A config with these environments, and these units of all hosts."""
    tables: dict[str, dict[str, object]] = {}
    for side in sides:
        table = tables.setdefault(side.host, {"venvs": [], "units": list(units), "role": "target"})
        venvs = table["venvs"]
        assert isinstance(venvs, list)
        venvs.append(side.venv)
    return config_file(folder, fleet, tables)


def copying_command(
    config: Path, source: Side, *targets: Side, words: tuple[str, ...] = ("--yes",)
) -> subprocess.Popen[str]:
    """`dflash-console copy`, started; its stderr tells how far it is."""
    program = Path(sys.executable).with_name("dflash-console")
    command = [
        str(program),
        "--config",
        str(config),
        "copy",
        str(source),
        *map(str, targets),
        *words,
        "--json",
    ]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )


def outcome(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]], str]:
    """How such a command ended: exit code, results, stderr."""
    out, errors = process.communicate(timeout=280)
    assert out.strip(), f"exit {process.returncode}, nothing on stdout: {errors}"
    return process.returncode, json.loads(out)["results"], errors
