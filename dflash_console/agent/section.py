"""What a section of the agent looks like to the main loop: one subject, read at its own pace, one JSON value.

Agent modules never import `typing` or `dataclasses` while running: each costs a megabyte on every host.
"""

from __future__ import annotations

__all__ = ["Section", "missing", "shortened"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Section:
    """The base of all sections; each method does nothing unless a section needs it.

    The loop is single-threaded: no method may take longer than a few milliseconds, so whatever can hang (a
    driver, a network mount, /proc/PID/cmdline of a stuck process) is read in a child (`child.OneShot`) and
    collected by `fds` and `ready`. A method that raises does no harm to the other sections: a Note goes to
    the console and the section is called again after a back-off. `now` is time.monotonic() everywhere.
    """

    name = ""
    """The section's key in a Sample."""

    value: object = None
    """The newest whole value, ready for JSON; None until there is one. Replaced by a new object, never
    changed."""

    @property
    def note(self) -> str:
        """What the operator should know beside the value, such as why nothing is there; sent as a Note with it."""
        return ""

    def configure(self, spec: dict[str, Any]) -> None:
        """Take the WatchSpec; called before the first tick and whenever the spec changes."""

    def fds(self) -> list[int]:
        """The file descriptors to wait on for reading; may differ with each call."""
        return []

    def ready(self, fd: int, now: float) -> None:
        """One of `fds` is readable (or at its end)."""

    def tick(self, now: float) -> None:
        """Called once every interval; starts whatever is due and minds the deadlines."""

    def observe(self, name: str, value: Any) -> None:
        """Another section, by its name, has a new value."""

    def refresh(self) -> None:
        """The next tick reads everything anew."""

    def close(self) -> None:
        """End the children; called once, when the agent ends."""


def shortened(text: str, limit: int) -> str:
    """The text in at most `limit` characters; one that was cut ends with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def missing(reason: str, detail: str = "") -> dict[str, str]:
    """What stands on the wire where a value could be. `reason` is a model.Reason; `detail` is for people."""
    return {"missing": reason, "detail": detail}
