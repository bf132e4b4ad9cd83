"""What the package requires of other distributions, weighed on the target before anything is copied there."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from dflash_console.config import Config
from dflash_console.copies import Side
from dflash_console.errors import LinkError
from dflash_console.fleet import HostView
from dflash_console.link.shipment import deep_modules
from dflash_console.operations.orders import LIMITS, order
from dflash_console.operations.reaching import Reaching
from dflash_console.operations.verify import SPARE
from dflash_console.verdict import Check, PartAnswer

__all__ = ["Requirements", "ask_pins", "requirements_of"]

ASKING = 10.0
SHIPPING = 30.0

_decoder = msgspec.json.Decoder(PartAnswer)


class Requirements(NamedTuple):
    """The source's metadata, or why it can't be had."""

    metadata: str = ""
    problem: str = ""


async def requirements_of(
    fleet: Reaching, config: Config, view: HostView | None, source: Side
) -> Requirements:
    """What the package on the source requires, as its dist-info says. Never raises a LinkError."""
    if view is None or view.snapshot is None:
        return Requirements(problem=f"{source.host} is not connected")
    fields = order(view, config, source.venv, fleet.views(), is_deep=False).fields
    try:
        raw = await fleet.request(
            source.host, "verify", ASKING, **{**fields, "part": "metadata", "limit": ASKING}
        )
        metadata = "\n".join(_decoder.decode(raw).facts.metadata)
    except LinkError as error:
        return Requirements(problem=str(error))
    except msgspec.MsgspecError as error:
        return Requirements(problem=f"{source.host} answered with nonsense: {error}")
    if not metadata:
        return Requirements(
            problem=f"the dist-info on {source} does not belong to the package there, or has no METADATA"
        )
    return Requirements(metadata)


async def ask_pins(
    fleet: Reaching,
    config: Config,
    view: HostView | None,
    requirements: Requirements,
    source: Side,
    side: Side,
) -> Check:
    """The check `pins`: what of it the target does not meet. Never raises a LinkError."""
    if requirements.problem:
        return Check("pins", "warn", f"what the package requires could not be told: {requirements.problem}")
    if view is None or view.snapshot is None:
        return Check("pins", "warn", f"{side.host} is not connected")
    fields = order(view, config, side.venv, fleet.views(), is_deep=True).fields
    try:
        await fleet.request(side.host, "ship", SHIPPING, modules=deep_modules(("packaging",)))
        raw = await fleet.request(
            side.host,
            "verify",
            LIMITS["pins"] + SPARE,
            **{
                **fields,
                "part": "pins",
                "limit": LIMITS["pins"],
                "source": {"host": source.host, "venv": source.venv},
                "source_metadata": requirements.metadata,
                # The package that is there now, and its dist-info, go away.
                "is_planned": True,
            },
        )
        checks = {check.name: check for check in _decoder.decode(raw).checks}
    except LinkError as error:
        return Check("pins", "warn", f"{side} could not be asked for what the package requires: {error}")
    except msgspec.MsgspecError as error:
        return Check("pins", "warn", f"{side} answered with nonsense: {error}")
    told = checks.get("requires")
    if told is None:
        return Check("pins", "warn", f"{side} said nothing of what the package requires")
    if told.state != "unknown" and not any(f"dist-info on {source}" in line for line in told.evidence):
        return Check("pins", "warn", f"{side} told of its own package's requirements, not of the source's")
    return Check(
        "pins", "pass" if told.state == "pass" else "warn", f"{told.detail} on {side}"[:4000], told.evidence
    )
