"""A small D-Bus client that listens to systemd: which unit changed. What it is now is asked of the same socket.

Only the signals of the watched units and of the manager are asked for. D-Bus Specification 0.42,
"Authentication Protocol" and "Message Bus Messages"; org.freedesktop.systemd1(5).
"""

from __future__ import annotations

import os
import socket

from ..section import shortened
from .dbus import ERROR, SIGNAL, BusError, Decoder, Message, encode_call

__all__ = ["MANAGER", "Bus"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SEND_LIMIT = 1 << 18
READS_LIMIT = 16
"""Pieces of 64 kB that are read at once; the rest waits for the next time."""
PATHS_LIMIT = 256
"""Objects that get a rule each; for more, one rule lets all units through. dbus-daemon allows 512 rules."""
HANDSHAKE_SECONDS = 10.0
RETRY_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0)

SYSTEMD = "org.freedesktop.systemd1"
MANAGER = SYSTEMD + ".Manager"
DAEMON = "org.freedesktop.DBus"
GET_ALL = DAEMON + ".Properties.GetAll"
OWNER_RULE = (
    f"type='signal',sender='{DAEMON}',interface='{DAEMON}',member='NameOwnerChanged',arg0='{SYSTEMD}'"
)


class Bus:
    """One connection to the bus that a systemd manager is on, or to its private socket.

    `sockets` are tried in turn; one that ends in `/private` is the manager's own and sends all its signals, of
    whatever unit: those wait for the next tick, so that a busy machine does not wake us for each. Nothing here
    waits: `fds`, `ready` and `tick` belong into a section's methods of the same names.
    """

    def __init__(self, sockets: Sequence[str]) -> None:
        self.is_live = False
        """Whether systemd has agreed to send signals."""
        self.problem = "not connected yet"
        """Why it is not live."""
        self._sockets = list(sockets)
        self._failures = 0
        self._retry_at = 0.0
        self._now = 0.0
        self._rules: frozenset[str] = frozenset([OWNER_RULE])
        self._connection: socket.socket | None = None
        self._reset()

    def _reset(self) -> None:
        self._is_private = False
        self._greeting: bytes | None = b""
        """What the peer has said before messages begin; None once they have."""
        self._decoder = Decoder()
        self._out = b""
        self._serial = 0
        self._pending: dict[int, tuple[str, float]] = {}
        """Serial of a call to its method, or the path that was asked for, and when an answer is overdue."""
        self._sent_rules: frozenset[str] = frozenset()
        self._greeted_by = self._now + HANDSHAKE_SECONDS

    def watch(self, paths: Iterable[str], *, new_units: bool) -> None:
        """Ask for the changes of these objects and of the manager; `new_units`: also for units that load."""
        places = [f"path='{path}'" for path in paths]
        if len(places) > PATHS_LIMIT:
            places = ["path_namespace='/org/freedesktop/systemd1/unit'"]
        wanted = {f"interface='{DAEMON}.Properties',member='PropertiesChanged',{place}" for place in places}
        wanted |= {f"interface='{MANAGER}',member='{member}'" for member in ("Reloading", "UnitFilesChanged")}
        if new_units:
            wanted.add(f"interface='{MANAGER}',member='UnitNew'")
        rules = {f"type='signal',sender='{SYSTEMD}',{rule}" for rule in wanted}
        self._rules = frozenset({*rules, OWNER_RULE})
        if self._connection is not None and self._greeting is None:
            self._send_rules()
            self._flush()

    def ask(self, path: str) -> None:
        """Ask for the properties of an object; the answer comes from `ready`, as a message with that path."""
        self._call(SYSTEMD, path, GET_ALL, "")
        self._flush()

    def fds(self) -> list[int]:
        """What to wait on for reading."""
        is_for_later = self._is_private and self.is_live and not self._pending
        return [] if self._connection is None or is_for_later else [self._connection.fileno()]

    def tick(self, now: float) -> None:
        """Connect when it is time, send what did not fit, give up on a peer that does not answer."""
        self._now = now
        if self._connection is None:
            if now >= self._retry_at:
                self._connect()
        elif self._is_overdue(now):
            self._fail("no answer")
        else:
            self._flush()

    def ready(self, now: float) -> list[Message]:
        """The signals and the answers to `ask` that have come; may be called at any time."""
        self._now = now
        heard: list[Message] = []
        try:
            for _ in range(READS_LIMIT):
                if self._connection is None:
                    break
                data = self._connection.recv(1 << 16)
                if not data:
                    raise BusError("the connection was closed")
                if self._greeting is not None:
                    data = self._greet(data)
                heard += filter(self._is_for_the_section, self._decoder.feed(data))
        except BlockingIOError:
            pass
        except (OSError, BusError) as error:
            self._fail(str(error))
        self._flush()
        return heard

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self.is_live = False

    def _is_for_the_section(self, message: Message) -> bool:
        """Take what is our own of a message."""
        if message.kind == SIGNAL:
            if message.member == "NameOwnerChanged" and message.first == SYSTEMD:
                # A manager that has executed itself anew has forgotten who listens.
                self._subscribe()
            return True
        asked, _ = self._pending.pop(message.reply_to, ("", 0.0))
        if asked.startswith("/"):
            message.path = asked
            return True
        if asked:
            self._take_answer(asked, message)
        return False

    def _fail(self, problem: str) -> None:
        """Drop the connection; the next socket is tried at once, and after the last one there is a pause."""
        self.close()
        self.problem = problem
        self._failures += 1
        rounds, rest = divmod(self._failures, len(self._sockets))
        pause = 0.0 if rest else RETRY_SECONDS[min(rounds, len(RETRY_SECONDS)) - 1]
        self._retry_at = self._now + pause

    def _connect(self) -> None:
        path = self._sockets[self._failures % len(self._sockets)]
        self._reset()
        self._is_private = path.endswith("/private")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        self._connection = connection
        try:
            connection.connect(path)
        except (
            OSError
        ) as error:  # also when the peer's queue is full: connect(2) does not wait on such a socket
            self._fail(f"{path}: {error.strerror}")
            return
        # BEGIN goes along, as systemd's own clients have it: a manager's private socket reads no message that
        # comes in one piece with it before the next one comes (sd-bus only looks when the socket is readable).
        self._out = b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\nBEGIN\r\n"
        self._flush()

    def _greet(self, data: bytes) -> bytes:
        """Take the peer's answer to our authentication; gives back what came after it."""
        assert self._greeting is not None
        line, end, rest = (self._greeting + data).partition(b"\r\n")
        if len(line) > 1024:
            raise BusError("the peer does not speak D-Bus")
        if not end:
            self._greeting = line
            return b""
        if not line.startswith(b"OK "):
            words = shortened(line.decode("ascii", "replace"), 80)
            raise BusError(f"the bus does not let us in: {words}")
        self._greeting = None
        if not self._is_private:
            self._call(DAEMON, "/org/freedesktop/DBus", DAEMON + ".Hello")
        self._send_rules()
        self._subscribe()
        return rest

    def _subscribe(self) -> None:
        self.is_live, self.problem = False, "systemd has not answered yet"
        self._call(SYSTEMD, "/org/freedesktop/systemd1", MANAGER + ".Subscribe")

    def _send_rules(self) -> None:
        if self._is_private:
            return
        for method, rules in (
            ("AddMatch", self._rules - self._sent_rules),
            ("RemoveMatch", self._sent_rules - self._rules),
        ):
            for rule in sorted(rules):
                self._call(DAEMON, "/org/freedesktop/DBus", f"{DAEMON}.{method}", rule)
        self._sent_rules = self._rules

    def _call(self, destination: str, path: str, method: str, *arguments: str) -> None:
        self._serial += 1
        what = path if method == GET_ALL else method.rpartition(".")[2]
        self._pending[self._serial] = what, self._now + HANDSHAKE_SECONDS
        self._out += encode_call(
            self._serial, "" if self._is_private else destination, path, method, arguments
        )

    def _is_overdue(self, now: float) -> bool:
        if self._greeting is not None:
            return now > self._greeted_by
        return any(now > by for _, by in self._pending.values())

    def _take_answer(self, method: str, message: Message) -> None:
        if message.kind == ERROR and not message.error.endswith(".AlreadySubscribed"):
            raise BusError(shortened(f"{method}: {message.first or message.error}", 200))
        if method == "Subscribe":
            self.is_live, self.problem, self._failures = True, "", 0

    def _flush(self) -> None:
        if not self._out or self._connection is None:
            return
        try:
            sent = self._connection.send(self._out)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._fail(str(error))
            return
        self._out = self._out[sent:]
        if len(self._out) > SEND_LIMIT:
            self._fail("the peer does not read")
