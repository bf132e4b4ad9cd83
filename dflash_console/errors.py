"""Every error that the console raises on purpose.

ConsoleError
├── ConfigError            the config file or the command line is wrong (exit 2)
├── StateError             the console's own state file can't be read or written
├── CopyError              a host's copy process refused or failed what it was asked
└── LinkError              a host can't be watched right now; carries the link state it means
    ├── Unreachable        nothing answered: name, route, port, time-out, connection lost
    ├── Refused            the host answered and did not let us in
    ├── HostKeyUnknown     the host's key is in no known_hosts file
    ├── HostKeyChanged     the host shows another key than the known one
    ├── NoPython           the host has no Python 3.8 or newer
    └── AgentFailed        Python started and the agent did not, or it broke the protocol
        └── BootHangs      the login shell or Python did not get as far as the agent in time

A message says what happened, to what, why if known, and what to do next.
"""

from __future__ import annotations

from typing import ClassVar

from dflash_console.model import LinkState

__all__ = [
    "AgentFailed",
    "BootHangs",
    "ConfigError",
    "ConsoleError",
    "CopyError",
    "HostKeyChanged",
    "HostKeyUnknown",
    "LinkError",
    "NoPython",
    "Refused",
    "StateError",
    "Unreachable",
]


class ConsoleError(Exception):
    """Anything the console raises on purpose; its text is written for the operator."""


class ConfigError(ConsoleError):
    """The config file or the command line is wrong; the text names file and key."""


class StateError(ConsoleError):
    """state.toml can't be read or written; the console goes on without what it remembered."""


class CopyError(ConsoleError):
    """A copy process on a host refused what it was asked, or failed at it; the link and the process still stand."""


class LinkError(ConsoleError):
    """A host can't be watched right now."""

    state: ClassVar[LinkState] = "unreachable"
    """The link state that this error means on the screen."""

    is_lasting: ClassVar[bool] = False
    """Whether a fast retry can't help (and, for authentication, does harm: sshd's PerSourcePenalties)."""


class Unreachable(LinkError):
    """Nothing answered: the name, the route, the port, a time-out, or a connection that was lost."""


class Refused(LinkError):
    """The host answered and did not let us in."""

    state = "refused"
    is_lasting = True


class HostKeyUnknown(LinkError):
    """The host's key is in no known_hosts file."""

    state = "host_key_unknown"
    is_lasting = True


class HostKeyChanged(LinkError):
    """The host shows another key than the known one, or a revoked one."""

    state = "host_key_changed"
    is_lasting = True


class NoPython(LinkError):
    """The host has no Python 3.8 or newer on its PATH or at the configured path."""

    state = "no_python"
    is_lasting = True


class AgentFailed(LinkError):
    """Python started and the agent did not, or it broke the protocol."""

    state = "agent_failed"


class BootHangs(AgentFailed):
    """The login shell or Python did not get as far as the agent in time.

    What hangs in a login file can't be ended from here, so that every further try may leave one more of it.
    """

    is_lasting = True
