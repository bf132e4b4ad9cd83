"""Questions to whoever sits at the terminal."""

from __future__ import annotations

import asyncio
import os
import sys
import termios

import click

from dflash_console.cli.terminals import is_terminal
from dflash_console.ui.drawing.line import safe

__all__ = ["can_ask", "confirms", "types"]

LONGEST = 4096
"""Bytes of an answer; what a terminal hands over at once."""


def can_ask() -> bool:
    """Whether somebody reads the questions and can answer them."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


async def confirms(question: str) -> bool:
    """Whether the answer is yes; anything else, also none, is no."""
    return (await _answer(f"{question} [y/N] ")).lower() in ("y", "yes")


async def types(question: str, word: str) -> bool:
    """Whether exactly this word is typed."""
    return await _answer(f"{question} ") == word


async def _answer(question: str) -> str:
    """A line from the terminal; the loop goes on meanwhile, so that hosts are not given up over a slow answer."""
    source = sys.stdin.fileno()
    # What was typed before the question could be read is no answer to it.
    termios.tcflush(source, termios.TCIFLUSH)
    click.echo(safe(question), nl=False, err=True)
    loop = asyncio.get_running_loop()
    line: asyncio.Future[bytes] = loop.create_future()

    def take() -> None:
        try:
            data = os.read(source, LONGEST)
        except OSError:  # the terminal went away
            data = b""
        if not line.done():
            line.set_result(data)

    loop.add_reader(source, take)
    try:
        data = await line
    except asyncio.CancelledError:
        click.echo(err=True)
        raise
    finally:
        loop.remove_reader(source)
    if not data:  # Ctrl-D leaves the cursor behind the question
        click.echo(err=True)
    return data.decode(errors="replace").strip()
