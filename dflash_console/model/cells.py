"""What a cell of a picture can hold: a value, or the reason why there is none; and the words for states."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

# gc=False throughout the model: none of these can be part of a cycle, and a fleet holds a hundred thousand of them.

__all__ = [
    "SECTIONS",
    "Bool",
    "Health",
    "Level",
    "LinkState",
    "Missing",
    "Reason",
    "Role",
    "Section",
    "Text",
    "is_missing",
]

Reason = Literal[
    "unsupported", "lost", "reset_required", "permission", "mismatch", "hung", "stale", "not_found", "error"
]
Role = Literal["source", "target", "observe"]
Level = Literal["critical", "warning", "note"]
LinkState = Literal[
    "connecting",
    "up",
    "stale",
    "unreachable",
    "refused",
    "host_key_unknown",
    "host_key_changed",
    "no_python",
    "agent_failed",
]
Section = Literal["host", "gpu", "venvs", "units", "paths"]
"""The sections of a snapshot, by their names in `Sample`."""
SECTIONS: tuple[Section, ...] = get_args(Section)
Health = Literal["ok", "attention", "lost", "reset_required", "hung", "unreadable"]
"""`attention`: usable, but the driver asks for something (recovery action, row remap, uncorrected ECC errors)."""


class Missing(msgspec.Struct, frozen=True, gc=False):
    """Stands where a value could be, and says why there is none."""

    missing: Reason
    detail: str = ""
    """For people; never parsed."""


Text: TypeAlias = str | Missing
Bool: TypeAlias = bool | Missing


def is_missing(value: object) -> bool:
    """Whether a cell holds a reason instead of a value."""
    return isinstance(value, Missing)
