"""Theme files: shipped ones are good, bad ones are refused with file and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.color import Color

from dflash_console.ui.drawing.line import Ink
from dflash_console.ui.themes import (
    COLOURS,
    DEFAULT,
    FEW_COLOURS,
    ThemeError,
    load_themes,
    parse_theme,
    theme_folders,
)
from tests.ui.stub import THEMES

SHIPPED = sorted(THEMES.glob("*.toml"))
NIGHT = (THEMES / "night.toml").read_text(encoding="utf-8")


def test_the_shipped_themes_are_found_from_a_checkout() -> None:
    themes = load_themes(theme_folders()[:2])
    assert themes.failures == []
    assert {"night", "day", "contrast", "sixteen"} <= set(themes.looks)
    assert DEFAULT in themes.looks
    assert FEW_COLOURS in themes.looks


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_theme_can_be_read_on_its_own_grounds(path: Path) -> None:
    look = parse_theme(path)
    if look.textual.ansi:
        return
    for ground in ("background", "raised", "cursor"):
        for key in ("text", "strong", "dim", "accent", "ok", "warning", "critical", "note"):
            assert contrast(look.colours[key], look.colours[ground]) >= 4.0, (key, ground)
        assert contrast(look.colours["faint"], look.colours[ground]) >= 3.0


def contrast(one: Color, other: Color) -> float:
    """As WCAG 2 defines it: 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: Color) -> float:
    """Relative, 0 to 1."""
    parts = [part / 255 for part in colour.rgb]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_theme_for_few_colours_uses_only_the_sixteen() -> None:
    look = parse_theme(THEMES / f"{FEW_COLOURS}.toml")
    assert look.textual.ansi
    assert all(colour.ansi is not None and -1 <= colour.ansi < 16 for colour in look.colours.values())


def test_every_ink_has_a_style_on_every_ground() -> None:
    look = load_themes([THEMES]).looks[DEFAULT]
    inks = set(Ink.__args__)  # type: ignore[attr-defined]
    assert set(look.on_screen) == set(look.on_raised) == set(look.on_cursor) == inks


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    """A theme file."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("accent =", "acent =", "colours.acent: unknown key; did you mean accent?"),
        ('ok = "#7fc98a"\n', "", "colours: lacks ok"),
        ('"#59b7f0"', '"#59b7fz"', "colours.accent: '#59b7fz' is no colour"),
        ('"#59b7f0"', "7", "colours.accent: 7 is no colour"),
        ('"#59b7f0"', '"#59b7f080"', "see-through"),
        ("dark = true", "dark = 1", "dark: expected true or false"),
        ("dark = true", "drak = true", "drak: unknown key; did you mean dark?"),
        ("[colours]", "[colors]", "colors: unknown key; did you mean colours?"),
        ("[colours]", "[colours", "can't be read"),
    ],
)
def test_a_bad_theme_is_refused_with_file_key_and_advice(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in NIGHT
    path = write(tmp_path, NIGHT.replace(old, new))
    with pytest.raises(ThemeError) as caught:
        parse_theme(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_a_bad_theme_harms_no_other(tmp_path: Path) -> None:
    write(tmp_path, NIGHT.replace("accent =", "acent ="), "bad.toml")
    write(tmp_path, NIGHT, "good.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    themes = load_themes([THEMES, tmp_path])
    assert "good" in themes.looks
    assert len(themes.failures) == 2


def test_the_users_theme_replaces_the_shipped_one_of_that_name(tmp_path: Path) -> None:
    write(tmp_path, NIGHT.replace("#59b7f0", "#ff00ff"), "night.toml")
    look = load_themes([THEMES, tmp_path]).looks["night"]
    assert look.colours["accent"] == Color.parse("#ff00ff")


def test_without_any_file_there_still_is_a_theme(tmp_path: Path) -> None:
    themes = load_themes([tmp_path / "absent"])
    assert list(themes.looks) == [DEFAULT]
    assert set(themes.looks[DEFAULT].colours) == set(COLOURS)
