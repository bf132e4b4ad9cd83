"""The screen under NO_COLOR (no-color.org): no colour is sent, and what a colour alone told is told otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

__all__ = ["Colourless", "wants_no_colour"]

_REVERSED = ("accent", "warning", "cursor", "border", "dim")
"""Grounds of badges, of what is selected and of a scrollbar's thumb: these become reverse video."""
_DIM = ("dim", "faint", "track")


def wants_no_colour(environ: Mapping[str, str]) -> bool:
    """Whether the operator wants no colour: NO_COLOR is there and not empty, whatever it says."""
    return bool(environ.get("NO_COLOR"))


class Colourless(LineFilter):
    """Takes all colour out of what is about to be sent: bold, dim, underline and reverse stay or take its place."""

    def __init__(self, colours: Mapping[str, Color]) -> None:
        """`colours` are those of the theme in use."""
        super().__init__()
        reversed_grounds = {colours[key].rich_color for key in _REVERSED} - {
            colours[key].rich_color for key in ("background", "raised")
        }
        dim = {colours[key].rich_color for key in _DIM} - {
            colours[key].rich_color for key in ("text", "strong")
        }

        @lru_cache(1024)
        def plain(style: Style) -> Style:
            return _plain(style, reversed_grounds, dim)

        self._plain = plain

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments without colour."""
        return [Segment(text, style and self._plain(style), control) for text, style, control in segments]


def _plain(style: Style, reversed_grounds: set[RichColor], dim: set[RichColor]) -> Style:
    letters, ground = (style.bgcolor, style.color) if style.reverse else (style.color, style.bgcolor)
    is_reversed = bool(style.reverse) or ground in reversed_grounds
    return Style(
        bold=style.bold,
        dim=not is_reversed and (bool(style.dim) or letters in dim),
        italic=style.italic,
        underline=style.underline,
        strike=style.strike,
        reverse=is_reversed,
        meta=style.meta,
    )
