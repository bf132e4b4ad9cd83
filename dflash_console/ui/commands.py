"""The palette: the registry's actions, every host by name, every theme."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from dflash_console.ui.actions import actions_in
from dflash_console.ui.app import ConsoleApp
from dflash_console.ui.screen import ConsoleScreen

__all__ = ["Commands"]


class _Command(NamedTuple):
    title: str
    help: str
    run: Callable[[], object]


class Commands(Provider):
    """What the palette offers on the screen that it was opened from."""

    def _commands(self) -> Iterator[_Command]:
        app = cast(ConsoleApp, self.app)
        screen = self.screen
        if isinstance(screen, ConsoleScreen):
            for action in actions_in(*screen.places):
                if action.title:
                    yield _Command(
                        action.title,
                        f"{action.shown}: {action.help}",
                        partial(app.run_on, screen, action.run),
                    )
        for host in app.scene.hosts:
            yield _Command(
                f"Open {host.name}", "show all that is known of this host", partial(app.open_host, host.name)
            )
        for name in app.theme_names:
            yield _Command(f"Theme {name}", "change the colours", partial(app.use_theme, name))

    async def discover(self) -> Hits:
        """Everything, while nothing is typed."""
        for command in self._commands():
            yield DiscoveryHit(Content(command.title), command.run, text=command.title, help=command.help)

    async def search(self, query: str) -> Hits:
        """What matches the typed letters."""
        matcher = self.matcher(query)
        for command in self._commands():
            score = matcher.match(command.title)
            if score > 0:
                yield Hit(score, Content(command.title), command.run, text=command.title, help=command.help)
