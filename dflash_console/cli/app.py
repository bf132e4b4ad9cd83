"""The commands and options, and what the program does about errors, Ctrl-C and a closed stdout."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dflash_console import __version__
from dflash_console.cli.streams import (
    CANT_WRITE,
    PROGRAM,
    cant_write,
    complain,
    discard,
    hold_streams,
    is_full,
    is_of_echo,
)
from dflash_console.cli.terminals import is_terminal, why_no_screen

if TYPE_CHECKING:
    from dflash_console.config import Config

__all__ = ["main"]

INTERRUPTED = 130
FAULT = 70
"""sysexits.h's EX_SOFTWARE: not one of the codes that mean something about the hosts."""

LATER: dict[str, str] = {
    "demo": "The console on an embedded demo fleet",
    "init": "Write a config from ~/.ssh/config, Ansible or by asking",
    "compare": "Show which files of the package differ on two hosts",
    "copy": "Copy the package from one host to others",
    "rollback": "Put the package back as it was before the last copy",
    "service": "Start, stop or restart a service",
    "logs": "Show or follow a service's journal",
    "doctor": "Show the findings of all hosts, most serious first",
    "incident": "Write a bundle to hand on",
}
"""Commands of the contract that this version does not have yet."""

config_option = click.option(
    "--config",
    "config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The config; by default $DFLASH_CONSOLE_CONFIG, then the user's. Without any, it is this machine.",
)


class InOrder(click.Group):
    """Lists its commands in the order in which they were added, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=InOrder,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Watch a fleet of GPU hosts that run SGLang with DFlash. Without a command, opens the console.",
    epilog="Exit codes: 0 fine, 1 critical findings, 2 wrong usage or config or no terminal for the console, "
    "3 a host could not be reached, 4 refused, 74 the output can't be written.",
)
@config_option
@click.option("--read-only", is_flag=True, help="Refuse every change on a host.")
@click.option("--theme", metavar="NAME", help="The colours of the console.")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")
@click.version_option(__version__, prog_name=PROGRAM)
@click.pass_context
def program(
    context: click.Context, config: Path | None, read_only: bool, theme: str | None, no_mouse: bool
) -> int:
    context.obj = config
    if context.invoked_subcommand is not None:
        return 0
    return open_console(config, read_only=read_only, theme=theme, mouse=not no_mouse)


@program.command(
    "status",
    help="Show every host, or those named: link, findings, GPUs, venvs, units and paths.",
    short_help="Show every host, or those named",
)
@click.argument("hosts", metavar="[HOST]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@config_option
@click.pass_context
def status(context: click.Context, hosts: tuple[str, ...], as_json: bool, config: Path | None) -> int:
    from dflash_console.cli.status import run_status
    from dflash_console.config import default_path, load

    settings = load(config or context.obj, os.environ)
    if settings.path is None:
        complain(f"no config at {default_path(os.environ)}: watching this machine")
    return run_status(settings, hosts, as_json=as_json)


@program.command(
    "verify",
    help="Prove that the package is whole on every host, or on those named: where it comes from, its files, what the "
    "interpreter and the service find. Exit code 0: all are ready, 1: one is not.",
    short_help="Prove that hosts have the package whole",
)
@click.argument("hosts", metavar="[HOST]...", nargs=-1)
@click.option("--venv", metavar="PATH", help="This environment instead of those of the config.")
@click.option("--deep", is_flag=True, help="Also pins, compiled files, real imports and CUDA; takes minutes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@config_option
@click.pass_context
def verify(
    context: click.Context,
    hosts: tuple[str, ...],
    venv: str | None,
    deep: bool,
    as_json: bool,
    config: Path | None,
) -> int:
    if venv is not None and not venv.startswith(("/", "~/")):
        raise click.BadParameter(f"{venv!r} is no whole path on the host", param_hint="--venv")
    from dflash_console.cli.verify import run_verify
    from dflash_console.config import load

    settings = load(config or context.obj, os.environ)
    return run_verify(settings, hosts, venv=venv, is_deep=deep, as_json=as_json)


def add_later(name: str, what: str) -> None:
    """Lists a command that takes any arguments and says that it is not there yet."""

    @program.command(
        name,
        help=f"{what}. Not in this version.",
        short_help=f"{what} (not in this version)",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def refuse(arguments: tuple[str, ...]) -> int:
        complain(f"`{name}` is not in this version ({__version__}); `{PROGRAM} status` is")
        return 2


for later_name, later_what in LATER.items():
    add_later(later_name, later_what)


def open_console(config: Path | None, *, read_only: bool, theme: str | None, mouse: bool) -> int:
    """The console on this terminal; its exit code. Raises ConfigError."""
    why = ""
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        why = "the console needs a terminal"
    elif reason := why_no_screen(os.environ):
        why = f"the console can't draw here: {reason}; set TERM to what it is, such as xterm-256color"
    if why:
        complain(f"{why}; for scripts there is `{PROGRAM} status [--json]`")
        return 2
    from dflash_console.config import load
    from dflash_console.errors import StateError
    from dflash_console.state import State, default_state_path, load_state, save_state
    from dflash_console.ui import run_console

    settings = load(config, os.environ)
    check_theme(settings, theme)
    state_path = default_state_path()
    trouble = ""
    try:
        remembered = load_state(state_path)
    except StateError as error:
        trouble = str(error)
        remembered = State()
    try:
        return run_console(
            settings,
            theme=theme or settings.console.theme or remembered.theme,
            read_only=read_only or settings.console.read_only,
            mouse=mouse and settings.console.mouse,
            remember_theme=lambda name: save_state(state_path, State(theme=name)),
        )
    finally:
        # Not before: the console's screen would hide it.
        if trouble:
            complain(trouble)


def check_theme(settings: Config, asked: str | None) -> None:
    """Sees that the theme of the command line, else of the config, is there. Raises ConfigError.

    One that was only remembered may have gone meanwhile.
    """
    name = asked or settings.console.theme
    if name is None:
        return
    from dflash_console.errors import ConfigError
    from dflash_console.ui.themes import load_themes, theme_folders

    looks, failures = load_themes(theme_folders())
    if name in looks:
        return
    place = "--theme" if asked else f"{settings.path}: console.theme"
    broken = next((words for words in failures if f"/{name}.toml: " in words), "")
    if broken:
        raise ConfigError(f"{place}: the theme {name!r} can't be used: {broken}")
    near = difflib.get_close_matches(name, looks, n=1, cutoff=0.5)
    advice = f"did you mean {near[0]}? There are" if near else "there are"
    raise ConfigError(f"{place}: no theme is called {name!r}; {advice}: {', '.join(looks)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with these arguments, else with those of the process; gives back its exit code."""
    from dflash_console.errors import ConsoleError

    hold_streams()
    if sys.stdout is None:
        complain("can't write: stdout is closed")
        return CANT_WRITE
    try:
        answer = program.main(argv, prog_name=PROGRAM, standalone_mode=False)
        return answer if isinstance(answer, int) else 0
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except click.ClickException as error:
        with contextlib.suppress(OSError):
            error.show()
        return error.exit_code
    except ConsoleError as error:
        complain(str(error))
        return 2
    except Exception as error:  # noqa: BLE001 - the top: a fault of ours, shown without the values of variables
        if isinstance(error, OSError) and is_of_echo(error):
            return cant_write(error.strerror or str(error))
        complain("a fault of the console itself; please report what follows")
        with contextlib.suppress(OSError):
            traceback.print_exc(file=sys.stderr)
        return FAULT
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and is_full(stream):
                discard(stream)
