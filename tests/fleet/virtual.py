"""An event loop whose clock jumps to the next timer instead of waiting for it: hours pass in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class JumpingSelector(selectors.BaseSelector):
    """A real selector that never sleeps; `now` grows by what it was asked to sleep."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if not ready and timeout is None:
            raise RuntimeError("the test waits for something that nothing will bring")
        if not ready and timeout:
            self.now += timeout
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on a JumpingSelector."""

    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtual(story: Coroutine[Any, Any, T]) -> T:
    """Runs a test's coroutine to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story)
