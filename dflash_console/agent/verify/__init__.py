"""Proves an environment's package, a part at a time, each in a child.

A request is `{"do": "verify", "part": PART, "venv": PATH, "package": NAME, "modules": [[NAME, ...], ...],
"limit": seconds, ...}`: of each list of modules one has to be there. The answer is `{"checks": [...], "facts":
{...}}` with checks as `checks.check` makes them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..jobs import Job

__all__ = ["fingerprint_job", "job"]

SPARE = 5.0
"""Seconds beyond its limit in which a deep part ends what hangs, and answers."""


def job(message: dict[str, Any]) -> Job:
    """The job that answers a `verify` request. Raises ValueError for a part that is none, KeyError or TypeError
    for a message that is incomplete."""
    part = message["part"]
    if part == "files":
        from .files import files_job

        return files_job(message)
    if part == "find_spec":
        from .find_spec import find_spec_job

        return find_spec_job(message)
    if part == "service":
        from .service import service_job

        return service_job(message)
    from ..deep import PARTS

    if part not in PARTS:
        raise ValueError(f"no part of a verification: {part!r}")
    return _deep_job(part, message)


def _deep_job(part: str, message: dict[str, Any]) -> Job:
    from ..deep import work_of
    from ..jobs import Job

    work = work_of(part)
    deadline = float(message["limit"]) + SPARE
    return Job(lambda channel: work(channel, message), deadline, key=f"{part} {message['venv']}")


def fingerprint_job(message: dict[str, Any]) -> Job:
    """The job that answers a `fingerprint` request: `venv` and `package`."""
    from .files import fingerprint_job as make

    return make(message)
