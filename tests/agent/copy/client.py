"""The console's end of a copy process, for tests: boots it as on a host, asks, and puts blocks together again."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dflash_console.copies import Entry, Look
from dflash_console.link.bundle import BOOT_COMMAND, READY, bundle
from tests.agent.driver import PATIENCE, up_to

__all__ = ["Client", "Refusal", "boot_copy", "files_of"]

HEADER = struct.Struct(">IB")
BLOCK = struct.Struct(">BIQI")


class Refusal(Exception):
    """An answer's error."""


class Client:
    """A running copy process; what it says is validated as the console does."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin, self.stdout = process.stdin, process.stdout
        self._number = 0
        self.entries: list[Entry] = []
        """Of the parts that came with the last answer."""
        self.blocks: list[bytes] = []
        """The raw frames that came with the last answer."""
        self.progress: list[tuple[int, int]] = []

    def ask(self, do: str, **fields: object) -> int:
        """Send a request; its number."""
        self._number += 1
        self.write(0, json.dumps({"do": do, "id": self._number, **fields}).encode())
        return self._number

    def write(self, kind: int, payload: bytes) -> None:
        """Send a frame."""
        self.stdin.write(HEADER.pack(len(payload), kind) + payload)
        self.stdin.flush()

    def frame(self) -> tuple[int, bytes]:
        """The next frame. Raises EOFError at the end."""
        header = self.stdout.read(HEADER.size)
        if len(header) < HEADER.size:
            raise EOFError(self.errors())
        length, kind = HEADER.unpack(header)
        return kind, self.stdout.read(length)

    def take(self, number: int) -> Any:
        """The answer to a request; all that comes before is kept. Raises Refusal."""
        self.entries, self.blocks, self.progress = [], [], []
        while True:
            kind, payload = self.frame()
            if kind == 1:
                self.blocks.append(payload)
                continue
            assert payload.isascii()
            message = json.loads(payload)
            if message.get("id") != number:
                continue
            if message["type"] == "part":
                assert len(message["entries"]) <= 4000
                self.entries += msgspec.convert(message["entries"], list[Entry])
            elif message["type"] == "progress":
                self.progress.append((message["files"], message["bytes"]))
            elif "error" in message:
                raise Refusal(message["error"])
            else:
                return message["ok"]

    def request(self, do: str, **fields: object) -> Any:
        """Ask and wait. Raises Refusal."""
        return self.take(self.ask(do, **fields))

    def look(self, venv: Path | str, package: str = "sglang", *, entries: bool = True) -> Look:
        """A look, with its entries in `entries`."""
        return msgspec.convert(
            self.request("look", venv=str(venv), package=package, entries=entries), Look, strict=True
        )

    def send(self, files: Sequence[int], *, compress: bool = False) -> dict[str, bytes]:
        """Ask for the content of entries of the last look; by path, whole and hashed."""
        listed = self.entries
        order = [listed[index] for index in files]
        told = self.request("send", files=list(files), compress=compress)
        found = files_of(order, self.blocks)
        self.entries = listed
        assert told["blocks"] == len(self.blocks)
        assert told["raw"] == sum(entry.size for entry in order)
        assert told["bytes"] == sum(len(block) - BLOCK.size for block in self.blocks)
        return found

    def errors(self) -> str:
        """What it said on stderr, at its end."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def ended(self) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """End it as a console does, or else by force."""
        try:
            if not self.stdin.closed:
                self.stdin.close()
            self.process.wait(PATIENCE)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait(PATIENCE)
        self.stdout.close()
        assert self.process.stderr is not None
        self.process.stderr.close()


def files_of(order: Sequence[Entry], blocks: Sequence[bytes]) -> dict[str, bytes]:
    """Put the blocks of files together by what their headers say, and check every hash."""
    content = {entry.path: bytearray(entry.size) for entry in order}
    for block in blocks:
        codec, position, offset, length = BLOCK.unpack_from(block)
        data = block[BLOCK.size :]
        assert codec in (0, 1)
        assert length <= 1 << 18
        data = zlib.decompress(data) if codec else data
        assert len(data) == length
        while data:
            entry = order[position]
            piece = data[: entry.size - offset]
            content[entry.path][offset : offset + len(piece)] = piece
            data, position, offset = data[len(piece) :], position + 1, 0
    for entry in order:
        assert hashlib.sha256(content[entry.path]).hexdigest() == entry.content, entry.path
    return {path: bytes(data) for path, data in content.items()}


def boot_copy(
    python: str = "",
    *,
    env: Mapping[str, str] | None = None,
    heartbeat: float = 60.0,
    user: int | None = None,
) -> Client:
    """Boot a copy process as it is shipped, up to its hello."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", BOOT_COMMAND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        start_new_session=True,
        **({"user": user, "group": user, "extra_groups": []} if user is not None else {}),  # type: ignore[call-overload]
    )
    token = secrets.token_hex(8)
    source = bundle(token, heartbeat=heartbeat, errand="copy")
    assert process.stdin is not None
    up_to(f"{READY}\n", process)
    process.stdin.write(os.fsencode(python) + b"\n%d\n" % len(source) + source)
    process.stdin.flush()
    up_to(f"\n{token}\n", process)
    client = Client(process)
    kind, payload = client.frame()
    assert (kind, json.loads(payload)["type"]) == (0, "hello")
    return client
