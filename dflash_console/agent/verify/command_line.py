"""Words of command lines: as systemd makes them of a unit's, and what a Python's say."""

from __future__ import annotations

import os
import re
import shlex

from ..units.command import SHELLS

__all__ = ["Told", "expanded", "told_by"]

ALONE = re.compile(r"\$([A-Za-z_]\w*)", re.ASCII)
PART = re.compile(r"\$(?:\$|\{([A-Za-z_]\w*)\})", re.ASCII)
VALUE_OPTIONS = frozenset("WXcm")


def expanded(words: list[str], environment: dict[str, str]) -> list[str]:
    """The words with their variables, as systemd fills them in before it starts anything (systemd.service(5), "Command
    lines"): `${NAME}` as it is, `$NAME` that is a word of its own split at blanks, `$$` for a dollar sign."""
    # The quotes around a shell's text are lost here: a `$NAME` in it is no word of its own, and so the shell's.
    is_text = any(os.path.basename(word) in SHELLS for word in words)
    found: list[str] = []
    for word in words:
        alone = None if is_text else ALONE.fullmatch(word)
        if alone is not None:
            found += _split(environment.get(alone[1], ""))
        else:
            found.append(PART.sub(lambda m: environment.get(m[1], "") if m[1] else "$", word))
    return found


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


class Told:
    """What a Python's command line says."""

    def __init__(self) -> None:
        self.options: list[str] = []
        """Those of the interpreter that decide over imports, such as `-I`."""
        self.script = ""
        """The path of the script, or of a folder or an archive with a `__main__`, as it was typed."""
        self.module = ""
        """What follows `-m`."""


def told_by(words: list[str]) -> Told:
    """Of a command line that begins with the interpreter."""
    told = Told()
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word.startswith("--"):
            if word == "--check-hash-based-pycs" and rest:
                rest.pop(0)
            continue
        letter = next((char for char in word[1:] if char in VALUE_OPTIONS), "")
        flags, _, value = word[1:].partition(letter) if letter else (word[1:], "", "")
        told.options += [f"-{flag}" for flag in flags if flag in "IPEsSO"]
        if letter and not value and rest:
            value = rest.pop(0)
        if letter in ("c", "m"):
            told.module = value if letter == "m" else ""
            return told
        told.options += ["-X", value] if letter == "X" and value else []
    if rest and rest[0] != "-":
        told.script = rest[0]
    return told
