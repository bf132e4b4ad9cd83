"""The keys of the pages that lie over the fleet or a host: plans and progress, comparisons, backups."""

from __future__ import annotations

from dflash_console.ui.action import Action

__all__ = ["PAGE_ACTIONS"]

PAGE_ACTIONS: tuple[Action, ...] = (
    Action("page.back", ("escape",), "Esc", "back", "back to the screen below", "page", ("esc", "back"), 10),
    Action("page.down", ("down", "j"), "↓ j", "move('down')", "the line below", "page", ("↑↓", "move"), 20),
    Action("page.up", ("up", "k"), "↑ k", "move('up')", "the line above", "page"),
    Action("page.page_down", ("pagedown",), "PgDn", "page(1)", "a screenful down", "page"),
    Action("page.page_up", ("pageup",), "PgUp", "page(-1)", "a screenful up", "page"),
    Action("page.first", ("g", "home"), "g Home", "move('first')", "to the top", "page"),
    Action("page.last", ("G", "end"), "G End", "move('last')", "to the bottom", "page"),
    Action(
        "page.open",
        ("enter",),
        "Enter",
        "open",
        "open the line: a check's evidence, a file's differences, the question about a backup",
        "page",
        ("enter", "open"),
        15,
    ),
    Action(
        "copy.ask",
        ("c",),
        "c",
        "ask",
        "go on to the question; after the end of a copy, plan it anew",
        "copy",
        title="Go on to the question about this copy",
    ),
    Action(
        "copy.again",
        ("ctrl+r",),
        "Ctrl+R",
        "again",
        "look at all hosts again and make the plan anew",
        "copy",
        title="Make the plan anew",
    ),
    Action(
        "compare.filter",
        ("slash",),
        "/",
        "filter",
        "show only files whose path has these words",
        "compare",
        ("/", "filter"),
        25,
        "Filter files",
    ),
    Action("diff.next", ("n",), "n", "change(1)", "the next change", "diff", ("n N", "changes"), 12),
    Action("diff.previous", ("N",), "N", "change(-1)", "the change before", "diff"),
    Action(
        "diff.all", ("space",), "Space", "all", "all lines, or only changes", "diff", ("space", "all"), 22
    ),
    Action("diff.left", ("left", "h"), "← h", "pan(-1)", "long lines: back to their beginning", "diff"),
    Action(
        "diff.right", ("right", "l"), "→ l", "pan(1)", "long lines: further on", "diff", ("←→", "long"), 24
    ),
    Action("diff.next_file", ("greater_than_sign",), ">", "file(1)", "the next file that differs", "diff"),
    Action("diff.previous_file", ("less_than_sign",), "<", "file(-1)", "the file before", "diff"),
)
