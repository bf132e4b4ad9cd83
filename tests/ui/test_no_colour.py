"""NO_COLOR: what reaches the terminal, and what can still be told apart."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from dflash_console.ui.themes import load_themes
from tests.ui.stub import THEMES
from tests.ui.terminals import ESC, Terminal, opened

SGR = re.compile(rb"\x1b\[([\d;:]*)m")
LOOKS = len(load_themes([THEMES]).looks)
WALK = (b"?", ESC, b":", ESC, b"j", b"/ct\r", b"\r", b"jjj", ESC, b"\x1a", *LOOKS * (b"t", b"?", ESC))
"""Through every screen, a field, a list, a notice and a scrollbar, in every theme."""


def colours(output: bytes) -> Iterator[int]:
    """Every number in what is sent that sets a colour."""
    for match in SGR.finditer(output):
        for number in re.split(rb"[;:]", match[1]):
            code = int(number or 0)
            if code in (38, 48, 58) or 30 <= code <= 47 or 90 <= code <= 107:
                yield code


def walked(terminals: list[Terminal], **environ: str) -> bytes:
    """All that a console sends on a walk through its screens."""
    terminal = opened(terminals, environ=environ)
    for key in WALK:
        seen = len(terminal.read())
        terminal.type(key)
        terminal.shows(b"\x1b[", seen)
    terminal.type(b"q")
    assert terminal.ended() == 0
    return terminal.read()


@pytest.mark.parametrize("value", ["1", "0", "no"])
@pytest.mark.parametrize("term", ["xterm-256color", "xterm"])
def test_under_no_color_no_colour_is_sent(terminals: list[Terminal], value: str, term: str) -> None:
    output = walked(terminals, NO_COLOR=value, TERM=term)
    assert list(colours(output)) == []
    assert {int(number or 0) for match in SGR.finditer(output) for number in match[1].split(b";")} <= {
        0,
        1,
        2,
        4,
        7,
    }


@pytest.mark.parametrize("environ", [{}, {"NO_COLOR": ""}])
def test_without_it_or_with_an_empty_one_colours_are_sent(
    terminals: list[Terminal], environ: dict[str, str]
) -> None:
    assert 38 in colours(walked(terminals, **environ))


def test_health_selection_and_the_cursor_show_without_a_colour(terminals: list[Terminal]) -> None:
    terminal = opened(terminals, environ={"NO_COLOR": "1"})
    for words in ("✗ 1 critical", "▸ ct129", "\x1b[1;7m DFLASH "):
        terminal.shows(words.encode())
    terminal.type(b"/ab")
    terminal.shows(b"ab\x1b[7m \x1b[0m")
    seen = len(terminal.read())
    terminal.type(ESC + b":")
    terminal.shows(b"\x1b[1;7mOpen the selected host", seen)
    seen = len(terminal.read())
    terminal.type(ESC + b"t")
    terminal.shows(b"NO_COLOR hides", seen)
