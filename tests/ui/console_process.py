"""A console in a process of its own, for tests with a real terminal; arguments: `--no-mouse`, `crash`,
`gone` (starts once the terminal hung up)."""

from __future__ import annotations

import select
import sys
from pathlib import Path
from typing import NoReturn

from dflash_console.fleet import HostView
from dflash_console.ui.app import ConsoleApp
from dflash_console.ui.fleet_screen import FleetScreen
from dflash_console.ui.themes import load_themes
from tests.ui.builders import story
from tests.ui.stub import THEMES, StubFleet


class Crashing(StubFleet):
    """Fails in the one place that no tick guards: an operator's key."""

    def refresh(self, name: str) -> NoReturn:
        """Fails with a secret in a local variable."""
        token = "hf_" + "SECRET" * 3
        raise RuntimeError(f"a fault with {len(token)} characters")


def until_gone() -> None:
    """Waits until the terminal hung up, having told that it waits."""
    print("waiting", file=sys.stderr, flush=True)  # noqa: T201
    poll = select.poll()
    poll.register(0, 0)
    poll.poll()


def told(app: ConsoleApp) -> str:
    """What the operator left behind."""
    fleet = app.screen_stack[0]
    assert isinstance(fleet, FleetScreen)
    screens = " ".join(type(screen).__name__ for screen in app.screen_stack)
    return f"LEFT filter={fleet.filter_text!r} selected={app.selected} screens={screens}"


def main() -> int:
    """Runs the console and gives back its exit code."""
    if "gone" in sys.argv:
        until_gone()
    views: tuple[HostView, ...] = story()
    fleet = Crashing(views) if "crash" in sys.argv else StubFleet(views)
    app = Telling(fleet, load_themes([THEMES]), interval=0.2, theme="night")
    app.run(mouse="--no-mouse" not in sys.argv)
    print(app.told)  # noqa: T201
    return app.return_code or 0


class Telling(ConsoleApp):
    """Remembers what was left."""

    CSS_PATH = str(Path(sys.modules[ConsoleApp.__module__].__file__ or "").with_name("app.tcss"))
    told = ""

    async def action_quit(self) -> None:
        """As always."""
        self.told = told(self)
        await super().action_quit()


if __name__ == "__main__":
    sys.exit(main())
