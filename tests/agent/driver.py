"""The console's end of an agent, for tests: boots it as a login shell on a host would, and speaks frames with
it."""

from __future__ import annotations

import itertools
import json
import os
import re
import secrets
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dflash_console.link.bundle import BOOT_COMMAND, READY, TRYING, bundle
from dflash_console.model import Answer, FromAgent, Note, Sample, decode_cell

__all__ = [
    "OWN_LINES",
    "PATIENCE",
    "SPEC",
    "Agent",
    "boot",
    "children_of",
    "is_gone",
    "run_sections",
    "up_to",
]

PATIENCE = 30.0
"""Seconds that anything may take on a busy machine before a test fails."""
OWN_LINES = re.compile(rf"{READY}\n|{TRYING} .*\n")
"""What the line prints when all is well."""
HEADER = struct.Struct(">IB")
SPEC: dict[str, Any] = {
    "interval": 0.1,
    "package": "sglang",
    "modules": [["sglang.srt.speculative.dflash_worker"]],
    "distributions": ["torch"],
    "venvs": None,
    "units": [],
    "paths": [],
}


class Agent:
    """A running agent. What it sends is decoded and validated by the console's model."""

    def __init__(self, process: subprocess.Popen[bytes], noise: bytes = b"") -> None:
        self.process = process
        self.noise = noise
        """What came before the token."""
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin = process.stdin
        self._stdout = process.stdout.fileno()
        self._data = b""
        self._numbers = itertools.count(1)
        self._decoder: msgspec.json.Decoder[FromAgent] = msgspec.json.Decoder(FromAgent, dec_hook=decode_cell)

    def ask(self, do: str, **fields: object) -> int:
        """Send a request; its number."""
        number = next(self._numbers)
        payload = json.dumps({"do": do, "id": number, **fields}).encode()
        self.stdin.write(HEADER.pack(len(payload), 0) + payload)
        self.stdin.flush()
        return number

    def read_raw(self, within: float = PATIENCE) -> bytes | None:
        """The next frame's payload; None at the end."""
        deadline = time.monotonic() + within
        while True:
            if len(self._data) >= HEADER.size:
                length, kind = HEADER.unpack_from(self._data)
                assert kind == 0
                end = HEADER.size + length
                if len(self._data) >= end:
                    payload, self._data = self._data[HEADER.size : end], self._data[end:]
                    return payload
            if not select.select([self._stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"the agent said nothing whole within {within:.0f} s")
            data = os.read(self._stdout, 1 << 16)
            if not data:
                return None
            self._data += data

    def read(self) -> FromAgent:
        """The next message."""
        payload = self.read_raw()
        if payload is None:
            errors = self.process.stderr.read().decode() if self.process.stderr is not None else ""
            raise AssertionError(f"the agent has ended with {self.ended()}: {errors}")
        assert payload.isascii()
        return self._decoder.decode(payload)

    def answer(self, do: str, **fields: object) -> Answer:
        """Ask and wait for the answer; what comes before it is thrown away."""
        number = self.ask(do, **fields)
        found: Answer = self.until(
            lambda message: isinstance(message, Answer) and message.id == number and message
        )
        return found

    def until(self, look: Callable[[Any], Any]) -> Any:
        """Read messages until the look gives a true value; that value."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = look(self.read())
            if found:
                return found
        raise AssertionError("none of the agent's messages was the right one")

    def section(self, name: str, look: Callable[[Any], object] = lambda value: True) -> Any:
        """Read samples until one has the section and its value pleases the look; the value."""

        def in_sample(message: object) -> object:
            value = getattr(message, name) if isinstance(message, Sample) else msgspec.UNSET
            return [value] if value is not msgspec.UNSET and look(value) else None

        return self.until(in_sample)[0]

    def note(self) -> Note:
        """Read until a note comes."""
        found: Note = self.until(lambda message: isinstance(message, Note) and message)
        return found

    def ended(self) -> int:
        """Wait for the agent's end; its exit code."""
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """End it as a console does, or else by force."""
        try:
            if not self.stdin.closed:
                self.stdin.close()
            self.process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait(PATIENCE)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def boot(
    python: str = "",
    shell: Sequence[str] = ("/bin/sh", "-c"),
    *,
    env: Mapping[str, str] | None = None,
    heartbeat: float = 30.0,
    program: str = BOOT_COMMAND,
) -> Agent:
    """Boot the agent as it is shipped: the line through a login shell, the interpreter's name, the source, up
    to the token. Raises AssertionError with what came instead of the token."""
    process = subprocess.Popen(
        [*shell, program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        start_new_session=True,
    )
    token = secrets.token_hex(8)
    source = bundle(token, heartbeat=heartbeat)
    assert process.stdin is not None
    noise = up_to(f"{READY}\n", process)
    try:
        process.stdin.write(python.encode() + b"\n%d\n" % len(source) + source)
        process.stdin.flush()
    except BrokenPipeError:
        pass
    noise += up_to(f"\n{token}\n", process)
    return Agent(process, OWN_LINES.sub("", noise.decode("utf-8", "replace")).encode())


def up_to(mark: str, process: subprocess.Popen[bytes]) -> bytes:
    """What a process prints before the mark. Raises AssertionError with what came instead of it."""
    assert process.stdout is not None
    noise = b""
    while not noise.endswith(mark.encode()):
        byte = process.stdout.read(1)
        if not byte:
            _, errors = process.communicate(timeout=PATIENCE)
            raise AssertionError(f"exit {process.returncode}: {noise.decode()} {errors.decode()}")
        noise += byte
    return noise[: -len(mark)]


def run_sections(program: str, *, heartbeat: float = 30.0) -> Agent:
    """An agent of this interpreter with the sections that the program text defines in `sections`."""
    script = (
        "import os, signal, sys, time\n"
        "from dflash_console.agent import main\n"
        "from dflash_console.agent.section import Section, missing\n"
        "from dflash_console.agent.child import Child, OneShot\n"
        f"{program}\n"
        "main.SECTIONS.clear()\n"
        "main.SECTIONS.update(sections)\n"
        f"sys.exit(main.main({heartbeat}))\n"
    )
    pipe = subprocess.PIPE
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=pipe, cwd=root)
    return Agent(process)


def children_of(pid: int) -> list[int]:
    """The pids of a process's children."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that nobody has asked for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
