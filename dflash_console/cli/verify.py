"""`verify`: proves the package on every host side by side, then an answer and no link left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import msgspec

from dflash_console.cli.reach import is_linked, reached, view_of, with_fleet
from dflash_console.cli.status import chosen
from dflash_console.cli.streams import complain, emit, harmless_json
from dflash_console.cli.verify_text import NOT_REACHED, progress, verify_text
from dflash_console.config import Config
from dflash_console.fleet import Fleet
from dflash_console.model import LinkStatus
from dflash_console.operations.orders import environments, needed_sections, order
from dflash_console.operations.verify import Turns, prove
from dflash_console.verdict import Check, Verdict

__all__ = ["cut_off", "exit_code", "run_verify", "verdict_object", "verify", "verify_json"]

Told = Callable[[Verdict], None]


def run_verify(
    config: Config, names: Sequence[str], *, venv: str | None, is_deep: bool, as_json: bool
) -> int:
    """Prints the verdicts on these hosts, or on all; gives back the exit code. Raises ConfigError."""
    hosts = chosen(config, names)
    verdicts = asyncio.run(verify(config, tuple(hosts.hosts), venv=venv, is_deep=is_deep, told=_tell))
    if as_json:
        emit(verify_json(verdicts) + b"\n")
    else:
        from dflash_console.cli.status_text import terminal

        emit(verify_text(verdicts, terminal()).encode(errors="replace"))
    return exit_code(verdicts)


async def verify(
    config: Config,
    names: Sequence[str],
    *,
    venv: str | None,
    is_deep: bool,
    told: Told = lambda verdict: None,
    fleet: Fleet | None = None,
) -> list[Verdict]:
    """The verdicts, in the config's order; `told` gets each as it is complete."""

    async def ask(fleet: Fleet) -> list[Verdict]:
        async with asyncio.TaskGroup() as tasks:
            asked = [
                tasks.create_task(_on_host(fleet, config, name, venv, is_deep=is_deep, told=told))
                for name in names
            ]
        return [verdict for task in asked for verdict in task.result()]

    return await with_fleet(config, _with_sources(config, names) if is_deep else names, ask, fleet)


async def _on_host(
    fleet: Fleet, config: Config, name: str, venv: str | None, *, is_deep: bool, told: Told
) -> list[Verdict]:
    view = await reached(fleet, name, needed_sections(config.hosts[name], venv, is_deep=is_deep))
    if not is_linked(view):
        return [_unasked(name, venv, NOT_REACHED, view.link.detail or view.link.state, told)]
    chosen_venvs = (venv,) if venv is not None else environments(view)
    if not chosen_venvs:
        why = view.notes.get("venvs", "no environment is there: name one with --venv or in the config")
        return [_unasked(name, None, "python", why, told)]
    views = fleet.views()
    orders = [
        order(view, config, path, views, is_deep=is_deep, is_brief=False)
        for path in dict.fromkeys(chosen_venvs)
    ]
    async with asyncio.TaskGroup() as tasks:
        turns = Turns()
        proofs = [tasks.create_task(prove(fleet, one, _when_complete(told), turns=turns)) for one in orders]
    view = view_of(fleet, name)
    verdicts = [proof.result() for proof in proofs]
    return verdicts if is_linked(view) else [cut_off(verdict, view.link) for verdict in verdicts]


def cut_off(verdict: Verdict, link: LinkStatus) -> Verdict:
    """A verdict with the loss of the link as a check of its own, where that left something unknown."""
    if all(check.state != "unknown" for check in verdict.checks):
        return verdict
    lost = Check(NOT_REACHED, "unknown", link.detail or link.state)
    return msgspec.structs.replace(verdict, checks=(*verdict.checks, lost))


def _with_sources(config: Config, names: Sequence[str]) -> list[str]:
    """The hosts asked for, and those whose package theirs may be a copy of."""
    return [name for name, host in config.hosts.items() if name in names or host.role == "source"]


def _unasked(name: str, venv: str | None, check: str, why: str, told: Told) -> Verdict:
    verdict = Verdict(name, venv or "", (Check(check, "unknown" if check == NOT_REACHED else "fail", why),))
    told(verdict)
    return verdict


def _when_complete(told: Told) -> Told:
    return lambda verdict: None if verdict.waiting else told(verdict)


def _tell(verdict: Verdict) -> None:
    complain(progress(verdict))


def verify_json(verdicts: Iterable[Verdict]) -> bytes:
    """`{"results": [...]}` in UTF-8, with the evidence that the screen has."""
    return harmless_json(msgspec.json.encode({"results": [verdict_object(verdict) for verdict in verdicts]}))


def verdict_object(verdict: Verdict) -> dict[str, object]:
    """One verdict."""
    return {
        "host": verdict.host,
        "venv": verdict.venv or None,
        "ready": verdict.is_ready,
        "checks": verdict.checks,
        "deep": verdict.is_deep,
    }


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """3 when a host could not be reached, else 1 when an environment is not ready, else 0."""
    code = 0
    for verdict in verdicts:
        if any(check.name == NOT_REACHED for check in verdict.checks):
            return 3
        if not verdict.is_ready:
            code = 1
    return code
