"""stdout for the answer, stderr for words, and what either of them may refuse to take."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TextIO

import click

__all__ = [
    "CANT_WRITE",
    "PROGRAM",
    "cant_write",
    "complain",
    "discard",
    "emit",
    "hold_streams",
    "is_full",
    "is_of_echo",
]

PROGRAM = "dflash-console"
CANT_WRITE = 74
"""sysexits.h's EX_IOERR: not one of the codes that mean something about the hosts."""


def emit(data: bytes) -> None:
    """Writes the answer to stdout; a reader that has closed its end wants no more, which is no error.

    Raises click's Exit when stdout can't take it, once that has been said.
    """
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        discard(sys.stdout)
    except OSError as error:
        raise click.exceptions.Exit(cant_write(error.strerror or str(error))) from None


def complain(text: str) -> None:
    """One line for people on stderr, if anybody can read it."""
    try:
        click.echo(f"{PROGRAM}: {text}", err=True)
    except OSError:
        discard(sys.stderr)


def cant_write(why: str) -> int:
    """Says that stdout does not take the answer; gives back the exit code of that."""
    complain(f"can't write: {why}")
    discard(sys.stdout)
    return CANT_WRITE


def is_full(stream: TextIO) -> bool:
    """Whether a stream still holds text that its file does not take."""
    try:
        stream.flush()
    except OSError:
        return True
    return False


def is_of_echo(error: OSError) -> bool:
    """Whether an error arose while click wrote help or version."""
    return any(frame.f_code is click.echo.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))


def discard(stream: TextIO) -> None:
    """Sends what is still to be written to nowhere, or the interpreter would complain at its end."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def hold_streams() -> None:
    """Puts /dev/null where stdin, stdout or stderr is closed: the next file would get its number, and what is
    meant for people or for children would go into that."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - for as long as the program runs
