"""What a terminal can do, by its description in the terminfo database."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TextIO

__all__ = ["is_terminal", "why_no_screen"]


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a standard stream is there and is a terminal."""
    return stream is not None and not stream.closed and stream.isatty()


def why_no_screen(environ: Mapping[str, str]) -> str:
    """Why nothing can be drawn on the terminal that stdout is, in a few words; empty when it can be.

    A terminal that can't move the cursor (a log, an editor's window, a CI job) would be filled without end.
    """
    name = environ.get("TERM", "")
    if not name:
        return "TERM is not set"
    if name == "unknown":
        return "TERM says that the terminal is unknown"
    try:
        import curses
    except ImportError:  # a Python built without it can't tell, and most terminals are fine
        return ""
    try:
        curses.setupterm(name, sys.stdout.fileno())
    except curses.error:
        # A terminal younger than this machine's database (xterm-kitty, say), or no database at all.
        return ""
    return "" if curses.tigetstr("cup") else f"a terminal {name!r} can't move its cursor"
