"""Real copy processes on this machine, each as a host of its own; what verifies answers as it is told."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sys
import venv
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from dflash_console.config import Config, ConsoleConfig, HostConfig, PackageConfig
from dflash_console.copies import Consent, CopyPlan, Side, TargetRun
from dflash_console.errors import LinkError
from dflash_console.fleet import HostView
from dflash_console.link import Channel
from dflash_console.link.local import LocalConnection
from dflash_console.model import LinkStatus, Venv
from dflash_console.operations.copies import Copies
from dflash_console.operations.copying import copy
from dflash_console.operations.planning import make_plan
from dflash_console.operations.verdicts import Verdicts
from tests import pictures
from tests.operations.fleet import StubFleet

__all__ = [
    "BY",
    "YES",
    "LocalFleet",
    "content",
    "copied",
    "interrupt",
    "journal",
    "lay_package",
    "left",
    "running",
    "show",
    "sides",
    "site_of",
    "spy",
    "states",
    "when",
]

BY = "kim@laptop"
YES = Consent(yes=True)
MINOR = "{}.{}".format(*sys.version_info[:2])


class LocalFleet(StubFleet):
    """Hosts whose copy processes are real and run here. `channels` are all that were started."""

    def __init__(self, folder: Path, *names: str) -> None:
        super().__init__(*names, picture=pictures.snapshot())
        self.folder = folder
        self.channels: list[Channel] = []
        self.refreshed: list[str] = []
        self.refusals: dict[str, LinkError] = {}
        self.on_channel: Callable[[Channel], None] = lambda channel: None
        self.config = Config(
            ConsoleConfig(),
            PackageConfig(modules=["sglang.srt.dflash"]),
            {name: HostConfig(name, local=True, role="target") for name in names},
        )
        self.answers["metadata"] = b'{"checks":[],"facts":{"metadata":[]}}'

    def views(self) -> Sequence[HostView]:
        return [
            HostView(
                config=self.config.hosts[name],
                link=self.links.get(name, LinkStatus("up")),
                snapshot=picture,
                unread=frozenset(),
            )
            for name, picture in self.pictures.items()
        ]

    def refresh(self, name: str) -> None:
        self.refreshed.append(name)

    @asynccontextmanager
    async def channel(self, name: str, /) -> AsyncIterator[Channel]:
        if name in self.refusals:
            raise self.refusals[name]
        connection = LocalConnection()
        channel = await Channel.open(connection, self.config.hosts[name])
        self.channels.append(channel)
        self.on_channel(channel)
        try:
            yield channel
        finally:
            await channel.close()
            await connection.close()

    # ---- what is on the hosts

    def lay(self, name: str, version: str | None = None, *, host: str = "", **files: str) -> Side:
        """An environment, with a small package of that version; `files` are further ones of it."""
        path = self.folder / name
        if not path.exists():
            venv.create(path, symlinks=True, with_pip=False)
        side = Side(host or name, str(path))
        if version is not None:
            lay_package(site_of(side), version, files)
        return side

    async def plan(self, source: Side, *targets: Side) -> CopyPlan:
        return await make_plan(self, self.config, source, targets)

    async def copy(
        self,
        plan: CopyPlan,
        consent: Consent = YES,
        changed: Callable[[TargetRun], None] = lambda run: None,
        *,
        read_only: bool = False,
    ) -> tuple[TargetRun, ...]:
        return await copy(self, self.config, plan, consent, changed, read_only=read_only, by=BY)


def site_of(side: Side) -> Path:
    """The site-packages of an environment."""
    return Path(side.venv) / "lib" / f"python{MINOR}" / "site-packages"


def lay_package(site: Path, version: str, files: dict[str, str] | None = None) -> None:
    """A small package with its dist-info, in place of what is there."""
    for old in (*site.glob("sglang"), *site.glob("sglang-*.dist-info")):
        shutil.rmtree(old)
    info = f"sglang-{version}.dist-info"
    texts = {
        "sglang/__init__.py": f'__version__ = "{version}"\n',
        "sglang/version.py": f'__version__ = "{version}"\n',
        "sglang/same.py": "SAME = 1\n" * 100,
        "sglang/empty.py": "",
        "sglang/srt/__init__.py": "",
        "sglang/srt/dflash.py": f"VERSION = {version!r}\n",
        f"sglang/only_in_{version.replace('.', '_')}.py": "pass\n",
        **{f"sglang/lang/part{number}.py": f"{number} # {version}\n" * 500 for number in range(40)},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n",
        f"{info}/INSTALLER": "pip\n",
        **{f"sglang/{name}": text for name, text in (files or {}).items()},
    }
    rows = "".join(f"{name},,\n" for name in texts)
    texts[f"{info}/RECORD"] = f"{rows}{info}/RECORD,,\n"
    for name, text in texts.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def content(side: Side) -> dict[str, str]:
    """What is in site-packages: each file's hash, without bytecode."""
    site = site_of(side)
    return {
        str(path.relative_to(site)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(site.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def left(side: Side) -> list[str]:
    """What a copy has left in its own folder, apart from what is meant to stay."""
    folder = Path(side.venv) / ".dflash-console"
    if not folder.exists():
        return []
    kept = {"lock", "journal.jsonl", "backups", "provenance.json", "manifest.json"}
    return sorted(path.name for path in folder.iterdir() if path.name not in kept)


async def copied(fleet: LocalFleet, source: Side, *targets: Side) -> tuple[TargetRun, ...]:
    """Plans and copies; all must go well."""
    plan = await fleet.plan(source, *targets)
    runs = await fleet.copy(plan)
    assert [run.state for run in runs] == ["done"] * len(targets), [run.detail for run in runs]
    return runs


def states(seen: list[TargetRun]) -> list[str]:
    """The states that a run went through, each once."""
    return list(dict.fromkeys(run.state for run in seen))


def spy(channel: Channel, asked: list[str]) -> None:
    """Notes what is asked of a channel."""
    ask = channel.ask

    def noted(do: str, /, **fields: object) -> int:
        asked.append(do)
        return ask(do, **fields)

    channel.ask = noted  # type: ignore[method-assign]


def when(channel: Channel, do: str, what: Callable[[], object]) -> None:
    """Does something just when a request is sent."""
    ask = channel.ask

    def noted(name: str, /, **fields: object) -> int:
        if name == do:
            what()
        return ask(name, **fields)

    channel.ask = noted  # type: ignore[method-assign]


def sides(fleet: LocalFleet, old: str | None = "0.5.9") -> tuple[Side, Side]:
    """A source, and a target with an older package."""
    return fleet.lay("ct129", "0.5.23"), fleet.lay("ct200", old)


def journal(side: Side) -> list[str]:
    """The states that the target's journal went through."""
    lines = (Path(side.venv) / ".dflash-console/journal.jsonl").read_text().splitlines()
    return [json.loads(line)["state"] for line in lines]


def interrupt(target: Side) -> None:
    """Leaves a stage and a journal as an agent that died does."""
    folder, number = Path(target.venv) / ".dflash-console", "20260101-000000-dead00"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / f"stage-{number}").mkdir()
    (folder / f"stage-{number}" / "x").write_text("x")
    line = {
        "state": "claimed",
        "id": number,
        "at": 1.7e9,
        "by": "ana@desk",
        "what": "copy from ct129",
        "from": {},
    }
    with (folder / "journal.jsonl").open("a") as journal:
        journal.write(f"{json.dumps(line)}\n")


@asynccontextmanager
async def running(fleet: LocalFleet, *, read_only: bool = False) -> AsyncIterator[tuple[Copies, Verdicts]]:
    """Copies as the screen has them, while they run."""
    verdicts = Verdicts(fleet, fleet.config)
    copies = Copies(fleet, fleet.config, verdicts, read_only=read_only, by=BY)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(copies.run())
        try:
            yield copies, verdicts
        finally:
            task.cancel()


def show(fleet: LocalFleet, host: str, venv: Venv) -> None:
    """Has a host's picture hold this environment."""
    fleet.pictures[host] = msgspec.structs.replace(fleet.pictures[host], venvs=[venv])
