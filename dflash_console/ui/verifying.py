"""Has verified what a key was pressed on, and says in a line what is being done or why it is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dflash_console.operations.orders import environments
from dflash_console.ui.drawing.line import safe
from dflash_console.ui.drawing.words import plural
from dflash_console.ui.scene import Scene
from dflash_console.verdict import Verdict

if TYPE_CHECKING:
    from textual.timer import Timer

    from dflash_console.ui.app import ConsoleApp

__all__ = ["Answer", "Target", "VerdictSource", "Verifying", "have_verified"]

_TICK = 0.2
_TICKS = 10
"""After something was asked for, at least: no answer may be awaited yet."""

_REFUSALS = 2
"""So many are told in full."""


class VerdictSource(Protocol):
    """What the screen needs of the operations."""

    def of(self, host: str) -> tuple[Verdict, ...]: ...
    def ask(self, host: str, venv: str | None = None, *, is_deep: bool = False) -> str: ...
    def refresh(self) -> None: ...


class Target(NamedTuple):
    """What a key was pressed on: a host, or one environment of it."""

    host: str
    venv: str | None = None


class Answer(NamedTuple):
    """What to tell the operator."""

    text: str
    is_refused: bool
    """Nothing is done."""


class Verifying:
    """What the app knows of verdicts: asks for them, and paints soon while some are awaited."""

    def __init__(self, app: ConsoleApp, source: VerdictSource | None) -> None:
        self._app = app
        self._source = source
        self._timer: Timer | None = None
        self._ticks_left = 0
        self.fault = ""
        """Why nothing is verified any more; empty while all is well."""

    def of(self, host: str) -> tuple[Verdict, ...]:
        """The verdicts on a host."""
        return self._source.of(host) if self._source is not None else ()

    def refresh(self) -> None:
        """Marks what no longer holds."""
        if self._source is not None:
            self._source.refresh()

    def ask(self, targets: Sequence[Target], *, is_deep: bool) -> None:
        """Has the targets verified, and tells what is being done."""
        app = self._app
        if self.fault:
            app.notify(safe(self.fault), severity="error", markup=False)
            return
        answer = have_verified(self._source, app.scene, targets, is_deep=is_deep)
        text = answer.text
        if not answer.is_refused:
            if app.paused_for() is not None:
                text += " (the screen is paused: p)"
            self._ticks_left = _TICKS
            if self._timer is None:
                self._timer = app.set_interval(_TICK, self._tick)
        app.notify(
            safe(text), severity="warning" if answer.is_refused else "information", timeout=2, markup=False
        )

    def _tick(self) -> None:
        self._app.tick(is_early=True)
        self._ticks_left -= 1
        is_waiting = any(verdict.waiting for host in self._app.scene.hosts for verdict in host.verdicts)
        if self._timer is not None and self._ticks_left <= 0 and not is_waiting:
            self._timer.stop()
            self._timer = None

    def stop(self, error: Exception) -> None:
        """Tells for good that nothing is verified any more: the header says so, and so does the key."""
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        self.fault = f"verify stopped: {type(error).__name__}: {error}; start the console anew"
        self._app.paint()


def have_verified(
    source: VerdictSource | None, scene: Scene, targets: Sequence[Target], *, is_deep: bool
) -> Answer:
    """Asks for all targets, and gives back what to say about it. Returns at once."""
    if source is None:
        return Answer("nothing can be verified here", True)
    if not targets:
        return Answer("no host to verify", True)
    refusals: list[str] = []
    taken: list[Target] = []
    for target in targets:
        why = source.ask(target.host, target.venv, is_deep=is_deep)
        if why:
            refusals.append(why)
        else:
            taken.append(target)
    parts = [_taken(scene, taken, is_deep)] if taken else []
    parts += refusals[:_REFUSALS]
    if len(refusals) > _REFUSALS:
        parts.append(f"and {len(refusals) - _REFUSALS} more")
    return Answer("; ".join(parts), not taken)


def _taken(scene: Scene, taken: Sequence[Target], is_deep: bool) -> str:
    verb = "verifying deeply" if is_deep else "verifying"
    if len(taken) > 1:
        return f"{verb} {plural(len(taken), 'host')}"
    (target,) = taken
    return f"{target.host}: {verb} {_what(scene, target)}"


def _what(scene: Scene, target: Target) -> str:
    if target.venv is not None:
        return target.venv
    host = scene.host(target.host)
    venvs = environments(host.view) if host is not None else ()
    return venvs[0] if len(venvs) == 1 else plural(len(venvs), "environment")
