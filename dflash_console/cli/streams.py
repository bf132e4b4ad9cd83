"""stdout for the answer, stderr for words, and what either of them may refuse to take."""

from __future__ import annotations

import os
import sys
import traceback
from io import StringIO
from typing import TextIO

import click

from dflash_console.harmless import made_harmless

__all__ = [
    "CANT_WRITE",
    "PROGRAM",
    "cant_write",
    "complain",
    "complain_of",
    "complain_of_usage",
    "discard",
    "emit",
    "harmless_json",
    "harmless_lines",
    "hold_streams",
    "is_full",
    "is_of_echo",
    "say",
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
    """One line for people on stderr, if anybody can read it, with what is harmful in it made visible."""
    try:
        click.echo(f"{PROGRAM}: {harmless_lines(text)}", err=True)
    except OSError:
        discard(sys.stderr)


def complain_of(error: BaseException) -> None:
    """The traceback of a fault of our own on stderr: its words may be a host's."""
    try:
        click.echo(harmless_lines("".join(traceback.format_exception(error))), err=True, nl=False)
    except OSError:
        discard(sys.stderr)


def complain_of_usage(error: click.ClickException) -> None:
    """What click says of wrong usage, on stderr: it repeats what was typed."""
    words = StringIO()
    error.show(words)
    try:
        click.echo(harmless_lines(words.getvalue()), err=True, nl=False)
    except OSError:
        discard(sys.stderr)


def harmless_lines(text: str) -> str:
    """Text for a terminal, with its own line breaks; whatever else one acts on, or can't be seen, as an escape."""
    return "\n".join(made_harmless(line, _escape) for line in text.split("\n"))


def harmless_json(data: bytes) -> bytes:
    """The same JSON, in which what a terminal acts on is written as escapes: it says the same to a program."""
    if data.isascii() and b"\x7f" not in data:
        return data
    return made_harmless(data.decode(), _json_escape).encode()


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")


def _json_escape(char: str) -> str:
    pairs = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{pairs[at] << 8 | pairs[at + 1]:04x}" for at in range(0, len(pairs), 2))


def say(text: str) -> None:
    """Lines for people on stderr, as they are."""
    try:
        click.echo(text, err=True, nl=False)
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
