"""The one gate before a change on a host, whoever asks for it."""

from __future__ import annotations

from dflash_console.copies import Consent, TargetPlan

__all__ = ["read_only_words", "refusal"]


def read_only_words(*, is_read_only: bool) -> str:
    """Why a console that is read-only changes nothing; empty for one that is not."""
    words = "the console is read-only: start it without --read-only, and without read_only in the config"
    return words if is_read_only else ""


def refusal(plan: TargetPlan, consent: Consent, *, read_only: bool) -> str:
    """Why this may not be done: read-only mode, a plan that has a problem, a failed check, no yes, a need without its
    own yes, or a production host whose name was not typed. Empty when it may.

    What has changed on the host since the plan is found by the host itself, when it is claimed.
    """
    if why := read_only_words(is_read_only=read_only):
        return why
    if plan.problem:
        return plan.problem
    if plan.look is None:
        return f"{plan.side} was not looked at"
    if plan.failed:
        return "; ".join(f"{check.name}: {check.detail}" for check in plan.failed)
    if not consent.yes:
        return "not confirmed"
    for need in plan.needs:
        if need.code == "production":
            if plan.side.host not in consent.typed:
                return f"{plan.side.host} is a production host: its name was not typed"
        elif need.code not in consent.allowed:
            return f"needs a yes of its own ({need.code}): {need.text}"
    return ""
