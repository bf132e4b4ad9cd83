"""Peers for the bus client: a service on a real dbus-daemon, and a bare socket that says what it is told."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from dflash_console.agent.units.dbus import Decoder, Message, encode_call
from dflash_console.agent.units.text import escape_path, parse_show

__all__ = [
    "NUMBERS",
    "RawPeer",
    "Systemd",
    "encode",
    "marshal",
    "members",
    "properties",
    "session_bus",
    "text",
]

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


NUMBERS = dict(zip("ybnqiuxtd", "BIhHiIqQd", strict=True))
"""D-Bus type of a number -> struct's letter for it."""


def marshal(signature: str, value: Any, out: bytearray, order: str = "<") -> None:
    """Appends a value of one complete type to a body (or a piece that begins at a multiple of eight)."""
    code, rest = signature[0], signature[1:]
    if code in NUMBERS:
        form = NUMBERS[code]
        out += b"\0" * (-len(out) % struct.calcsize("=" + form)) + struct.pack(order + form, value)
    elif code in "so":
        out += b"\0" * (-len(out) % 4) + text(value, order)
    elif code == "g":
        out += bytes([len(value)]) + value.encode() + b"\0"
    elif code == "v":
        marshal("g", value[0], out, order)
        marshal(value[0], value[1], out, order)
    elif code == "a":
        out += b"\0" * (-len(out) % 4)
        at = len(out)
        out += b"\0\0\0\0"
        element = 8 if rest[0] in "({xtd" else 4 if rest[0] in "biusoa" else 2 if rest[0] in "nq" else 1
        out += b"\0" * (-len(out) % element)
        begin = len(out)
        for item in value:
            marshal(rest, item, out, order)
        out[at : at + 4] = struct.pack(order + "I", len(out) - begin)
    else:
        out += b"\0" * (-len(out) % 8)
        for member, item in zip(members(rest[:-1]), value, strict=True):
            marshal(member, item, out, order)


def members(signature: str) -> list[str]:
    """The complete types of a signature."""
    found: list[str] = []
    begin = depth = 0
    for at, code in enumerate(signature):
        depth += (code in "({") - (code in ")}")
        if depth == 0 and code != "a":
            found.append(signature[begin : at + 1])
            begin = at + 1
    return found


TYPES = {
    **dict.fromkeys(["NRestarts", "MainPID", "ExecMainPID"], "u"),
    **dict.fromkeys(["ExecMainCode", "ExecMainStatus"], "i"),
    **dict.fromkeys(["MemoryCurrent", "TasksCurrent"], "t"),
    "NeedDaemonReload": "b",
    "InvocationID": "ay",
}
"""Of the properties of systemd's units, where that is not a string; the monotonic stamps are `t`."""
STRANGE: dict[str, tuple[str, Any]] = {
    "Environment": ("as", ["A=1", "B=two words"]),
    "ExecStart": ("a(sasbttttuii)", [("/bin/x", ["/bin/x", "y"], 1, 2, 3, 4, 5, 6, 7, 8)]),
    "LoadError": ("(ss)", ("", "")),
    "Job": ("(uo)", (0, "/")),
    "IOReadBytes": ("t", 2**64 - 1),
    "CPUWeight": ("d", 0.5),
    "Markers": ("a{sv}", [("a", ("as", ["x"])), ("b", ("y", 1))]),
    "Empty": ("aat", []),
    "Deep": ("v", ("v", ("(y(sa(xv)))", (1, ("a", [(5, ("g", "as"))]))))),
}
"""Types that systemd has beside those, in names that no look asks for."""


def properties(block: dict[str, str], order: str = "<", strange: dict[str, Any] | None = None) -> bytes:
    """The body of an answer to GetAll: a block of `systemctl show`, typed as systemd does, among others."""
    pairs = list((STRANGE if strange is None else strange).items())
    for number, (name, value) in enumerate(block.items()):
        kind = TYPES.get(name, "t" if name.endswith("Monotonic") else "s")
        typed: Any = value
        if kind == "ay":
            typed = bytes.fromhex(value)
        elif kind == "b":
            typed = int(value == "yes")
        elif kind != "s":
            typed = int(value) if value.lstrip("-").isdigit() else 2**64 - 1
        pairs.insert(number * 2 % (len(pairs) + 1), (name, (kind, typed)))
    out = bytearray()
    marshal("a{sv}", pairs, out, order)
    return bytes(out)


class Systemd:
    """Owns systemd's name on a bus, grants Subscribe, answers GetAll with the blocks in the files of the folder
    `units`, and says what a test wants it to say."""

    living: ClassVar[list[Systemd]] = []
    """Those that are not closed, for whoever serves all."""

    def __init__(self, path: str, *, grants: bool = True, units: Path | None = None) -> None:
        self.subscribers = 0
        self.asked: list[str] = []
        """The paths whose properties were asked for."""
        self.is_silent = False
        """Whether it leaves those questions without an answer."""
        self._units = units
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
        self.living.append(self)

    def _receive(self) -> list[Message]:
        data = self._socket.recv(1 << 16)
        assert data
        return self._decoder.feed(data)

    def serve(self) -> None:
        """Answer what has come, without waiting."""
        self._socket.setblocking(False)
        try:
            while calls := self._raw():
                for call in calls:
                    self._answer(*call)
        except BlockingIOError:
            pass
        finally:
            self._socket.settimeout(10)

    def _raw(self) -> list[tuple[int, str, str, str]]:
        """Serial, sender, member and path of the calls that have come: what a listener has no use for."""
        data = self._socket.recv(1 << 16)
        calls = []
        at = 0
        while at < len(data):
            body, serial, fields = struct.unpack_from("<III", data, at + 4)
            head = data[at : at + 16 + fields]
            if data[at + 1] == 1:
                marks = (b"\x07\x01s\0", b"\x03\x01s\0", b"\x01\x01o\0")
                words = [head[head.index(mark) + 8 :].split(b"\0")[0].decode() for mark in marks]
                calls.append((serial, *words))
            at += 16 + fields + -fields % 8 + body
        return calls

    def _answer(self, serial: int, sender: str, member: str, path: str) -> None:
        fields: list[tuple[int, str, str | int]] = [(5, "u", serial), (6, "s", sender)]
        if member == "GetAll":
            self.asked.append(path)
            block = self._block(path)
            if self.is_silent:
                return
            if block is None:
                error = "org.freedesktop.DBus.Error.UnknownObject"
                self._send(ERROR, [*fields, (4, "s", error), (8, "g", "s")], text("No such unit."))
            else:
                self._send(REPLY, [*fields, (8, "g", "a{sv}")], properties(block))
            return
        assert member == "Subscribe"
        if self._grants:
            self.subscribers += 1
            self._send(REPLY, fields)
        else:
            error = "org.freedesktop.DBus.Error.AccessDenied"
            self._send(ERROR, [*fields, (4, "s", error), (8, "g", "s")], text("Not for you."))

    def _block(self, path: str) -> dict[str, str] | None:
        files = self._units.iterdir() if self._units else ()
        found = next((file for file in files if escape_path(file.name) == path), None)
        return parse_show(found.read_text())[0] if found else None

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
        if self in self.living:
            self.living.remove(self)


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
