"""Themes: one TOML file each, checked colour by colour before any of it reaches the screen.

Shipped ones are found in the wheel and in a checkout, the user's own in the config folder's `themes`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, get_args

import platformdirs
from rich.style import Style
from textual.color import Color, ColorParseError
from textual.theme import Theme

from dflash_console.ui.drawing.line import Ink

__all__ = [
    "COLOURS",
    "DEFAULT",
    "FEW_COLOURS",
    "Look",
    "ThemeError",
    "Themes",
    "load_themes",
    "parse_theme",
    "theme_folders",
]

DEFAULT = "night"
FEW_COLOURS = "sixteen"
"""The theme for terminals with 16 colours."""

COLOURS: dict[str, str] = {
    "background": "the screen",
    "raised": "header, footer, dialogs",
    "cursor": "the selected row of a table",
    "text": "values",
    "strong": "what the eye should land on",
    "dim": "secondary words",
    "faint": "tertiary words, such as paths",
    "accent": "labels, keys, the selected panel",
    "ok": "all is well",
    "warning": "needs a look",
    "critical": "is broken",
    "note": "who and where",
    "bar": "utilization",
    "history": "utilization over time",
    "track": "the empty part of a bar",
    "border": "a panel's border",
    "reverse": "letters on a ground of accent or warning",
}
"""The keys of `[colours]` and what each is for; all are needed."""

_SIZE_LIMIT = 1 << 16


class _Spec(NamedTuple):
    colour: str
    is_bold: bool = False
    ground: str = ""


_INKS: dict[Ink, _Spec] = {
    "text": _Spec("text"),
    "strong": _Spec("strong", True),
    "dim": _Spec("dim"),
    "faint": _Spec("faint"),
    "accent": _Spec("accent"),
    "label": _Spec("accent", True),
    "title": _Spec("strong", True),
    "title_on": _Spec("accent", True),
    "ok": _Spec("ok"),
    "warn": _Spec("warning"),
    "bad": _Spec("critical"),
    "alarm": _Spec("critical", True),
    "note": _Spec("note"),
    "bar": _Spec("bar"),
    "history": _Spec("history"),
    "track": _Spec("track"),
    "edge": _Spec("border"),
    "edge_on": _Spec("accent"),
    "edge_warn": _Spec("warning"),
    "edge_bad": _Spec("critical"),
    "edge_faint": _Spec("border"),
    "badge": _Spec("reverse", True, "accent"),
    "flag": _Spec("reverse", True, "warning"),
}
assert set(_INKS) == set(get_args(Ink))


class ThemeError(ValueError):
    """A theme file can't be used; the text names file and key."""


@dataclass(frozen=True)
class Look:
    """A theme, ready for drawing: what each ink looks like on each ground."""

    name: str
    textual: Theme
    colours: Mapping[str, Color]
    on_screen: Mapping[Ink, Style] = field(default_factory=dict)
    on_raised: Mapping[Ink, Style] = field(default_factory=dict)
    on_cursor: Mapping[Ink, Style] = field(default_factory=dict)


class Themes(NamedTuple):
    """What was found."""

    looks: dict[str, Look]
    """By name, the shipped ones first."""
    failures: list[str]
    """What is wrong with the files that can't be used."""


def theme_folders() -> list[Path]:
    """Where themes lie: in the wheel, in a checkout, and the user's own."""
    package = Path(__file__).resolve().parent.parent
    return [
        package / "themes",
        package.parent / "themes",
        platformdirs.user_config_path("dflash-console") / "themes",
    ]


def load_themes(folders: Sequence[Path]) -> Themes:
    """All themes of the folders; a later one of the same name replaces an earlier one. Never raises."""
    looks: dict[str, Look] = {}
    failures: list[str] = []
    for folder in folders:
        for path in sorted(folder.glob("*.toml")) if folder.is_dir() else ():
            try:
                look = parse_theme(path)
            except ThemeError as error:
                failures.append(str(error))
            else:
                looks[look.name] = look
    if DEFAULT not in looks:
        looks = {DEFAULT: _look(DEFAULT, True, False, dict(_LAST_RESORT)), **looks}
    return Themes(looks, failures)


_LAST_RESORT = {
    "background": "#0f1419",
    "raised": "#171e26",
    "cursor": "#1d2935",
    "text": "#c5cdd6",
    "strong": "#e8edf2",
    "dim": "#8a95a1",
    "faint": "#66717d",
    "accent": "#59b7f0",
    "ok": "#7fc98a",
    "warning": "#e0ac52",
    "critical": "#f0716c",
    "note": "#93a8f4",
    "bar": "#6fb58a",
    "history": "#4f93bf",
    "track": "#39434e",
    "border": "#3d4854",
    "reverse": "#0f1419",
}
"""For an installation whose theme files are gone."""


def parse_theme(path: Path) -> Look:
    """The theme of a file, named by the file. Raises ThemeError."""
    try:
        if path.stat().st_size > _SIZE_LIMIT:
            raise ThemeError(f"{path}: longer than {_SIZE_LIMIT >> 10} KiB; this is no theme")
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if isinstance(error, ThemeError):
            raise
        raise ThemeError(f"{path}: can't be read: {error}") from None
    try:
        return _checked(path.stem, tables)
    except ThemeError as error:
        raise ThemeError(f"{path}: {error}") from None


def _checked(name: str, tables: dict[str, Any]) -> Look:
    _refuse_unknown("", tables, ("description", "dark", "ansi", "colours"))
    for key in ("dark", "ansi"):
        if not isinstance(tables.get(key, False), bool):
            raise ThemeError(f"{key}: expected true or false")
    colours = tables.get("colours")
    if not isinstance(colours, dict):
        raise ThemeError("colours: expected a table [colours]")
    _refuse_unknown("colours.", colours, tuple(COLOURS))
    lacking = [key for key in COLOURS if key not in colours]
    if lacking:
        raise ThemeError(f"colours: lacks {', '.join(lacking)}")
    return _look(name, tables.get("dark", True), tables.get("ansi", False), colours)


def _refuse_unknown(place: str, table: Mapping[str, object], valid: Sequence[str]) -> None:
    for key in table:
        if key not in valid:
            near = difflib.get_close_matches(key, valid, n=1)
            advice = f"did you mean {near[0]}?" if near else "valid here: " + ", ".join(valid)
            raise ThemeError(f"{place}{key}: unknown key; {advice}")


def _colour(key: str, value: object) -> Color:
    try:
        colour = Color.parse(value if isinstance(value, str) else "")
    except ColorParseError:
        raise ThemeError(
            f'colours.{key}: {value!r} is no colour; write "#rrggbb", a name or "ansi_blue"'
        ) from None
    if colour.a != 1.0:
        raise ThemeError(f"colours.{key}: {value!r} is see-through; a terminal has no such colours")
    return colour


def _look(name: str, is_dark: bool, is_ansi: bool, values: Mapping[str, object]) -> Look:
    colours = {key: _colour(key, values[key]) for key in COLOURS}
    hexes = {key: colour.hex for key, colour in colours.items()}
    theme = Theme(
        name=name,
        primary=hexes["accent"],
        secondary=hexes["note"],
        warning=hexes["warning"],
        error=hexes["critical"],
        success=hexes["ok"],
        accent=hexes["accent"],
        foreground=hexes["text"],
        background=hexes["background"],
        surface=hexes["raised"],
        panel=hexes["raised"],
        boost=hexes["cursor"],
        dark=is_dark,
        ansi=is_ansi,
        variables={
            "ansi-background": hexes["background"],
            "ansi-foreground": hexes["text"],
            "border-blurred": hexes["border"],
            "screen-selection-background": hexes["cursor"],
            "screen-selection-foreground": hexes["strong"],
            "block-cursor-background": hexes["cursor"],
            "block-cursor-foreground": hexes["strong"],
            "block-cursor-text-style": "bold",
            "input-cursor-background": hexes["accent"],
            "input-cursor-foreground": hexes["reverse"],
            "scrollbar": hexes["border"],
            "scrollbar-hover": hexes["dim"],
            "scrollbar-active": hexes["accent"],
            "scrollbar-background": hexes["background"],
            "scrollbar-background-hover": hexes["background"],
            "scrollbar-background-active": hexes["background"],
            "scrollbar-corner-color": hexes["background"],
        },
    )
    return Look(
        name,
        theme,
        colours,
        _styles(colours, "background"),
        _styles(colours, "raised"),
        _styles(colours, "cursor"),
    )


def _styles(colours: Mapping[str, Color], ground: str) -> dict[Ink, Style]:
    """Every ink as a Rich style on a ground."""
    return {
        ink: Style(
            color=colours[spec.colour].rich_color,
            bgcolor=colours[spec.ground or ground].rich_color,
            bold=spec.is_bold or None,
        )
        for ink, spec in _INKS.items()
    }
