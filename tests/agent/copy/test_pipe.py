"""The link over one socket for both ways, as sshd may give it: every end of the console is seen there too."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent.copy.trees import package
from tests.agent.driver import PATIENCE

CODE = "import sys; from dflash_console.agent.main import main; sys.exit(main(60.0, 'copy'))"


@contextmanager
def over_a_socket() -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """A copy process with a socket as stdin and stdout, and the console's end of it."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    process = subprocess.Popen([sys.executable, "-c", CODE], stdin=theirs.fileno(), stdout=theirs.fileno())
    theirs.close()
    try:
        yield ours, process
    finally:
        ours.close()
        process.wait(PATIENCE)


def ask(connection: socket.socket, do: str, **fields: object) -> None:
    payload = json.dumps({"do": do, "id": 1, **fields}).encode()
    connection.sendall(struct.pack(">IB", len(payload), 0) + payload)


def read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        assert piece
        data += piece
    return data


def frame(connection: socket.socket) -> tuple[int, bytes]:
    length, kind = struct.unpack(">IB", read(connection, 5))
    return kind, read(connection, length)


@pytest.mark.parametrize("how", ["closed", "half closed"])
@pytest.mark.parametrize("when", ["waiting", "sending", "reading a frame"])
def test_the_consoles_end_is_seen_on_a_socket(venv: Path, site: Path, when: str, how: str) -> None:
    (package(site) / "large.bin").write_bytes(os.urandom(4 << 20))
    with over_a_socket() as (connection, process):
        assert json.loads(frame(connection)[1])["type"] == "hello"
        ask(connection, "ping")
        assert json.loads(frame(connection)[1])["ok"]["at"] > 1e9
        if when == "sending":
            ask(connection, "read", venv=str(venv), package="sglang", path="sglang/large.bin", limit=2 << 20)
            # Progress of the look that it takes may come first.
            while frame(connection)[0] != 1:
                pass
        elif when == "reading a frame":
            connection.sendall(struct.pack(">IB", 1000, 0) + b"half of")
        if how == "closed":
            connection.close()
        else:
            connection.shutdown(socket.SHUT_WR)
        assert process.wait(PATIENCE) == 0
