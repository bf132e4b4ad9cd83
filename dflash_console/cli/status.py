"""`status`: one look at every host, then an answer and no link left."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from dflash_console.cli.app import FAULT
from dflash_console.cli.status_json import status_json
from dflash_console.cli.streams import complain, complain_of, emit
from dflash_console.config import Config
from dflash_console.errors import ConfigError
from dflash_console.findings import FAULT as console_fault
from dflash_console.findings import fault_finding, findings_of
from dflash_console.fleet import SECTIONS, Fleet, HostView, Pace
from dflash_console.model import Finding, LinkStatus

__all__ = ["chosen", "exit_code", "is_settled", "look", "run_status"]

LIMIT = 10.0
"""Seconds until the answer is given with what is known by then."""
PATIENCE = 5.0
"""Seconds during which a host that could not be reached is tried again."""
PACE = Pace(connect=7.0, opening=9.0)
"""A host that takes the connection and says nothing is given up with its reason, before the limit."""

LookedAt: TypeAlias = tuple[HostView, Sequence[Finding]]


def run_status(config: Config, names: Sequence[str], *, as_json: bool) -> int:
    """Prints the status of these hosts, or of all; gives back the exit code. Raises ConfigError."""
    views = asyncio.run(look(chosen(config, names)))
    looked_at: list[LookedAt] = [(view, findings_of(view)) for view in views]
    if as_json:

        def tell(hosts: Sequence[LookedAt]) -> bytes:
            return status_json(hosts) + b"\n"

    else:
        from dflash_console.cli.status_text import status_text, terminal

        place = terminal()

        def tell(hosts: Sequence[LookedAt]) -> bytes:
            return status_text(hosts, place, config.console.interval).encode(errors="replace")

    looked_at, failures = tellable(looked_at, tell)
    emit(tell(looked_at))
    for name, failure in failures.items():
        complain(f"a fault of the console itself, over the host {name}; please report what follows")
        complain_of(failure)
    return exit_code(looked_at)


def tellable(
    looked_at: Sequence[LookedAt], tell: Callable[[Sequence[LookedAt]], object]
) -> tuple[list[LookedAt], dict[str, Exception]]:
    """The hosts as they can be told, and the faults of our own by the host over which they came up.

    Such a host has no picture, and the fault as a finding: so the others are still told.
    """
    able: list[LookedAt] = []
    failures: dict[str, Exception] = {}
    for view, findings in looked_at:
        try:
            tell([(view, findings)])
            able.append((view, findings))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
            failures[view.config.name] = error
            able.append(without_picture(view, error))
    return able, failures


def without_picture(view: HostView, error: Exception) -> LookedAt:
    """A host whose picture can't be told, for a fault of the console itself."""
    bare = msgspec.structs.replace(view, snapshot=None, unread=frozenset(SECTIONS), notes={})
    return bare, [*findings_of(bare), fault_finding("the host's picture can't be shown", error)]


def chosen(config: Config, names: Sequence[str]) -> Config:
    """The config with only the hosts of these names, in the config's order; with all when none is named.

    Raises ConfigError for a name that is not in the config.
    """
    for name in names:
        if name not in config.hosts:
            near = difflib.get_close_matches(name, config.hosts, n=1, cutoff=0.5)
            advice = f"did you mean {near[0]}?" if near else f"there are: {', '.join(config.hosts)}"
            raise ConfigError(f"no host {name!r} in {config.path or 'the config'}; {advice}")
    if not names:
        return config
    return msgspec.structs.replace(
        config, hosts={name: host for name, host in config.hosts.items() if name in names}
    )


async def look(config: Config, fleet: Fleet | None = None, limit: float = LIMIT) -> tuple[HostView, ...]:
    """Every host once all its sections are there or it failed for good, after `limit` seconds at most."""
    fleet = fleet or Fleet(config, pace=PACE)
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(fleet.run())
        try:
            async with asyncio.timeout(limit):
                while not all(is_settled(view, loop.time() - began) for view in fleet.views()):
                    await fleet.changed()
        except TimeoutError:
            pass
        views = tuple(as_answered(view, limit) for view in fleet.views())
        running.cancel()
    return views


def is_settled(view: HostView, waited: float) -> bool:
    """Whether waiting longer would tell no more about a host, `waited` seconds after the start."""
    state = view.link.state
    if state in ("up", "stale"):
        return not view.unread - view.notes.keys()
    if state == "connecting":
        return False
    is_tried_again = state in ("unreachable", "agent_failed")
    return not is_tried_again or view.failures > 1 or waited > PATIENCE


def as_answered(view: HostView, limit: float) -> HostView:
    """The view with a link state that is an answer: a host that told nothing by the end was not reached."""
    if view.link.state == "connecting":
        link = LinkStatus("unreachable", f"not reached in {limit:.0f} s", since=view.link.since)
    elif view.link.state in ("up", "stale") and view.snapshot is None:
        text = f"the agent started and told nothing in {limit:.0f} s"
        link = LinkStatus("agent_failed", text, view.link.latency_ms, view.link.since)
    else:
        return view
    return msgspec.structs.replace(view, link=link)


def exit_code(looked_at: Iterable[LookedAt]) -> int:
    """70 with a fault of our own, else 3 when a host could not be reached, else 1 with a critical finding, else 0."""
    code = 0
    for view, findings in looked_at:
        if any(finding.code == console_fault for finding in findings):
            return FAULT
        if view.link.state not in ("up", "stale"):
            code = 3
        elif any(finding.level == "critical" for finding in findings):
            code = max(code, 1)
    return code
