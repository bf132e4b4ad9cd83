"""Peers for the bus client: a service on a real dbus-daemon, and a bare socket that says what it is told."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from dflash_console.agent.units.dbus import Decoder, Message, encode_call

__all__ = ["RawPeer", "Systemd", "encode", "session_bus", "text"]

REPLY, ERROR, SIGNAL = 2, 3, 4
CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type><listen>unix:path={socket}</listen><auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*"/><allow eavesdrop="false"/><allow own="*"/><allow receive_type="signal"/>
  </policy>
  <limit name="max_match_rules_per_connection">{rules}</limit>
</busconfig>
"""


@contextlib.contextmanager
def session_bus(folder: Path, rules: int = 512) -> Iterator[str]:
    """A real dbus-daemon of our own; gives its socket's path."""
    path = folder / "bus"
    config = folder / "bus.conf"
    config.write_text(CONFIG.format(socket=path, rules=rules))
    command = ["dbus-daemon", f"--config-file={config}", "--nofork", "--nopidfile", "--print-address"]
    daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert daemon.stdout is not None
    try:
        assert daemon.stdout.readline()
        yield str(path)
    finally:
        daemon.terminate()
        daemon.wait(timeout=10)
        daemon.stdout.close()


def encode(
    kind: int,
    serial: int,
    fields: list[tuple[int, str, str | int]],
    body: bytes = b"",
    *,
    order: str = "<",
) -> bytes:
    """Any message; `fields` are triples of code, type (o, s, g or u) and value."""
    out = bytearray()
    for code, type_, value in fields:
        out += b"\0" * (-len(out) % 8) + bytes([code, 1, ord(type_), 0])
        if isinstance(value, int):
            out += struct.pack(order + "I", value)
        elif type_ == "g":
            out += bytes([len(value)]) + value.encode() + b"\0"
        else:
            out += struct.pack(order + "I", len(value.encode())) + value.encode() + b"\0"
    head = struct.pack(
        order + "cBBBIII", b"l" if order == "<" else b"B", kind, 0, 1, len(body), serial, len(out)
    )
    return head + bytes(out) + b"\0" * (-len(out) % 8) + body


def text(value: str, order: str = "<") -> bytes:
    """A string as an argument."""
    data = value.encode()
    return struct.pack(order + "I", len(data)) + data + b"\0"


class Systemd:
    """Owns systemd's name on a bus, grants Subscribe, and says what a test wants it to say."""

    def __init__(self, path: str, *, grants: bool = True) -> None:
        self.subscribers = 0
        self._grants = grants
        self._serial = 10
        self._decoder = Decoder()
        self._calls: list[Message] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(10)
        self._socket.connect(path)
        self._socket.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
        assert self._socket.recv(1024).startswith(b"OK ")
        self._socket.sendall(b"BEGIN\r\n")
        daemon = ("org.freedesktop.DBus", "/org/freedesktop/DBus")
        self._socket.sendall(encode_call(1, *daemon, "org.freedesktop.DBus.Hello"))
        fields: list[tuple[int, str, str | int]] = [
            (1, "o", daemon[1]),
            (2, "s", daemon[0]),
            (3, "s", "RequestName"),
            (6, "s", daemon[0]),
            (8, "g", "su"),
        ]
        name = text("org.freedesktop.systemd1")
        body = name + b"\0" * (-len(name) % 4) + struct.pack("<I", 0)
        self._socket.sendall(encode(1, 2, fields, body))
        while not any(message.reply_to == 2 and message.kind == REPLY for message in self._receive()):
            pass

    def _receive(self) -> list[Message]:
        data = self._socket.recv(1 << 16)
        assert data
        return self._decoder.feed(data)

    def serve(self) -> None:
        """Answer what has come, without waiting."""
        self._socket.setblocking(False)
        try:
            while True:
                for message in self._raw():
                    self._answer(*message)
        except BlockingIOError:
            pass
        finally:
            self._socket.settimeout(10)

    def _raw(self) -> list[tuple[int, str, str]]:
        """Serial, sender and member of the calls that have come: what a listener has no use for."""
        data = self._socket.recv(1 << 16)
        calls = []
        at = 0
        while at < len(data):
            body, serial, fields = struct.unpack_from("<III", data, at + 4)
            head = data[at : at + 16 + fields]
            if data[at + 1] == 1:
                sender = head[head.index(b"\x07\x01s\0") + 8 :].split(b"\0")[0].decode()
                member = head[head.index(b"\x03\x01s\0") + 8 :].split(b"\0")[0].decode()
                calls.append((serial, sender, member))
            at += 16 + fields + -fields % 8 + body
        return calls

    def _answer(self, serial: int, sender: str, member: str) -> None:
        assert member == "Subscribe"
        fields: list[tuple[int, str, str | int]] = [(5, "u", serial), (6, "s", sender)]
        if self._grants:
            self.subscribers += 1
            self._send(REPLY, fields)
        else:
            error = "org.freedesktop.DBus.Error.AccessDenied"
            self._send(ERROR, [*fields, (4, "s", error), (8, "g", "s")], text("Not for you."))

    def _send(self, kind: int, fields: list[tuple[int, str, str | int]], body: bytes = b"") -> None:
        self._serial += 1
        self._socket.sendall(encode(kind, self._serial, fields, body))

    def changed(self, path: str) -> None:
        """PropertiesChanged of an object; the body's rest is left out of the signature."""
        self.signal(
            path, "org.freedesktop.DBus.Properties", "PropertiesChanged", "org.freedesktop.systemd1.Unit"
        )

    def signal(self, path: str, interface: str, member: str, argument: str) -> None:
        """Any signal with one string."""
        self._send(
            SIGNAL, [(1, "o", path), (2, "s", interface), (3, "s", member), (8, "g", "s")], text(argument)
        )

    def close(self) -> None:
        """Leave the bus."""
        self._socket.close()


class RawPeer:
    """A listening Unix socket whose answers a test writes byte by byte."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(self.path)
        self._listening.listen(4)
        self._listening.settimeout(10)
        self.peer: socket.socket | None = None

    def accept(self) -> bytes:
        """Take the client's connection; gives what it said first."""
        if self.peer is not None:
            self.peer.close()
        self.peer, _ = self._listening.accept()
        self.peer.settimeout(10)
        return self.peer.recv(4096)

    def send(self, data: bytes) -> None:
        """Say something."""
        assert self.peer is not None
        self.peer.sendall(data)

    def received(self) -> bytes:
        """What the client has said, waiting for something."""
        assert self.peer is not None
        return self.peer.recv(1 << 20)

    def close(self) -> None:
        """Hang up and listen no more."""
        if self.peer is not None:
            self.peer.close()
        self._listening.close()
