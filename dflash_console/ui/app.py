"""The Textual app: holds the scene, the selection and the theme, and paints all of it on one tick."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from rich.text import Text
from textual.app import App
from textual.events import Event, Key, Paste
from textual.filter import Monochrome, NoColor
from textual.screen import Screen

from dflash_console.errors import ConsoleError
from dflash_console.ui.actions import bindings
from dflash_console.ui.colourless import Colourless, wants_no_colour
from dflash_console.ui.copying import Copying
from dflash_console.ui.crash import crash_report
from dflash_console.ui.drawing.matrix import Place as MatrixPlace
from dflash_console.ui.evidence import EvidenceScreen
from dflash_console.ui.fleet_screen import FleetScreen
from dflash_console.ui.host_screen import HostScreen
from dflash_console.ui.keys import OneAtATime
from dflash_console.ui.panel import Panel
from dflash_console.ui.scene import Moment, Scene, SceneMaker, next_trouble, now
from dflash_console.ui.screen import ConsoleScreen
from dflash_console.ui.sequences import Refused
from dflash_console.ui.terminal import (
    ConsoleDriver,
    Continued,
    handle_signals,
    is_gone,
    release_signals,
    terminal_of_stdin,
)
from dflash_console.ui.themes import DEFAULT, FEW_COLOURS, Look, Themes
from dflash_console.ui.verifying import VerdictSource, Verifying

if TYPE_CHECKING:
    from textual.binding import BindingType
    from textual.command import Provider
    from textual.filter import LineFilter
    from textual.timer import Timer

    from dflash_console.fleet import HostView
    from dflash_console.ui.desk import Desk

__all__ = ["ConsoleApp", "FleetSource"]

_EARLY_TICK = 0.2
_EARLY_SECONDS = 10.0


class FleetSource(Protocol):
    """What the screen needs of the fleet."""

    def views(self) -> Sequence[HostView]: ...
    def retry(self, name: str) -> None: ...
    def refresh(self, name: str) -> None: ...


def _commands() -> type[Provider]:
    from dflash_console.ui.commands import Commands

    return Commands


class ConsoleApp(App[None]):
    """The console's screens over a fleet. It awaits no host: a tick takes the newest views and draws them."""

    TITLE = "dflash-console"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings("everywhere")
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {_commands}
    AUTO_FOCUS = ""

    def __init__(
        self,
        fleet: FleetSource,
        themes: Themes,
        *,
        interval: float = 1.0,
        theme: str | None = None,
        is_read_only: bool = False,
        remember_theme: Callable[[str], None] | None = None,
        verdicts: VerdictSource | None = None,
        desk: Desk | None = None,
        clock: Callable[[float], Moment] = now,
    ) -> None:
        """`theme` None takes the one that suits the terminal; `clock` gives the moment."""
        self._looks = themes.looks
        self._failures = themes.failures
        self.look: Look = self._looks[DEFAULT]
        super().__init__(driver_class=ConsoleDriver)
        self.animation_level = "none"
        self.no_color = wants_no_colour(os.environ)
        self._fleet = fleet
        self.verifying = Verifying(self, verdicts)
        self.copying = Copying(self, desk)
        self._clock = clock
        self._remember = remember_theme
        self._paused_at: float | None = None
        self._scenes = SceneMaker()
        self._terminal: int | None = None
        self._keys = OneAtATime(self, super().on_event)
        self._early: Timer | None = None
        self._early_until = 0.0
        self.interval = interval
        self.is_read_only = is_read_only
        self.fault = ""
        """Why the last tick could not be painted; empty while all is well."""
        self.marked: frozenset[str] = frozenset()
        """Names of the hosts that are marked, whether a filter shows them or not."""
        self.scene: Scene = self._take()
        self.selected = self.scene.hosts[0].name if self.scene.hosts else ""
        self.first_frame: Callable[[], None] | None = None
        """Called once, after the first frame is on the screen."""
        for look in self._looks.values():
            self.register_theme(look.textual)
        self._start_theme(theme)

    # ---- life

    def get_default_screen(self) -> Screen[None]:
        """The fleet."""
        return FleetScreen([host.name for host in self.scene.hosts])

    def on_mount(self) -> None:
        """Starts the tick, and takes over the signals that end the console."""
        handle_signals(self.leave)
        if not self.is_headless:
            self._terminal = terminal_of_stdin()
        self.set_interval(self.interval, self.tick)
        self._early_until = self.now().mono + _EARLY_SECONDS
        self._early = self.set_interval(_EARLY_TICK, self._early_tick)
        self.call_after_refresh(self._on_first_frame)

    def on_unmount(self) -> None:
        """Gives the signals back."""
        with contextlib.suppress(RuntimeError):
            release_signals()

    def _on_first_frame(self) -> None:
        self.paint()
        if self._failures:
            more = f" (and {len(self._failures) - 1} more)" if len(self._failures) > 1 else ""
            self.notify(
                f"{self._failures[0]}{more}", title="theme not loaded", severity="warning", markup=False
            )
        if self.first_frame is not None:
            self.call_after_refresh(self.first_frame)

    async def on_event(self, event: Event) -> None:
        """Keys and pastes wait for their turn."""
        if isinstance(event, Key | Paste) and not event.is_forwarded:
            await self._keys.take(event)
        else:
            await super().on_event(event)

    def on_refused(self, event: Refused) -> None:
        """Says what the terminal sent in vain."""
        self.notify(event.why, severity="warning", timeout=3, markup=False)

    def on_continued(self, event: Continued) -> None:
        """Draws everything anew, from what is known now."""
        self.tick()
        self.refresh(layout=True)

    def leave(self, code: int) -> None:
        """Ends the console with an exit code, the terminal left as it was."""
        self.exit(return_code=code)

    # ---- the tick

    def now(self) -> Moment:
        """This moment."""
        return self._clock(self.interval)

    def tick(self, *, is_early: bool = False) -> None:
        """Takes the newest views, unless paused, and paints; what goes wrong is shown and ends nothing.

        An early tick paints only when a host changed.
        """
        if self._terminal is not None and is_gone(self._terminal):
            self.leave(129)
            return
        before = self.scene
        try:
            if self._paused_at is None:
                self.scene = self._take()
            self.fault = ""
        except Exception as error:  # noqa: BLE001  the top of the tick's loop: shown in the header
            self.fault = f"{type(error).__name__}: {error}"
        self.copying.tell()
        if not is_early or self.scene.hosts != before.hosts:
            self.paint()

    def _take(self) -> Scene:
        self.verifying.refresh()
        return self._scenes.take(self._fleet.views(), self.now(), self.verifying.of, self.copying.of)

    def _early_tick(self) -> None:
        """Paints hosts soon after they first answer, as long as that is to be expected."""
        self.tick(is_early=True)
        is_waiting = any(
            host.view.link.state == "connecting" or host.view.unread for host in self.scene.hosts
        )
        if self._early is not None and not (is_waiting and self.now().mono < self._early_until):
            self._early.stop()
            # What lives now lives to the end. A full collection over it all stops the screen for 100 ms; the
            # short one keeps the rubbish of the start from being kept for ever.
            gc.collect(1)
            gc.freeze()

    def paint(self) -> None:
        """Draws the screen in front; a fault in drawing is shown in the header's place."""
        screen = next(
            (screen for screen in reversed(self.screen_stack) if isinstance(screen, ConsoleScreen)), None
        )
        if screen is None or not screen.is_mounted:
            return
        try:
            screen.paint()
        except Exception as error:  # noqa: BLE001  the top of the tick's loop: shown in the header's place
            screen.show_fault(f"this screen could not be drawn: {type(error).__name__}: {error}")

    def paused_for(self) -> float | None:
        """Seconds since the screen was frozen; None while it is live."""
        return None if self._paused_at is None else self.now().mono - self._paused_at

    # ---- actions

    def action_pause(self) -> None:
        """Freezes the screen, or lets it go on."""
        self._paused_at = self.now().mono if self._paused_at is None else None
        self.tick()

    def action_refresh_host(self) -> None:
        """Has the selected host read everything anew, or tries it now."""
        host = self.scene.host(self.selected)
        if host is None:
            return
        if host.view.link.state == "up":
            self._fleet.refresh(host.name)
            self.notify(f"{host.name}: reading everything anew", timeout=2, markup=False)
        else:
            self._fleet.retry(host.name)
            self.notify(f"{host.name}: trying now", timeout=2, markup=False)

    def action_verify(self, is_deep: bool) -> None:
        """Has verified what the cursor is on; the answers show as they come."""
        if isinstance(self.screen, ConsoleScreen):
            self.verifying.ask(self.screen.targets, is_deep=is_deep)

    def action_copy(self) -> None:
        """Shows what a copy to what the cursor is on would do, or how far one is that runs."""
        if isinstance(self.screen, ConsoleScreen):
            self.copying.copy(self.screen.targets)

    def action_roll_back(self) -> None:
        """Shows the backups of what the cursor is on."""
        if isinstance(self.screen, ConsoleScreen):
            self.copying.backups(self.screen.target)

    def action_compare(self) -> None:
        """Shows how the packages of two hosts differ."""
        if isinstance(self.screen, ConsoleScreen):
            self.copying.compare(self.screen.targets)

    def action_trouble(self, step: int) -> None:
        """Selects the next (1) or the previous (-1) host with trouble, worst first."""
        screen = self.screen
        if not isinstance(screen, ConsoleScreen):
            return
        name = next_trouble(screen.candidates(), self.selected, step)
        if name is None:
            self.notify("no host has trouble", timeout=2, markup=False)
            return
        self.selected = name
        screen.show_selected()

    async def action_quit(self) -> None:
        """Quits; while something is copied it asks first."""
        if not self.copying.asks_before_quitting():
            self.exit()

    def action_stop(self) -> None:
        """Stops the console as a shell's job, until `fg`."""
        driver = self._driver
        if isinstance(driver, ConsoleDriver) and not driver.stop():
            self.notify("no shell to go back to; q quits", timeout=2, markup=False)

    def action_help_quit(self) -> None:
        """Says how to quit, for those whom Ctrl+C would have quit elsewhere."""
        self.notify("q quits", timeout=2, markup=False)

    def action_help(self) -> None:
        """Shows the keys."""
        from dflash_console.ui.help import HelpScreen

        screen = self.screen
        if isinstance(screen, ConsoleScreen):
            self.push_screen(HelpScreen(*screen.places))

    def run_on(self, screen: ConsoleScreen, action: str) -> Awaitable[bool]:
        """Runs an action of the registry as if its key had been pressed on a screen."""
        return self.run_action(action, default_namespace=screen)

    def open_host(self, name: str) -> None:
        """Shows all that is known of a host."""
        if self.scene.host(name) is None:
            return
        self.selected = name
        while isinstance(self.screen, ConsoleScreen) and self.screen.is_in_front:
            self.pop_screen()
        if isinstance(self.screen, HostScreen):
            self.screen.show_selected()
        elif isinstance(self.screen, FleetScreen):
            self.push_screen(HostScreen())

    def close_host(self) -> None:
        """Back to the fleet."""
        if isinstance(self.screen, HostScreen):
            self.pop_screen()

    def open_evidence(self, host: str, place: MatrixPlace) -> None:
        """Shows the whole evidence of a check."""
        if isinstance(self.screen, HostScreen):
            self.push_screen(EvidenceScreen(host, place))

    def close_front(self) -> None:
        """Back to the screen below the one in front, if that lies over another."""
        if isinstance(self.screen, ConsoleScreen) and self.screen.is_in_front:
            self.pop_screen()

    # ---- themes

    @property
    def theme_names(self) -> list[str]:
        """All themes, in the order in which `t` goes through them."""
        return list(self._looks)

    def action_next_theme(self) -> None:
        """Takes the next theme and remembers it."""
        names = self.theme_names
        self.use_theme(names[(names.index(self.look.name) + 1) % len(names)])

    def use_theme(self, name: str) -> None:
        """Takes a theme and remembers it."""
        self._wear(name)
        unseen = "; NO_COLOR hides its colours" if self.no_color else ""
        self.notify(f"theme {name}{unseen}", timeout=1.5, markup=False)
        if self._remember is not None:
            try:
                self._remember(name)
            except ConsoleError as error:
                self.notify(str(error), severity="warning", markup=False)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What happens to all that is drawn, before it is sent."""
        if self.no_color:
            return [self._colourless]
        # Textual takes an empty NO_COLOR for one that is set.
        return [kept for kept in super().get_line_filters() if not isinstance(kept, Monochrome | NoColor)]

    def _start_theme(self, name: str | None) -> None:
        if name is not None and name not in self._looks:
            self._failures = [
                *self._failures,
                f"no theme is called {name!r}; there are {', '.join(self._looks)}",
            ]
            name = None
        if name is None:
            has_few = self.console.color_system in (None, "standard")
            name = FEW_COLOURS if has_few and FEW_COLOURS in self._looks else DEFAULT
        self._wear(name)

    def _wear(self, name: str) -> None:
        self.look = self._looks[name]
        self._colourless = Colourless(self.look.colours)
        self.theme = name
        for screen in self.screen_stack if self._running else ():
            for panel in screen.query(Panel):
                panel.restyle()

    # ---- the end

    def fail(self, error: Exception) -> None:
        """Ends the console because what it shows can't be kept up."""
        self._handle_exception(error)

    def _fatal_error(self) -> None:
        """Ends the app with a few words; Textual's own report prints local variables, secrets too."""
        self._exit_renderables.append(_unwrapped(crash_report(self._exception)))
        self._close_messages_no_wait()

    def panic(self, *renderables: object) -> None:
        """Ends the app with the exit code of a failure; nothing is printed that was not written for it."""
        self._return_code = 1
        self._exit_renderables.append(_unwrapped(crash_report(self._exception)))
        self._close_messages_no_wait()


def _unwrapped(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ignore")
