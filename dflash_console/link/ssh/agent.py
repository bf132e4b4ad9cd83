"""The operator's ssh-agent, which may hang or talk nonsense without harm."""

from __future__ import annotations

import asyncio
from typing import cast

import asyncssh

from dflash_console.link.clean import clean
from dflash_console.link.ssh.identities import Identity

__all__ = ["Agent"]

LIST_TIMEOUT = 3.0
"""Seconds for the agent to list its keys."""
FAILURE = b"\5"
"""How a reply begins that is none (SSH_AGENT_FAILURE of the agent protocol)."""
MOST_OF_A_REPLY = 256 << 10
"""Bytes, as ssh has it (AGENT_MAX_LEN in its sources)."""


class Agent:
    """A connection to an agent. asyncssh asks it, over what this hands out."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_asked = False
        """A reply is waited for."""
        self.was_wanted = False
        """It was asked for more than its keys, which can only be a signature: the host would take one of them."""
        self.has_refused = False
        """It did not sign with such a key."""
        self._is_listed = False
        self._writer: asyncio.StreamWriter | None = None

    async def identities(self) -> tuple[list[Identity], str]:
        """The keys it holds, in its order, and why there are none if it can't be asked."""
        try:
            async with asyncio.timeout(LIST_TIMEOUT):
                pairs = await asyncssh.SSHAgentClient(self).get_keys()
        except TimeoutError:
            return [], f"the ssh-agent at {self.path} does not answer"
        except (OSError, ValueError) as error:
            return [], f"the ssh-agent at {self.path} can't be asked ({clean(str(error), 100)})"
        self._is_listed = True
        return [
            Identity(
                pair.public_data, f"{clean(pair.get_comment(errors='replace') or 'key', 80)} (agent)", pair
            )
            for pair in pairs
        ], ""

    def leave(self) -> None:
        """Closes the connection, whatever it is in the middle of."""
        if self._writer is not None:
            self._writer.transport.abort()

    def asked(self) -> None:
        """Notes that a reply is waited for."""
        self.is_asked = True
        self.was_wanted = self._is_listed

    # ---- asked by asyncssh

    async def open_agent_connection(self) -> tuple[asyncssh.SSHReader[bytes], asyncssh.SSHWriter[bytes]]:
        self.leave()
        reader, self._writer = await asyncio.open_unix_connection(self.path)
        return cast(
            tuple[asyncssh.SSHReader[bytes], asyncssh.SSHWriter[bytes]],
            (_Replies(self, reader), self._writer),
        )


class _Replies:
    """The agent's replies, none of which may be larger than ssh allows."""

    def __init__(self, agent: Agent, reader: asyncio.StreamReader) -> None:
        self._agent = agent
        self._reader = reader

    async def readexactly(self, size: int) -> bytes:
        if size > MOST_OF_A_REPLY:
            raise OSError(f"it sends a reply of {size} bytes")
        self._agent.asked()
        try:
            reply = await self._reader.readexactly(size)
        except (OSError, EOFError):
            self._agent.is_asked = False
            raise
        # Not when this is cancelled: a login that takes too long is to know that it was for the agent.
        self._agent.is_asked = False
        self._agent.has_refused |= self._agent.was_wanted and reply[:1] == FAILURE
        return reply
