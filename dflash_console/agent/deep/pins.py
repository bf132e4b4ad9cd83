"""The part `pins`: what the package asks of other distributions, against what is installed."""

from __future__ import annotations

from ..verify.checks import check
from .environment import Environment, find_environment, find_unit
from .minimums import check_minimums, read_minimums
from .requirements import check_requires, header_of
from .source_record import check_source, pack_record

__all__ = ["tell_metadata", "work"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..child import Channel

TOLD = ("Name:", "Version:", "Requires-Python:", "Requires-Dist:")


def work(channel: Channel, message: dict[str, Any]) -> None:
    """Sends the checks `requires` and `minimums`, and `source` of a package that was copied from a known host."""
    environment = find_environment(message)
    if not isinstance(environment, Environment):
        checks = [check(name, "unknown", environment) for name in ("requires", "minimums")]
    else:
        minimums = read_minimums(environment.tree)
        checks = [
            check_requires(environment, message, minimums),
            check_minimums(environment, find_unit(environment, message), minimums),
            *check_source(environment, message),
        ]
    channel.send({"checks": checks, "facts": {}})


def tell_metadata(channel: Channel, message: dict[str, Any]) -> None:
    """Sends the fact `metadata`: what `requires` needs of the METADATA of the installed package, line by line, for
    another host's verification, and its RECORD packed in lines. No lines when there is none, or when it is of another
    version than the tree."""
    environment = find_environment(message)
    text = None
    if isinstance(environment, Environment) and environment.tree_version == environment.dist_version:
        text = environment.metadata(environment.package)
    lines = [line for line in header_of(text or "") if line.startswith(TOLD)]
    if isinstance(environment, Environment) and lines:
        lines += pack_record(environment)
    channel.send({"checks": [], "facts": {"metadata": lines}})
