"""A console in a process of its own, for tests with a real terminal; arguments: `--no-mouse`, `crash`."""

from __future__ import annotations

import sys
from typing import NoReturn

from dflash_console.fleet import HostView
from dflash_console.ui.app import ConsoleApp
from dflash_console.ui.themes import load_themes
from tests.ui.builders import story
from tests.ui.stub import THEMES, StubFleet


class Crashing(StubFleet):
    """Fails in the one place that no tick guards: an operator's key."""

    def refresh(self, name: str) -> NoReturn:
        """Fails with a secret in a local variable."""
        token = "hf_" + "SECRET" * 3
        raise RuntimeError(f"a fault with {len(token)} characters")


def main() -> int:
    """Runs the console and gives back its exit code."""
    views: tuple[HostView, ...] = story()
    fleet = Crashing(views) if "crash" in sys.argv else StubFleet(views)
    app = ConsoleApp(fleet, load_themes([THEMES]), interval=0.2, theme="night")
    app.run(mouse="--no-mouse" not in sys.argv)
    return app.return_code or 0


if __name__ == "__main__":
    sys.exit(main())
