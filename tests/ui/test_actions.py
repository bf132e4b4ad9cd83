"""The registry of actions, and what is made from it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import get_args

from textual.app import App
from textual.binding import Binding

from dflash_console.ui.actions import ACTIONS, Place, actions_in, bindings, footer_keys, key_table
from dflash_console.ui.app import ConsoleApp
from dflash_console.ui.compare_screen import CompareScreen, DiffScreen
from dflash_console.ui.copy_screen import CopyScreen
from dflash_console.ui.evidence import EvidenceScreen
from dflash_console.ui.fleet_screen import FleetScreen
from dflash_console.ui.host_screen import TABS, HostScreen
from dflash_console.ui.page_screen import PageScreen

LATER = {"s", "x", "r", "f", "e", "i"}
SCREENS: tuple[tuple[Place, ...], ...] = (
    ("fleet",),
    *(("host", tab.place) for tab in TABS),
    ("evidence",),
    ("page",),
    ("page", "copy"),
    ("page", "compare"),
    ("page", "diff"),
)
"""Whose keys work on each screen, with each tab in front."""
PLACES: tuple[Place, ...] = get_args(Place)


def test_no_key_means_two_things_on_one_screen() -> None:
    for places in SCREENS:
        keys = Counter(key for action in actions_in(*places) for key in action.keys)
        assert [key for key, count in keys.items() if count > 1] == []


def test_the_keys_of_tmux_and_screen_and_of_what_is_still_to_come_are_free() -> None:
    bound = {key for action in ACTIONS for key in action.keys}
    assert not bound & {"ctrl+a", "ctrl+b"}
    assert not bound & LATER


def test_every_action_has_a_name_of_its_own_and_words() -> None:
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)
    assert all(action.help and action.shown for action in ACTIONS)


def test_every_action_exists_where_its_key_is_pressed() -> None:
    homes: dict[Place, type] = {
        "fleet": FleetScreen,
        "evidence": EvidenceScreen,
        "everywhere": ConsoleApp,
        "page": PageScreen,
        "copy": CopyScreen,
        "compare": CompareScreen,
        "diff": DiffScreen,
    }
    for action in ACTIONS:
        method = "action_" + action.run.removeprefix("app.").partition("(")[0]
        assert hasattr(homes.get(action.place, HostScreen), method), action.id


def test_bindings_carry_the_actions_names() -> None:
    for place in PLACES:
        made = [binding for binding in bindings(place) if isinstance(binding, Binding)]
        assert [binding.id for binding in made] == [action.id for action in ACTIONS if action.place == place]


def test_the_footer_starts_with_what_is_needed_first() -> None:
    assert [word for _, word in footer_keys("fleet")][:4] == ["move", "open", "verify", "copy"]
    for tab in TABS:
        assert footer_keys("host", tab.place)[0] == ("esc", "back")


def test_a_key_that_tabs_share_does_one_thing_to_the_screen() -> None:
    runs: dict[str, set[str]] = {}
    for action in actions_in("host", *(tab.place for tab in TABS)):
        for key in action.keys:
            runs.setdefault(key, set()).add(action.run)
    assert [key for key, actions in runs.items() if len(actions) > 1] == []


def test_the_key_table_has_a_row_for_every_action() -> None:
    rows = key_table().splitlines()
    assert len(rows) == len(ACTIONS) + 2
    assert all(row.count("|") == 4 for row in rows)


def test_the_readme_shows_the_key_table() -> None:
    assert key_table().strip() in (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")


def test_textual_itself_binds_nothing_that_is_still_to_come() -> None:
    keys = {key for binding in App.BINDINGS if isinstance(binding, Binding) for key in binding.key.split(",")}
    assert not keys & LATER
