"""Fleet and screen side by side in one event loop, each ended when the other is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from dflash_console.config import Config
from dflash_console.fleet import Fleet
from dflash_console.operations.copies import Copies
from dflash_console.operations.operator import operator
from dflash_console.operations.verdicts import Verdicts
from dflash_console.ui.app import ConsoleApp
from dflash_console.ui.desk import FleetDesk
from dflash_console.ui.themes import load_themes, theme_folders

__all__ = ["run"]


def run(
    config: Config,
    *,
    theme: str | None,
    is_read_only: bool,
    mouse: bool,
    remember_theme: Callable[[str], None] | None,
) -> int:
    """As `run_console`."""
    return asyncio.run(_run(config, theme, is_read_only, mouse, remember_theme))


async def _run(
    config: Config,
    theme: str | None,
    is_read_only: bool,
    mouse: bool,
    remember_theme: Callable[[str], None] | None,
) -> int:
    fleet = Fleet(config)
    verdicts = Verdicts(fleet, config)
    copies = Copies(fleet, config, verdicts, read_only=is_read_only, by=operator())
    app = ConsoleApp(
        fleet,
        load_themes(theme_folders()),
        interval=config.console.interval,
        theme=theme,
        is_read_only=is_read_only,
        remember_theme=remember_theme,
        verdicts=verdicts,
        desk=FleetDesk(fleet, config, copies),
    )
    shown = asyncio.Event()
    app.first_frame = shown.set
    async with asyncio.TaskGroup() as tasks:
        beside = [
            tasks.create_task(_beside(shown, fleet.run, app.fail)),
            tasks.create_task(_beside(shown, verdicts.run, app.verifying.stop)),
        ]
        copying = tasks.create_task(_beside(shown, copies.run, app.copying.stop))
        try:
            await app.run_async(mouse=mouse)
        finally:
            # What is swapped already is still verified, and that needs the fleet.
            copying.cancel()
            if copies.is_running:
                sys.stderr.write("what is swapped already is brought to its end; Ctrl-C stops at once\n")
            try:
                await asyncio.wait({copying})
            finally:
                for task in beside:
                    task.cancel()
    return app.return_code or 0


async def _beside(
    shown: asyncio.Event, run: Callable[[], Awaitable[None]], fail: Callable[[Exception], None]
) -> None:
    """Runs something once the first frame is on the screen: nobody should wait for its imports."""
    await shown.wait()
    try:
        await run()
    except Exception as error:  # noqa: BLE001  the top of the task: the app tells it
        fail(error)
