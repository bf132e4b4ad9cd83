"""The EnvironmentFile= of a unit as systemd reads it (systemd.exec(5); src/basic/env-file.c)."""

from __future__ import annotations

__all__ = ["parse_environment_file"]

BLANKS = " \t\r"


def parse_environment_file(text: str) -> dict[str, str]:
    """Variables by name: a line each, `#` and `;` begin comments, quotes as in a shell, a backslash at the end of
    a line joins the next one. Nothing is expanded."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        while at < len(text) and text[at] in BLANKS + "\n":
            at += 1
        if text[at : at + 1] in ("#", ";"):
            at = _line_end(text, at)
            continue
        end = _line_end(text, at)
        equals = text.find("=", at, end)
        if equals < 0:
            at = end
            continue
        name = text[at:equals].strip()
        value, at = _value(text, equals + 1)
        if name.replace("_", "a").isalnum() and name.isascii() and not name[0].isdigit():
            found[name] = value
    return found


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _value(text: str, at: int) -> tuple[str, int]:
    """The value that begins at a place, and where it ends."""
    parts: list[str] = []
    kept = 0
    """Characters before trailing blanks, which are dropped."""
    quote = ""
    may_quote = True
    """At the beginning and behind a quoted part; elsewhere a quote stands for itself."""
    while at < len(text):
        char = text[at]
        following = text[at + 1 : at + 2]
        at += 1
        if quote:
            if char == quote:
                quote = ""
            elif char == "\\" and quote == '"' and following and following in '"\\`$\n':
                parts.append(following.replace("\n", ""))
                at += 1
            else:
                parts.append(char)
            kept = len(parts)
        elif char == "\n":
            break
        elif may_quote and char in BLANKS:
            continue
        elif may_quote and char in "'\"":
            quote = char
        else:
            may_quote = False
            if char == "\\":
                char = following.replace("\n", "")
                at += 1
            parts.append(char)
            kept = kept if char and char in BLANKS else len(parts)
    return "".join(parts[:kept]), at
