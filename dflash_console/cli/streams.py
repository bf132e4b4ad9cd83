"""stdout for the answer, stderr for words, and readers that close their end early."""

from __future__ import annotations

import os
import sys

import click

__all__ = ["PROGRAM", "complain", "discard_stdout", "emit"]

PROGRAM = "dflash-console"


def emit(data: bytes) -> None:
    """Writes the answer to stdout; a reader that has closed its end wants no more, which is no error."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        discard_stdout()


def complain(text: str) -> None:
    """One line for people on stderr."""
    click.echo(f"{PROGRAM}: {text}", err=True)


def discard_stdout() -> None:
    """Sends what is still to be written to nowhere, or the interpreter would complain at its end."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
