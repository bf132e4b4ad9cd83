"""Small real programs that take the agent's place, to misbehave in ways that the agent does not."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from dflash_console.link import boot, local
from dflash_console.link.bundle import BOOT_COMMAND, boot_command
from dflash_console.link.local import LocalConnection
from tests.shells import Login

__all__ = ["behind", "instead_of_the_agent", "program", "through"]

SPEECH = """
import json, os, signal, struct, sys, time

def put(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()

def frame(payload, kind=0):
    put(struct.pack(">IB", len(payload), kind) + payload)

def say(**message):
    frame(json.dumps(message).encode())

def hear():
    head = sys.stdin.buffer.read(5)
    if len(head) < 5:
        return None
    return json.loads(sys.stdin.buffer.read(struct.unpack(">IB", head)[0]))

def hello(protocol=1):
    say(type="hello", protocol=protocol, python="3.11.0", pid=os.getpid())

put(b"\\n@TOKEN@\\n")
"""


def program(body: str) -> Callable[..., bytes]:
    """What `bundle` gives back for a program that can `say`, `hear`, `frame`, `put` and say `hello`."""
    return lambda token, **options: (SPEECH.replace("@TOKEN@", token) + body).encode()


def instead_of_the_agent(monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Every host runs the program from now on."""
    monkeypatch.setattr(boot, "bundle", program(body))


def behind(monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    """This machine's login shell runs some lines first, as rc files do."""
    monkeypatch.setattr(local, "BOOT_COMMAND", f"{before}\n{BOOT_COMMAND}")


def through(login: Login, limit: int = 30) -> LocalConnection:
    """This machine as a host with that login shell, on which a boot may take `limit` seconds."""
    settings = [f"{name}={value}" for name, value in login.env.items()]
    words = shlex.join(["env", *settings, *login.command, boot_command(limit)])
    return LocalConnection(f"exec {words}")
