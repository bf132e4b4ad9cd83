"""The commands and options, and what the program does about errors, Ctrl-C and a closed stdout."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from dflash_console import __version__
from dflash_console.cli.streams import (
    CANT_WRITE,
    PROGRAM,
    cant_write,
    complain,
    complain_of,
    complain_of_usage,
    discard,
    hold_streams,
    is_full,
    is_of_echo,
)
from dflash_console.cli.terminals import is_terminal, why_no_screen

if TYPE_CHECKING:
    from dflash_console.config import Config
    from dflash_console.copies import NeedCode

__all__ = ["main"]

INTERRUPTED = 130
FAULT = 70
"""sysexits.h's EX_SOFTWARE: not one of the codes that mean something about the hosts."""

LATER: dict[str, str] = {
    "demo": "The console on an embedded demo fleet",
    "init": "Write a config from ~/.ssh/config, Ansible or by asking",
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


class Before(NamedTuple):
    """What stands before the command's name and is for all commands."""

    config: Path | None
    read_only: bool


class InOrder(click.Group):
    """Lists its commands in the order in which they were added, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=InOrder,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Watch a fleet of GPU hosts that run SGLang with DFlash. Without a command, opens the console.",
    epilog="Exit codes: 0 fine or done, 1 critical findings, not ready, differs, or failed and undone, 2 wrong usage "
    "or config or no terminal for the console, 3 a host could not be reached, 4 refused and not begun, 74 the output "
    "can't be written, 130 cancelled.",
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
    context.obj = Before(config, read_only)
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

    settings = load(config or context.obj.config, os.environ)
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

    settings = load(config or context.obj.config, os.environ)
    return run_verify(settings, hosts, venv=venv, is_deep=deep, as_json=as_json)


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
yes_option = click.option("--yes", is_flag=True, help="Ask nothing. Covers neither --allow nor --confirm.")
confirm_option = click.option(
    "--confirm", metavar="HOST", multiple=True, help="The name of a production host, once for each."
)


def allow_option(function: Callable[..., int]) -> Callable[..., int]:
    """`--allow`, with what it takes and means."""
    words = (
        "A yes of its own, once for each: onto_source (its role is source), running (something runs from that "
        "environment), unverified (the source is not ready), python (another minor version), warned and layer (the "
        "swap is not in one step: see the plan)."
    )
    names = ["onto_source", "running", "unverified", "warned", "layer", "python"]
    return click.option("--allow", metavar="CODE", multiple=True, type=click.Choice(names), help=words)(
        function
    )


@program.command(
    "compare",
    help="Show which files of the package differ. SOURCE and TARGET are HOST or HOST:/path/of/environment; `added` are "
    "only in the source. Exit code 0: none differ, 1: some do, or it can't be told.",
    short_help="Show which files of the package differ on two hosts",
)
@click.argument("source")
@click.argument("target")
@json_option
@config_option
@click.pass_context
def compare(context: click.Context, source: str, target: str, as_json: bool, config: Path | None) -> int:
    from dflash_console.cli.compare import run_compare
    from dflash_console.config import load

    settings = load(config or context.obj.config, os.environ)
    return run_compare(settings, source, target, as_json=as_json)


@program.command(
    "copy",
    help="Copy the package from one environment to others. SOURCE and TARGET are HOST or HOST:/path/of/environment. "
    "Shows the plan and asks; without a terminal nothing is done but with --yes. The package is swapped whole and "
    "verified, or everything is as it was. Exit code 0: done, 1: failed and undone, 4: not begun.",
    short_help="Copy the package from one host to others",
)
@click.argument("source")
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@yes_option
@allow_option
@confirm_option
@json_option
@config_option
@click.pass_context
def copy(
    context: click.Context,
    source: str,
    targets: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    allow: tuple[NeedCode, ...],
    confirm: tuple[str, ...],
    as_json: bool,
    config: Path | None,
) -> int:
    from dflash_console.cli.consent import Given
    from dflash_console.cli.copy import run_copy
    from dflash_console.config import load

    settings = load(config or context.obj.config, os.environ)
    given = Given(yes, allow, confirm, context.obj.read_only or settings.console.read_only)
    return run_copy(settings, source, targets, given, is_dry_run=dry_run, as_json=as_json)


@program.command(
    "rollback",
    help="Put the package back that the last copy replaced, or another backup. The place is HOST or "
    "HOST:/path/of/environment. Exit code 0: done, 1: failed and undone or no backup, 4: not begun.",
    short_help="Put the package back as it was before the last copy",
)
@click.argument("place", metavar="HOST[:VENV]")
@click.option(
    "--backup", metavar="ID", default="", help="Another backup than the newest that a copy replaced."
)
@click.option("--list", "is_list", is_flag=True, help="Only show which backups there are.")
@yes_option
@allow_option
@confirm_option
@json_option
@config_option
@click.pass_context
def rollback(
    context: click.Context,
    place: str,
    backup: str,
    is_list: bool,
    yes: bool,
    allow: tuple[NeedCode, ...],
    confirm: tuple[str, ...],
    as_json: bool,
    config: Path | None,
) -> int:
    from dflash_console.cli.consent import Given
    from dflash_console.cli.rollback import run_list, run_rollback
    from dflash_console.config import load

    settings = load(config or context.obj.config, os.environ)
    if is_list:
        return run_list(settings, place, as_json=as_json)
    given = Given(yes, allow, confirm, context.obj.read_only or settings.console.read_only)
    return run_rollback(settings, place, backup, given, as_json=as_json)


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
        complain_of_usage(error)
        return error.exit_code
    except ConsoleError as error:
        complain(str(error))
        return 2
    except Exception as error:  # noqa: BLE001 - the top: a fault of ours, shown without the values of variables
        if isinstance(error, OSError) and is_of_echo(error):
            return cant_write(error.strerror or str(error))
        complain("a fault of the console itself; please report what follows")
        complain_of(error)
        return FAULT
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and is_full(stream):
                discard(stream)
