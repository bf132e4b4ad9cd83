"""The one registry of what a key does: bindings, footer, help, palette and README's table come from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dflash_console.ui.action import Action, Place
from dflash_console.ui.page_actions import PAGE_ACTIONS

if TYPE_CHECKING:
    from textual.binding import BindingType

__all__ = ["ACTIONS", "Action", "Place", "actions_in", "bindings", "footer_keys", "key_table"]

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
    Action(
        "fleet.mark",
        ("space",),
        "Space",
        "mark",
        "mark the selected host, or unmark it; c copies to all that are marked, v and V verify them",
        "fleet",
        ("space", "mark"),
        55,
        "Mark or unmark the selected host",
    ),
    Action(
        "fleet.clear", ("escape",), "Esc", "clear_filter", "show all hosts again, then unmark all", "fleet"
    ),
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
    Action("host.next_tab", ("tab",), "Tab", "next_tab(1)", "the next tab", "host", ("tab", "next tab"), 15),
    Action("host.previous_tab", ("shift+tab",), "Shift+Tab", "next_tab(-1)", "the tab before", "host"),
    Action("host.overview", ("1",), "1", "tab('overview')", "the overview", "host", title="Overview"),
    Action(
        "host.environments",
        ("2",),
        "2",
        "tab('environments')",
        "the environments, check by check",
        "host",
        title="Environments, check by check",
    ),
    Action("host.previous", ("less_than_sign",), "<", "step(-1)", "the host before", "host"),
    Action("host.next", ("greater_than_sign",), ">", "step(1)", "the next host", "host"),
    Action(
        "overview.down", ("down", "j"), "↓ j", "move('down')", "scroll down", "overview", ("↑↓", "scroll"), 30
    ),
    Action("overview.up", ("up", "k"), "↑ k", "move('up')", "scroll up", "overview"),
    Action("overview.page_down", ("pagedown",), "PgDn", "page(1)", "scroll a page down", "overview"),
    Action("overview.page_up", ("pageup",), "PgUp", "page(-1)", "scroll a page up", "overview"),
    Action("overview.top", ("g", "home"), "g Home", "move('first')", "to the top", "overview"),
    Action("overview.bottom", ("G", "end"), "G End", "move('last')", "to the bottom", "overview"),
    Action("overview.previous", ("left", "h"), "← h", "move('left')", "the host before", "overview"),
    Action(
        "overview.next",
        ("right", "l"),
        "→ l",
        "move('right')",
        "the next host",
        "overview",
        ("←→", "other host"),
        52,
    ),
    Action(
        "environments.left",
        ("left", "h"),
        "← h",
        "move('left')",
        "the environment to the left",
        "environments",
    ),
    Action(
        "environments.down",
        ("down", "j"),
        "↓ j",
        "move('down')",
        "the check below",
        "environments",
        ("←↓↑→", "move"),
        30,
    ),
    Action("environments.up", ("up", "k"), "↑ k", "move('up')", "the check above", "environments"),
    Action(
        "environments.right",
        ("right", "l"),
        "→ l",
        "move('right')",
        "the environment to the right",
        "environments",
    ),
    Action("environments.first", ("g", "home"), "g Home", "move('first')", "the first check", "environments"),
    Action("environments.last", ("G", "end"), "G End", "move('last')", "the last check", "environments"),
    Action(
        "environments.page_down", ("pagedown",), "PgDn", "page(1)", "a page of checks down", "environments"
    ),
    Action("environments.page_up", ("pageup",), "PgUp", "page(-1)", "a page of checks up", "environments"),
    Action(
        "environments.open",
        ("enter",),
        "Enter",
        "open",
        "the whole evidence of the check",
        "environments",
        ("enter", "evidence"),
        20,
        "Evidence of the check under the cursor",
    ),
    Action("evidence.back", ("escape",), "Esc", "back", "back to the host", "evidence", ("esc", "back"), 10),
    Action(
        "evidence.down", ("down", "j"), "↓ j", "scroll_by(1)", "scroll down", "evidence", ("↑↓", "scroll"), 20
    ),
    Action("evidence.up", ("up", "k"), "↑ k", "scroll_by(-1)", "scroll up", "evidence"),
    Action("evidence.page_down", ("pagedown",), "PgDn", "page(1)", "scroll a page down", "evidence"),
    Action("evidence.page_up", ("pageup",), "PgUp", "page(-1)", "scroll a page up", "evidence"),
    Action("evidence.top", ("g", "home"), "g Home", "scroll_to_end(-1)", "to the top", "evidence"),
    Action("evidence.bottom", ("G", "end"), "G End", "scroll_to_end(1)", "to the bottom", "evidence"),
    *PAGE_ACTIONS,
    Action(
        "copy",
        ("c",),
        "c",
        "app.copy",
        "copy the package from the source to what the cursor is on, or to all marked hosts: a plan, then a question",
        "everywhere",
        ("c", "copy"),
        28,
        "Copy the package",
    ),
    Action(
        "verify",
        ("v",),
        "v",
        "app.verify(False)",
        "verify what the cursor is on, or all marked hosts: nothing on a host is changed",
        "everywhere",
        ("v", "verify"),
        25,
        "Verify",
    ),
    Action(
        "verify_deeply",
        ("V",),
        "V",
        "app.verify(True)",
        "verify deeply: pins, binaries, a real import, and every GPU that nobody uses",
        "everywhere",
        ("V", "deeply"),
        62,
        "Verify deeply",
    ),
    Action(
        "compare",
        ("d",),
        "d",
        "app.compare",
        "compare the package here with the source's, or those of two marked hosts, file by file",
        "everywhere",
        ("d", "compare"),
        48,
        "Compare packages",
    ),
    Action(
        "roll_back",
        ("b",),
        "b",
        "app.roll_back",
        "list the backups where the cursor is; one can be put back",
        "everywhere",
        ("b", "backups"),
        49,
        "Backups and rollback",
    ),
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
        53,
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
        29,
        "Help",
    ),
    Action(
        "stop",
        ("ctrl+z",),
        "Ctrl+Z",
        "app.stop",
        "stop and go back to the shell, whose fg goes on",
        "everywhere",
    ),
    Action(
        "quit",
        ("q", "ctrl+q"),
        "q Ctrl+Q",
        "app.quit",
        "quit; every process of ours on the hosts ends",
        "everywhere",
        ("q", "quit"),
        46,
        "Quit",
    ),
)


def actions_in(*places: Place) -> tuple[Action, ...]:
    """The actions of places, and those that work everywhere but where a place has its own meaning for the key."""
    own = [action for action in ACTIONS if action.place in places]
    taken = {key for action in own for key in action.keys}
    return (
        *own,
        *(action for action in ACTIONS if action.place == "everywhere" and not taken.issuperset(action.keys)),
    )


def bindings(*places: Place) -> list[BindingType]:
    """The Textual bindings of these places alone."""
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
        if action.place in places
    ]


def footer_keys(*places: Place) -> list[tuple[str, str]]:
    """Keys and words for the footer where these places are on the screen, most wanted first."""
    shown = sorted(
        (action for action in actions_in(*places) if action.footer), key=lambda action: action.rank
    )
    return [action.footer for action in shown if action.footer]


def key_table(actions: Iterable[Action] = ACTIONS) -> str:
    """The keys as a Markdown table, for README."""
    rows = [f"| `{action.shown}` | {action.place} | {action.help} |" for action in actions]
    return "\n".join(["| key | where | what it does |", "|---|---|---|", *rows])
