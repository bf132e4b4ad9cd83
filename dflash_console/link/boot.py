"""Starting the agent in a fresh process on a host, through any login shell, whatever its rc files print."""

from __future__ import annotations

import asyncio
import secrets
import threading

from dflash_console.config import HostConfig
from dflash_console.errors import AgentFailed, BootHangs, LinkError, NoPython, Refused, Unreachable
from dflash_console.link.bundle import NO_PYTHON, READY, TRYING, bundle
from dflash_console.link.clean import clean, clean_bytes
from dflash_console.link.process import Process
from dflash_console.link.threads import in_thread

__all__ = ["boot", "ending"]

NOISE_LIMIT = 64 << 10
"""Bytes that rc files may print before the agent speaks."""
SHOWN = 600
"""Characters of what a host printed, in an error's text."""

ERRAND_HEARTBEAT = 60.0
"""Seconds without a word from the console after which an agent with an errand ends; its pings come every ten."""

_packing = threading.Lock()


async def boot(process: Process, host: HostConfig, limit: float, errand: str = "") -> bytes:
    """Sends the agent's source once the host asks for it, and waits for its sync token; `limit` seconds for all.

    `errand` is as for `bundle`.

    Gives back what came after the token: the first frames. Raises BootHangs, NoPython, Refused when
    the account does not run it, AgentFailed, or what ended it.
    """
    python = host.python or ""
    if "\n" in python or "\r" in python:
        raise NoPython(f"`python` of [hosts.{host.name}] holds a line break: {clean(python)!r}")
    token = secrets.token_hex(16)
    source = await in_thread(lambda: _packed(token, errand))
    heard = _Heard(process)
    try:
        async with asyncio.timeout(limit):
            await heard.until(f"{READY}\n")
            process.write(f"{python}\n{len(source)}\n".encode("utf-8", "surrogateescape") + source)
            await heard.until(f"\n{token}\n")
            return bytes(heard.rest)
    except TimeoutError:
        raise _why_it_hangs(process, host, heard, limit) from None
    except EOFError:
        raise _why_it_ended(process, host, heard) from None


def ending(process: Process, name: str) -> LinkError:
    """The error for an agent whose process has ended, or whose link was lost."""
    if process.failure is not None:
        return process.failure
    how = _how(process)
    if not how:
        return Unreachable(f"{name} closed the connection: it shuts down, or its sshd was stopped")
    return AgentFailed(f"the agent on {name} ended {how}{_said(process.stderr)}")


def _packed(token: str, errand: str) -> bytes:
    # One at a time: the first packs for all, the others find it done.
    with _packing:
        return bundle(token, heartbeat=ERRAND_HEARTBEAT, errand=errand) if errand else bundle(token)


class _Heard:
    """What a host has printed, up to the marks that were waited for and behind them."""

    def __init__(self, process: Process) -> None:
        self.noise = bytearray()
        """What came before and between the marks."""
        self.rest = bytearray()
        """What came behind the last mark."""
        self.is_ready = False
        """Whether a mark came."""
        self._process = process

    async def until(self, mark: str) -> None:
        """Reads up to the mark. Raises EOFError when the program ends, AgentFailed when it prints without end."""
        wanted, searched = mark.encode("ascii"), 0
        while (at := self.rest.find(wanted, searched)) < 0:
            searched = max(0, len(self.rest) - len(wanted))
            if len(self.noise) + len(self.rest) > NOISE_LIMIT:
                raise AgentFailed(
                    f"the login shell prints without end: more than {NOISE_LIMIT >> 10} KiB came before the "
                    f"agent, beginning with {clean_bytes(self.words[:SHOWN], SHOWN)!r}"
                )
            piece = await self._process.read()
            if not piece:
                await self._process.wait()
                raise EOFError
            self.rest += piece
        self.noise += self.rest[:at]
        del self.rest[: at + len(wanted)]
        self.is_ready = True

    @property
    def words(self) -> bytes:
        """All that was no line of ours."""
        return b"".join(line for line in self._lines() if not line.startswith(TRYING.encode("ascii")))

    def behind(self, mark: str) -> str | None:
        """The rest of the last line that begins with the mark."""
        start = mark.encode("ascii")
        found = [line for line in self._lines() if line.startswith(start)]
        return clean_bytes(found[-1][len(start) :], SHOWN) if found else None

    def _lines(self) -> list[bytes]:
        return bytes(self.noise + self.rest).splitlines(keepends=True)


def _why_it_hangs(process: Process, host: HostConfig, heard: _Heard, limit: float) -> LinkError:
    said = _said(heard.words, process.stderr)
    if not heard.is_ready:
        return BootHangs(
            f"{host.name}: the login shell did not run the console's command in {limit:.0f} s; a login file there "
            "(such as .bashrc), or a forced command, hangs, waits for input or starts another shell: have it do so "
            f"only on a terminal (`test -t 0`){said}"
        )
    return BootHangs(
        f"{host.name}: `{heard.behind(TRYING) or 'sh'}` did not start the agent in {limit:.0f} s; it hangs, or its "
        f"files are on storage that does not answer: name another one as `python` in [hosts.{host.name}]{said}"
    )


def _why_it_ended(process: Process, host: HostConfig, heard: _Heard) -> LinkError:
    if process.failure is not None:
        return process.failure
    found = heard.behind(NO_PYTHON)
    if found is not None:
        return _no_python(host, found.strip(" ,"), _said(process.stderr))
    if not heard.is_ready and process.exit_status is not None:
        return Refused(
            f"{host.name}: the account runs no command of ours: its login shell, a forced command or a login file "
            f"ended {_how(process)} first (nologin, an expired password, `command=` in authorized_keys, an `exit` in "
            f".bashrc){_said(heard.words, process.stderr)}"
        )
    how = _how(process) or "without a word"
    return AgentFailed(
        f"{host.name}: the login shell or Python ended {how} before the agent ran"
        f"{_said(heard.words, process.stderr)}"
    )


def _no_python(host: HostConfig, found: str, said: str) -> NoPython:
    key = f"`python` in [hosts.{host.name}] of the config"
    if host.python:
        return NoPython(
            f"{host.name}: {key} is no Python 3.8 or newer there: {found}; correct it, or leave it out to have "
            f"one looked for{said}"
        )
    return NoPython(
        f"{host.name} has no Python 3.8 or newer ({found}): install one, or name it as {key}{said}"
    )


def _how(process: Process) -> str:
    if process.exit_signal:
        return f"by signal {clean(process.exit_signal, 20)}"
    return "" if process.exit_status is None else f"with exit {process.exit_status}"


def _said(*words: bytes) -> str:
    # The end says most: the last line of a traceback, of a complaint.
    ends = [clean_bytes(data[-SHOWN:], SHOWN) for data in words if data.strip()]
    return f"; the host said: {' / '.join(ends)}" if ends else ""
