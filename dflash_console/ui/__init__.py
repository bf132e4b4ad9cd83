"""The Textual console: screens, keys, themes. `run_console` shows a fleet until the operator quits.

`actions.key_table` gives README's table of keys. Only this package imports Textual, and only when
`run_console` runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dflash_console.config import Config

__all__ = ["run_console"]


def run_console(
    config: Config,
    *,
    theme: str | None = None,
    read_only: bool = False,
    mouse: bool = True,
    remember_theme: Callable[[str], None] | None = None,
) -> int:
    """Shows the hosts of `config` until the operator quits, and gives back the exit code.

    `theme` None takes the one that suits the terminal. `remember_theme` is called with the name of a theme
    that the operator chose; a ConsoleError from it is shown. The code is 0 after quitting, 1 after a fault,
    and 128 + number after a signal.
    """
    from dflash_console.ui.run import run

    return run(config, theme=theme, is_read_only=read_only, mouse=mouse, remember_theme=remember_theme)
