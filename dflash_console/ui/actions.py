"""The one registry of what a key does: bindings, footer, help, palette and README's table come from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from textual.binding import BindingType

__all__ = ["ACTIONS", "Action", "Place", "actions_in", "bindings", "footer_keys", "key_table"]

Place = Literal["everywhere", "fleet", "host"]


@dataclass(frozen=True)
class Action:
    """Something that a key does."""

    id: str
    """Names the action in keymaps and tests."""
    keys: tuple[str, ...]
    """As Textual spells them."""
    shown: str
    """The keys as people read them."""
    run: str
    """The Textual action."""
    help: str
    place: Place
    footer: tuple[str, str] | None = None
    """Key and word in the footer; None when it is only in the help."""
    rank: int = 50
    """Order in the footer: the lowest first, the last ones are dropped where room lacks."""
    title: str = ""
    """Its name in the palette; empty for what makes no sense there."""


ACTIONS: tuple[Action, ...] = (
    Action("fleet.left", ("left", "h"), "← h", "move('left')", "select the panel to the left", "fleet"),
    Action(
        "fleet.down",
        ("down", "j"),
        "↓ j",
        "move('down')",
        "select the panel below, or the rest of a long one",
        "fleet",
        ("←↓↑→", "move"),
        10,
    ),
    Action("fleet.up", ("up", "k"), "↑ k", "move('up')", "select the panel above", "fleet"),
    Action("fleet.right", ("right", "l"), "→ l", "move('right')", "select the panel to the right", "fleet"),
    Action("fleet.first", ("g", "home"), "g Home", "move('first')", "select the first host", "fleet"),
    Action("fleet.last", ("G", "end"), "G End", "move('last')", "select the last host", "fleet"),
    Action("fleet.page_down", ("pagedown",), "PgDn", "page(1)", "go a page down", "fleet"),
    Action("fleet.page_up", ("pageup",), "PgUp", "page(-1)", "go a page up", "fleet"),
    Action(
        "fleet.open",
        ("enter",),
        "Enter",
        "open",
        "open the selected host",
        "fleet",
        ("enter", "open"),
        20,
        "Open the selected host",
    ),
    Action(
        "fleet.filter",
        ("slash",),
        "/",
        "filter",
        "show only hosts whose name, role or state has these words",
        "fleet",
        ("/", "filter"),
        30,
        "Filter hosts",
    ),
    Action("fleet.clear", ("escape",), "Esc", "clear_filter", "show all hosts again", "fleet"),
    Action(
        "host.back",
        ("escape",),
        "Esc",
        "back",
        "back to the fleet",
        "host",
        ("esc", "back"),
        10,
        "Back to the fleet",
    ),
    Action("host.down", ("down", "j"), "↓ j", "scroll_by(1)", "scroll down", "host", ("↑↓", "scroll"), 20),
    Action("host.up", ("up", "k"), "↑ k", "scroll_by(-1)", "scroll up", "host"),
    Action("host.page_down", ("pagedown",), "PgDn", "page(1)", "scroll a page down", "host"),
    Action("host.page_up", ("pageup",), "PgUp", "page(-1)", "scroll a page up", "host"),
    Action("host.top", ("g", "home"), "g Home", "scroll_to_end(-1)", "to the top", "host"),
    Action("host.bottom", ("G", "end"), "G End", "scroll_to_end(1)", "to the bottom", "host"),
    Action("host.previous", ("left", "h"), "← h", "step(-1)", "the host before", "host"),
    Action("host.next", ("right", "l"), "→ l", "step(1)", "the next host", "host", ("←→", "other host"), 30),
    Action(
        "trouble.next",
        ("n",),
        "n",
        "app.trouble(1)",
        "select the next host with trouble, the worst first",
        "everywhere",
        ("n", "trouble"),
        47,
        "Next host with trouble",
    ),
    Action(
        "trouble.previous",
        ("N",),
        "N",
        "app.trouble(-1)",
        "select the host with trouble before it",
        "everywhere",
    ),
    Action(
        "pause",
        ("p",),
        "p",
        "app.pause",
        "freeze the screen, and let it go on; the hosts are watched all the time",
        "everywhere",
        ("p", "pause"),
        40,
        "Pause or go on",
    ),
    Action(
        "refresh",
        ("ctrl+r",),
        "Ctrl+R",
        "app.refresh_host",
        "read everything of the selected host anew, or try it now",
        "everywhere",
        ("^r", "refresh"),
        60,
        "Refresh or retry the selected host",
    ),
    Action("theme", ("t",), "t", "app.next_theme", "the next theme", "everywhere", ("t", "theme"), 70),
    Action(
        "palette",
        ("colon", "ctrl+p"),
        ": Ctrl+P",
        "app.command_palette",
        "find a command or a host by name",
        "everywhere",
        (":", "palette"),
        80,
    ),
    Action(
        "help",
        ("question_mark",),
        "?",
        "app.help",
        "the keys, and what the marks mean",
        "everywhere",
        ("?", "help"),
        45,
        "Help",
    ),
    Action(
        "quit",
        ("q", "ctrl+q"),
        "q Ctrl+Q",
        "app.quit",
        "quit; every process of ours on the hosts ends",
        "everywhere",
        ("q", "quit"),
        50,
        "Quit",
    ),
)


def actions_in(place: Place) -> tuple[Action, ...]:
    """The actions of a place, and those that work everywhere."""
    return tuple(action for action in ACTIONS if action.place in (place, "everywhere"))


def bindings(place: Place) -> list[BindingType]:
    """The Textual bindings of one place alone."""
    from textual.binding import Binding

    return [
        Binding(
            ",".join(action.keys),
            action.run,
            action.help,
            show=False,
            id=action.id,
        )
        for action in ACTIONS
        if action.place == place
    ]


def footer_keys(place: Place) -> list[tuple[str, str]]:
    """Keys and words for the footer of a place, most wanted first."""
    shown = sorted((action for action in actions_in(place) if action.footer), key=lambda action: action.rank)
    return [action.footer for action in shown if action.footer]


def key_table(actions: Iterable[Action] = ACTIONS) -> str:
    """The keys as a Markdown table, for README."""
    where = {"everywhere": "everywhere", "fleet": "fleet", "host": "host"}
    rows = [f"| `{action.shown}` | {where[action.place]} | {action.help} |" for action in actions]
    return "\n".join(["| key | where | what it does |", "|---|---|---|", *rows])
