"""What an operator says yes to: by options, or when asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, get_args

import msgspec

from dflash_console.cli.asking import can_ask, confirms, types
from dflash_console.copies import Consent, Need, NeedCode, TargetPlan, TargetRun
from dflash_console.operations.gate import refusal

__all__ = ["ALLOWABLE", "Agreed", "Given", "agree", "flag_of", "flags_of", "in_options"]

ALLOWABLE: tuple[NeedCode, ...] = tuple(code for code in get_args(NeedCode) if code != "production")
"""What `--allow` takes."""


class Given(NamedTuple):
    """The options of a command that changes hosts."""

    yes: bool = False
    allow: tuple[NeedCode, ...] = ()
    confirm: tuple[str, ...] = ()
    read_only: bool = False

    @property
    def consent(self) -> Consent:
        """Only what the options say."""
        return Consent(self.yes, frozenset(self.allow), frozenset(self.confirm))

    def all_for(self, plan: TargetPlan) -> Consent:
        """That of an operator who says yes to everything."""
        return Consent(True, frozenset(get_args(NeedCode)), frozenset({plan.side.host}))


class Agreed(NamedTuple):
    """Which targets may be changed, with what consent, and why the others may not."""

    targets: tuple[TargetPlan, ...]
    consent: Consent
    refused: tuple[TargetRun, ...]


def flag_of(need: Need, host: str) -> str:
    """The option that says yes to it."""
    return f"--confirm {host}" if need.code == "production" else f"--allow {need.code}"


def flags_of(plan: TargetPlan, given: Given) -> list[str]:
    """The options that are still needed."""
    flags = [] if given.yes else ["--yes"]
    for need in plan.needs:
        is_given = plan.side.host in given.confirm if need.code == "production" else need.code in given.allow
        flags += [] if is_given else [flag_of(need, plan.side.host)]
    return flags


async def agree(plans: Sequence[TargetPlan], given: Given, doing: str) -> Agreed:
    """Asks for what the options leave open, where somebody can answer; else that is refused.

    `doing` is what the last question is about, such as `Copy onto`.
    """
    possible, refused = [], []
    for plan in plans:
        if plan.is_unreachable:
            refused.append(TargetRun(plan.side, "unreachable", plan.problem))
        elif why := refusal(plan, given.all_for(plan), read_only=given.read_only):
            refused.append(TargetRun(plan.side, "refused", why))
        else:
            possible.append(plan)
    consent = given.consent
    if not given.yes and can_ask():
        asked = await _asked(possible, given, doing)
        return Agreed(asked.targets, asked.consent, (*refused, *asked.refused))
    agreed = []
    for plan in possible:
        if refusal(plan, consent, read_only=given.read_only):
            refused.append(TargetRun(plan.side, "refused", _missing(plan, given)))
        else:
            agreed.append(plan)
    return Agreed(tuple(agreed), consent, tuple(refused))


def _missing(plan: TargetPlan, given: Given) -> str:
    """`not confirmed: it needs --yes --allow running`, and why; what is open beside a given --yes is said so."""
    flags = flags_of(plan, given)
    open_needs = [need.text for need in plan.needs if flag_of(need, plan.side.host) in flags]
    why = "not confirmed: --yes alone does not cover it, it needs" if given.yes else "not confirmed: it needs"
    return "; ".join([f"{why} {' '.join(flags)}", *open_needs])


def in_options(run: TargetRun, plan: TargetPlan | None, given: Given, consent: Consent) -> TargetRun:
    """A run that the gate has refused for want of a yes, with the options that give it; any other as it is."""
    if run.state != "refused" or plan is None or not refusal(plan, consent, read_only=False):
        return run
    if refusal(plan, given.all_for(plan), read_only=False):
        return run
    return msgspec.structs.replace(run, detail=_missing(plan, given))


async def _asked(plans: Iterable[TargetPlan], given: Given, doing: str) -> Agreed:
    agreed, refused = [], []
    allowed, typed = set(given.allow), set(given.confirm)
    for plan in plans:
        host = plan.side.host
        why = ""
        for need in plan.needs:
            if need.code == "production":
                if host not in typed and not await types(f"{need.text}:", host):
                    why = f"not confirmed: what was typed is not {host}"
                    break
                typed.add(host)
            elif need.code not in given.allow:
                if not await confirms(f"{plan.side}: {need.text}. Go on all the same?"):
                    why = f"not confirmed: the answer was not yes ({need.code})"
                    break
                allowed.add(need.code)
        if why:
            refused.append(TargetRun(plan.side, "refused", why))
        else:
            agreed.append(plan)
    if agreed and not await confirms(f"{doing} {', '.join(str(plan.side) for plan in agreed)}?"):
        refused += [
            TargetRun(plan.side, "refused", "not confirmed: the answer was not yes") for plan in agreed
        ]
        agreed = []
    return Agreed(tuple(agreed), Consent(bool(agreed), frozenset(allowed), frozenset(typed)), tuple(refused))
