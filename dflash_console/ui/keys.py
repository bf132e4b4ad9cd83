"""One key at a time: each goes to what has the focus after all that the key before it did."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.app import App
    from textual.dom import DOMNode
    from textual.events import Key, Paste
    from textual.message_pump import MessagePump
    from textual.widget import Widget

__all__ = ["OneAtATime"]

_MOST_WAITING = 256
_LONGEST_WAIT = 2.0
"""Seconds after which a key is taken for done: one that is lost on its way must not make the console deaf."""


class OneAtATime:
    """Hands on keys and pastes, and the next one only when the one before has had its effect.

    Textual puts a key into the queue of the widget that has the focus now; the keys before it may still wait
    in other queues, and one of them may move the focus or open a screen.
    """

    def __init__(self, app: App[Any], hand_on: Callable[[Key | Paste], Awaitable[None]]) -> None:
        self._app = app
        self._hand_on = hand_on
        self._waiting: deque[Key | Paste] = deque(maxlen=_MOST_WAITING)
        self._busy_since: float | None = None
        self._number = 0

    async def take(self, event: Key | Paste) -> None:
        """Hands the event on when it is its turn, which may be now."""
        if self._busy_since is not None and time.monotonic() - self._busy_since < _LONGEST_WAIT:
            self._waiting.append(event)
            return
        self._waiting.append(event)
        await self._next()

    async def _next(self) -> None:
        self._number += 1
        if not self._waiting or not self._app.screen_stack:
            self._busy_since = None
            return
        self._busy_since = time.monotonic()
        target: Widget = self._app.focused or self._app.screen
        await self._hand_on(self._waiting.popleft())
        self._pass(_way(self._app, target), self._number)

    def _pass(self, way: Iterator[MessagePump], number: int) -> None:
        """Goes on once the next queue of the way has been worked off up to here."""
        if number != self._number:
            return
        for pump in way:
            if pump.call_later(self._pass, way, number):
                return
        self._app.call_later(self._next)


def _way(app: App[Any], target: DOMNode) -> Iterator[MessagePump]:
    """The queues through which the effects of a key go: up from its target, then down to what is in front now.

    Each twice, as a handler may leave something for its own widget.
    """
    for pump in target.ancestors_with_self:
        yield from (pump, pump)
    yield from (app.screen, app.screen)
    if app.focused is not None:
        yield from (app.focused, app.focused)
