"""How the host is reached, and what its agent could not read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from dflash_console.findings.picture import Picture
from dflash_console.model import Finding, LinkState, LinkStatus

__all__ = ["link_trouble", "reboot", "unread_sections"]

WORDS: dict[LinkState, str] = {
    "stale": "the host is silent; what is shown is old",
    "unreachable": "can't be reached",
    "refused": "the host does not let us in",
    "host_key_unknown": "the host's key is not known",
    "host_key_changed": "THE HOST'S KEY IS NOT THE KNOWN ONE",
    "no_python": "the host has no Python 3.8 or newer",
    "agent_failed": "the agent failed",
}


def link_trouble(link: LinkStatus, ssh: str = "") -> Finding | None:
    """What is wrong with the link; None while it is up or being made for the first time.

    `ssh` is the command that reaches the host by hand.
    """
    if link.state in ("up", "connecting"):
        return None
    detail = " ".join(link.detail.split())
    text = detail or WORDS[link.state]
    if link.state == "stale" and detail:
        text = f"{WORDS[link.state]} ({detail})"
    step = ""
    if ssh and link.state in ("unreachable", "refused"):
        step = f"try: {ssh}"
    return Finding(link.state, "warning" if link.state == "stale" else "critical", "link", text, step)


def reboot(picture: Picture) -> Iterator[Finding]:
    """The host was restarted while the console watched it."""
    if picture.rebooted_at is not None:
        at = datetime.fromtimestamp(picture.rebooted_at, UTC)
        yield Finding(
            "rebooted",
            "note",
            "host",
            f"the host was restarted; seen {at:%Y-%m-%d %H:%M} UTC",
            "journalctl -b -1 -e",
        )


def unread_sections(picture: Picture) -> Iterator[Finding]:
    """What the agent could not read, or left out."""
    for section, text in sorted(picture.notes.items()):
        yield Finding("section_unread", "warning", section, f"not all was read: {text}")
