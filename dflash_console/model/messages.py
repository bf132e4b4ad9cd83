"""What travels between console and agent."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dflash_console.bounds import MOST_ITEMS, Count, Pid, Time
from dflash_console.model.cells import Section
from dflash_console.model.gpus import GpuReport
from dflash_console.model.host import HostInfo, PathInfo, Unit, Venv

__all__ = ["PROTOCOL", "Answer", "FromAgent", "Hello", "Note", "Sample", "WatchSpec"]

PROTOCOL = 1
"""Version of the frames' contents; agent and console always come from the same build, this catches a mix-up."""


# ---- what travels: console to agent


class WatchSpec(msgspec.Struct, frozen=True, gc=False, tag_field="do", tag="watch"):
    """What the agent is to watch; sent once after hello, and again when the config changes."""

    interval: float
    package: str
    modules: list[list[str]]
    """Each entry lists accepted alternatives, most wanted first."""
    distributions: list[str]
    venvs: list[str] | None
    """Paths of the config; None to look for them in the usual places only. Those found are added either way."""
    units: list[str]
    """Names or globs; `user:` before one asks the login user's own manager."""
    paths: list[str]


# ---- what travels: agent to console


class Hello(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="hello"):
    """The agent's first frame."""

    protocol: Count
    python: str
    pid: Pid


class Sample(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="sample"):
    """What changed since the last sample; the first one of each section is whole. A section that is not there is as
    it was. Sections arrive as soon as each is known: the first samples lack the slow ones."""

    at: Time
    host: HostInfo | UnsetType = UNSET
    gpu: GpuReport | UnsetType = UNSET
    venvs: Annotated[list[Venv], Meta(max_length=MOST_ITEMS)] | UnsetType = UNSET
    units: Annotated[list[Unit], Meta(max_length=MOST_ITEMS)] | UnsetType = UNSET
    paths: Annotated[list[PathInfo], Meta(max_length=MOST_ITEMS)] | UnsetType = UNSET


class Answer(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="answer"):
    """The answer to a request, by its number; exactly one of `ok` and `error` is set."""

    id: Count
    ok: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None


class Note(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="note"):
    """A fault inside the agent that does not end it: one section could not be read, with the reason."""

    section: Section
    text: str


FromAgent: TypeAlias = Hello | Sample | Answer | Note
