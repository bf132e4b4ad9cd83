"""Waiting for a thing to become true, instead of sleeping: the tests' only way to wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["until", "until_sync"]

T = TypeVar("T")

PAUSE = 0.02
"""Seconds between two looks."""


async def until(look: Callable[[], T | None], within: float, what: str) -> T:
    """Looks again and again until the look gives a true value, and gives it back.

    `within` is in seconds and generous by intent: it tells a hang from a slow machine, it measures nothing.
    Fails with what was waited for and what was seen last; an AssertionError inside the look is a not yet.
    """
    deadline = time.monotonic() + within
    while True:
        value, seen = _look(look)
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:.0f} s: {what}; last seen: {seen}")
        await asyncio.sleep(PAUSE)


def until_sync(look: Callable[[], T | None], within: float, what: str) -> T:
    """The same outside an event loop."""
    deadline = time.monotonic() + within
    while True:
        value, seen = _look(look)
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:.0f} s: {what}; last seen: {seen}")
        time.sleep(PAUSE)


def _look(look: Callable[[], T | None]) -> tuple[T | None, str]:
    try:
        value = look()
    except AssertionError as error:
        return None, str(error)
    return value, repr(value)[:2000]
