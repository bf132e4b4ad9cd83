"""Starting the agent in a fresh process on a host, through any login shell, whatever its rc files print."""

from __future__ import annotations

import asyncio
import secrets
import threading

from dflash_console.config import HostConfig
from dflash_console.errors import AgentFailed, LinkError, NoPython, Unreachable
from dflash_console.link.bundle import NO_PYTHON, bundle
from dflash_console.link.clean import clean, clean_bytes
from dflash_console.link.process import Process
from dflash_console.link.threads import in_thread

__all__ = ["boot", "ending"]

NOISE_LIMIT = 64 << 10
"""Bytes that rc files may print before the agent speaks."""
SHOWN = 600
"""Characters of what a host printed, in an error's text."""

_packing = threading.Lock()


async def boot(process: Process, host: HostConfig, limit: float) -> bytes:
    """Sends the agent's source and waits, at most `limit` seconds, for its sync token.

    Gives back what came after the token: the first frames. Raises NoPython, AgentFailed, or what ended it.
    """
    python = host.python or ""
    if "\n" in python or "\r" in python:
        raise NoPython(f"`python` of [hosts.{host.name}] holds a line break: {clean(python)!r}")
    token = secrets.token_hex(16)
    source = await in_thread(lambda: _packed(token))
    process.write(f"{python}\n{len(source)}\n".encode("utf-8", "surrogateescape") + source)
    noise = bytearray()
    try:
        async with asyncio.timeout(limit):
            return await _after(f"\n{token}\n".encode("ascii"), process, noise)
    except TimeoutError:
        raise AgentFailed(
            f"{host.name}: the login shell or Python did not start the agent in {limit:.0f} s"
            f"{_said(process, noise)}"
        ) from None
    except EOFError:
        raise _why_it_ended(process, host, noise) from None


def ending(process: Process, name: str) -> LinkError:
    """The error for an agent whose process has ended, or whose link was lost."""
    if process.failure is not None:
        return process.failure
    how = _how(process)
    if not how:
        return Unreachable(f"{name} closed the connection: it shuts down, or its sshd was stopped")
    return AgentFailed(f"the agent on {name} ended {how}{_said(process, b'')}")


def _packed(token: str) -> bytes:
    # One at a time: the first packs for all, the others find it done.
    with _packing:
        return bundle(token)


async def _after(mark: bytes, process: Process, noise: bytearray) -> bytes:
    while True:
        piece = await process.read()
        if not piece:
            await process.wait()
            raise EOFError
        searched = max(0, len(noise) - len(mark))
        noise += piece
        at = noise.find(mark, searched)
        if at >= 0:
            return bytes(noise[at + len(mark) :])
        if len(noise) > NOISE_LIMIT:
            raise AgentFailed(
                f"the login shell prints without end: more than {NOISE_LIMIT >> 10} KiB came before the "
                f"agent, beginning with {clean_bytes(bytes(noise[:SHOWN]), SHOWN)!r}"
            )


def _why_it_ended(process: Process, host: HostConfig, noise: bytearray) -> LinkError:
    if process.failure is not None:
        return process.failure
    for line in bytes(noise).splitlines():
        if line.startswith(NO_PYTHON.encode("ascii")):
            return _no_python(host, clean_bytes(line[len(NO_PYTHON) :], SHOWN).strip(" ,"))
    how = _how(process) or "without a word"
    return AgentFailed(
        f"{host.name}: the login shell or Python ended {how} before the agent ran{_said(process, noise)}"
    )


def _no_python(host: HostConfig, found: str) -> NoPython:
    key = f"`python` in [hosts.{host.name}] of the config"
    if host.python:
        return NoPython(
            f"{host.name}: {key} is no Python 3.8 or newer there: {found}; correct it, or leave it out to have "
            "one looked for"
        )
    return NoPython(f"{host.name} has no Python 3.8 or newer ({found}): install one, or name it as {key}")


def _how(process: Process) -> str:
    if process.exit_signal:
        return f"by signal {clean(process.exit_signal, 20)}"
    return "" if process.exit_status is None else f"with exit {process.exit_status}"


def _said(process: Process, noise: bytes | bytearray) -> str:
    # The end says most: the last line of a traceback, of a complaint.
    words = [
        clean_bytes(bytes(data[-SHOWN:]), SHOWN) for data in (noise, process.stderr) if bytes(data).strip()
    ]
    return f"; the host said: {' / '.join(words)}" if words else ""
