"""The screens over the real operations: this machine twice, with an environment each."""

from __future__ import annotations

import asyncio
import contextlib
import venv
from collections.abc import AsyncIterator
from pathlib import Path

from dflash_console.config import Config, ConsoleConfig, HostConfig, PackageConfig
from dflash_console.fleet import Fleet
from dflash_console.operations.copies import Copies
from dflash_console.operations.verdicts import Verdicts
from dflash_console.ui.app import ConsoleApp
from dflash_console.ui.desk import FleetDesk
from dflash_console.ui.themes import load_themes
from tests.ui.driving import after, shown
from tests.ui.looking import screen_text
from tests.ui.stub import THEMES
from tests.waiting import until


def environment(folder: Path, version: str) -> Path:
    """An environment that holds a small package of that version, as pip would have put it there."""
    venv.create(folder, symlinks=True, with_pip=False)
    site = next(folder.glob("lib/python3*/site-packages"))
    files = {
        "sglang/__init__.py": f"__version__ = '{version}'\n",
        f"sglang/only_{version.replace('.', '_')}.py": "x = 1\n",
        "sglang/worker.py": f"version = '{version}'\n",
        f"sglang-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n",
        f"sglang-{version}.dist-info/INSTALLER": "pip\n",
    }
    files[f"sglang-{version}.dist-info/RECORD"] = "".join(f"{name},,\n" for name in files)
    for name, text in files.items():
        path = site / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return site


@contextlib.asynccontextmanager
async def console_over(config: Config) -> AsyncIterator[ConsoleApp]:
    """The console as `ui.run` makes it, without a terminal."""
    fleet = Fleet(config)
    verdicts = Verdicts(fleet, config)
    copies = Copies(fleet, config, verdicts, read_only=False, by="kim@laptop")
    app = ConsoleApp(
        fleet,
        load_themes([THEMES]),
        theme="night",
        verdicts=verdicts,
        desk=FleetDesk(fleet, config, copies),
    )
    async with asyncio.TaskGroup() as tasks:
        beside = [tasks.create_task(run()) for run in (fleet.run, verdicts.run, copies.run)]
        try:
            yield app
        finally:
            for task in beside:
                task.cancel()


async def test_a_package_is_compared_copied_and_rolled_back_by_keys(tmp_path: Path) -> None:
    source, target = environment(tmp_path / "a", "0.5.11"), environment(tmp_path / "b", "0.5.9")
    hosts = {
        "here": HostConfig("here", local=True, role="source", package_venv=str(tmp_path / "a")),
        "there": HostConfig(
            "there", local=True, role="target", production=True, package_venv=str(tmp_path / "b")
        ),
    }
    config = Config(ConsoleConfig(), PackageConfig(modules=["sglang.worker"]), hosts)
    async with console_over(config) as app, app.run_test(size=(140, 50)) as pilot:
        await until(lambda: "● 2 up" in screen_text(app), 60, "both hosts")
        await after(pilot, "enter", "greater_than_sign", "d")
        await shown(pilot, "only_0_5_11.py")
        await after(pilot, "slash", *"worker", "enter", "enter")
        await shown(pilot, "version = '0.5.11'")
        await after(pilot, "escape", "escape", "escape", "c")
        await until(lambda: "nothing is changed yet" in screen_text(app), 60, "the plan")
        assert "✓ ready" in screen_text(app)
        assert (target / "sglang" / "only_0_5_9.py").exists()
        await after(pilot, "c", "tab", *"there", "tab", "tab", "enter")
        await until(lambda: "✓ done" in screen_text(app), 60, "the end")
        assert sorted(path.name for path in (target / "sglang").glob("*.py")) == sorted(
            path.name for path in (source / "sglang").glob("*.py")
        )
        await after(pilot, "escape", "b")
        await until(lambda: "1 kept" in screen_text(app), 60, "the backups")
        await after(pilot, "enter", "tab", *"there", "tab", "tab", "enter")
        await until(lambda: "put back" in screen_text(app) and "✓ done" in screen_text(app), 60, "the end")
        assert (target / "sglang" / "only_0_5_9.py").exists()
