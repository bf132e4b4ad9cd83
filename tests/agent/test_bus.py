"""The bus client hears systemd's signals over a real dbus-daemon, and survives whatever a peer sends."""

from __future__ import annotations

import itertools
import random
import select
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from dflash_console.agent.units.bus import HANDSHAKE_SECONDS, PATHS_LIMIT, Bus
from dflash_console.agent.units.dbus import (
    BODY_KEPT,
    ERROR,
    REPLY,
    BusError,
    Decoder,
    Message,
    encode_call,
)
from dflash_console.agent.units.properties import read_states
from dflash_console.agent.units.text import escape_path
from tests.agent.bus_peers import RawPeer, Systemd, encode, session_bus, text
from tests.waiting import until_sync

UNIT = escape_path("sglang.service")
MANAGER = "org.freedesktop.systemd1.Manager"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[str]:
    with session_bus(tmp_path) as path:
        yield path


@pytest.fixture
def systemd(daemon: str) -> Iterator[Systemd]:
    made = Systemd(daemon)
    yield made
    made.close()


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[RawPeer]:
    made = RawPeer(tmp_path / "raw")
    yield made
    made.close()


def pump(bus: Bus, now: float = 0.0) -> list[Message]:
    readable, _, _ = select.select(bus.fds(), [], [], 0)
    return bus.ready(now) if readable else []


def wait(bus: Bus, true: Callable[[], bool], what: str, systemd: Systemd | None = None) -> list[Message]:
    """Serve both ends until something is true; gives back systemd's signals that came meanwhile."""
    heard: list[Message] = []

    def look() -> bool:
        heard.extend(signal for signal in pump(bus) if signal.member != "NameAcquired")
        if systemd is not None:
            systemd.serve()
        return true()

    until_sync(look, 10, what)
    return heard


def go_live(bus: Bus, systemd: Systemd, now: float = 0.0) -> None:
    bus.tick(now)
    wait(bus, lambda: bus.is_live, "the subscription", systemd)


def is_gone(bus: Bus) -> bool:
    return not bus.fds()


def hear(bus: Bus, count: int = 1) -> list[Message]:
    """The next signals of systemd."""
    heard: list[Message] = []

    def look() -> bool:
        heard.extend(signal for signal in pump(bus) if signal.member != "NameAcquired")
        return len(heard) >= count

    until_sync(look, 10, "a signal")
    return heard


# ---- with a real dbus-daemon


def test_a_change_of_a_watched_unit_is_heard(daemon: str, systemd: Systemd) -> None:
    bus = Bus([daemon])
    bus.watch([UNIT], new_units=False)
    go_live(bus, systemd)
    assert systemd.subscribers == 1
    assert bus.problem == ""
    systemd.changed(UNIT)
    (signal,) = hear(bus)
    assert (signal.path, signal.member, signal.first) == (
        UNIT,
        "PropertiesChanged",
        "org.freedesktop.systemd1.Unit",
    )
    bus.close()
    assert not bus.is_live


def test_other_units_are_not_even_delivered(daemon: str, systemd: Systemd) -> None:
    bus = Bus([daemon])
    bus.watch([UNIT], new_units=False)
    go_live(bus, systemd)
    systemd.changed(escape_path("other.service"))
    systemd.signal("/org/freedesktop/systemd1", MANAGER, "UnitNew", "other.service")
    systemd.signal("/org/freedesktop/systemd1", MANAGER, "Reloading", "x")
    assert [signal.member for signal in hear(bus)] == ["Reloading"]
    bus.close()


def test_units_that_are_watched_later_are_heard_and_those_let_go_are_not(
    daemon: str, systemd: Systemd
) -> None:
    bus = Bus([daemon])
    bus.watch([UNIT], new_units=False)
    go_live(bus, systemd)
    later = escape_path("later@1.service")
    bus.watch([later], new_units=True)
    wait(bus, lambda: bus._pending == {}, "the rules")
    systemd.changed(UNIT)
    systemd.changed(later)
    systemd.signal("/org/freedesktop/systemd1", MANAGER, "UnitNew", "new.service")
    assert [(signal.path, signal.first) for signal in hear(bus, 2)] == [
        (later, "org.freedesktop.systemd1.Unit"),
        ("/org/freedesktop/systemd1", "new.service"),
    ]
    bus.close()


def test_a_bus_without_systemd_is_not_live_and_says_so(daemon: str) -> None:
    bus = Bus([daemon])
    bus.watch([UNIT], new_units=False)
    bus.tick(0.0)
    wait(bus, partial(is_gone, bus), "the refusal")
    assert not bus.is_live
    assert bus.problem.startswith("Subscribe: ")
    assert "org.freedesktop.systemd1" in bus.problem


def test_a_systemd_that_refuses_us_is_said(daemon: str) -> None:
    systemd = Systemd(daemon, grants=False)
    bus = Bus([daemon])
    bus.tick(0.0)
    wait(bus, partial(is_gone, bus), "the refusal", systemd)
    assert bus.problem == "Subscribe: Not for you."
    systemd.close()


def test_more_units_than_the_bus_allows_are_polled(tmp_path: Path) -> None:
    with session_bus(tmp_path, rules=3) as daemon:
        systemd = Systemd(daemon)
        bus = Bus([daemon])
        bus.watch([escape_path(f"{number}.service") for number in range(9)], new_units=False)
        bus.tick(0.0)
        wait(bus, partial(is_gone, bus), "the refusal", systemd)
        assert bus.problem.startswith("AddMatch: ")
        systemd.close()


def test_a_lost_connection_is_made_anew(tmp_path: Path) -> None:
    bus = Bus([str(tmp_path / "bus")])
    bus.watch([UNIT], new_units=False)
    with session_bus(tmp_path) as daemon:
        systemd = Systemd(daemon)
        go_live(bus, systemd)
        systemd.close()
    wait(bus, lambda: not bus.is_live, "the loss")
    assert bus.problem
    (tmp_path / "bus").unlink(missing_ok=True)
    with session_bus(tmp_path) as daemon:
        systemd = Systemd(daemon)
        go_live(bus, systemd, now=100.0)
        systemd.changed(UNIT)
        assert hear(bus)[0].path == UNIT
        systemd.close()
    bus.close()


# ---- connecting


def test_the_next_socket_is_tried_at_once_and_after_the_last_there_are_pauses(tmp_path: Path) -> None:
    bus = Bus([str(tmp_path / "none"), str(tmp_path / "nor-this")])
    tries: list[float] = []
    now = 0.0
    while len(tries) < 10:
        before = bus._failures
        bus.tick(now)
        if bus._failures > before:
            tries.append(now)
        now += 0.5
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert gaps == [0.5, 1.0, 0.5, 2.0, 0.5, 5.0, 0.5, 15.0, 0.5]
    assert bus.problem == f"{tmp_path}/nor-this: No such file or directory"


def test_a_peer_that_never_answers_is_given_up(peer: RawPeer) -> None:
    bus = Bus([peer.path])
    bus.tick(0.0)
    assert peer.accept().startswith(b"\0AUTH EXTERNAL ")
    bus.tick(HANDSHAKE_SECONDS - 1)
    assert bus.fds()
    bus.tick(HANDSHAKE_SECONDS + 1)
    assert bus.fds() == []
    assert bus.problem == "no answer"


def test_a_refused_login_is_said(peer: RawPeer) -> None:
    bus = Bus([peer.path])
    bus.tick(0.0)
    peer.accept()
    peer.send(b"REJECTED DBUS_COOKIE_SHA1\r\n")
    wait(bus, partial(is_gone, bus), "the refusal")
    assert bus.problem == "the bus does not let us in: REJECTED DBUS_COOKIE_SHA1"


def test_the_managers_private_socket_needs_neither_hello_nor_rules(tmp_path: Path) -> None:
    peer = RawPeer(tmp_path / "private")
    bus = Bus([peer.path])
    bus.watch([UNIT], new_units=True)
    bus.tick(0.0)
    peer.accept()
    peer.send(b"OK 1234\r\n")
    wait(bus, lambda: bus._greeting is None, "the greeting")
    said = peer.received()
    assert b"Subscribe" in said
    assert b"Hello" not in said
    assert b"AddMatch" not in said
    peer.send(encode(2, 1, [(5, "u", 1)]))
    wait(bus, lambda: bus.is_live, "the subscription")
    peer.close()
    bus.close()


@pytest.mark.parametrize("name", ["private", "bus"])
def test_no_message_goes_out_in_one_piece_with_the_login(tmp_path: Path, name: str) -> None:
    """systemd reads none that does before another one comes (sd-bus looks only when its socket is readable)."""
    peer = RawPeer(tmp_path / name)
    bus = Bus([peer.path])
    bus.tick(0.0)
    said = peer.accept()
    assert said.startswith(b"\0AUTH EXTERNAL ")
    assert said.endswith(b"\r\nBEGIN\r\n")
    assert said.count(b"\r\n") == 2
    bus.tick(1.0)
    peer.send(b"OK 1234\r\n")
    wait(bus, lambda: bus._greeting is None, "the greeting")
    assert peer.received().startswith(b"l\x01")
    peer.close()
    bus.close()


def test_the_signals_of_a_private_socket_wait_for_a_tick_and_its_answers_do_not(tmp_path: Path) -> None:
    peer = RawPeer(tmp_path / "private")
    bus = Bus([peer.path])
    bus.tick(0.0)
    peer.accept()
    peer.send(b"OK 1234\r\n")
    wait(bus, lambda: bus._greeting is None, "the greeting")
    assert bus.fds()
    peer.send(encode(2, 1, [(5, "u", 1)]))
    wait(bus, lambda: bus.is_live, "the subscription")
    assert bus.fds() == []
    count = 1500  # more than one piece
    peer.send(b"".join(signal(f"/unit/{number}", "Unit") for number in range(count)))
    found: list[Message] = []

    def look() -> bool:
        found.extend(bus.ready(1.0))
        return len(found) == count

    until_sync(look, 10, "all of them")
    bus.ask(UNIT)
    assert bus.fds()
    peer.close()
    bus.close()


# ---- asking


def test_an_objects_properties_are_asked_for_and_known_by_its_path(daemon: str, tmp_path: Path) -> None:
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / "sglang.service").write_text("Id=sglang.service\nActiveState=active\nMainPID=7\n")
    systemd = Systemd(daemon, units=tmp_path / "units")
    bus = Bus([daemon])
    bus.watch([UNIT], new_units=False)
    go_live(bus, systemd)
    bus.ask(UNIT)
    bus.ask(escape_path("nope.service"))
    found: list[Message] = []

    def look() -> bool:
        systemd.serve()
        found.extend(pump(bus))
        return len(found) == 2

    until_sync(look, 10, "both answers")
    assert [message.kind for message in found] == [REPLY, ERROR]
    assert [message.path for message in found] == [UNIT, escape_path("nope.service")]
    assert read_states(found[0]) == {"ActiveState": "active", "MainPID": "7"}
    bus.close()
    systemd.close()


def test_more_units_than_there_may_be_rules_share_one(tmp_path: Path) -> None:
    with session_bus(tmp_path, rules=20) as daemon:
        systemd = Systemd(daemon)
        bus = Bus([daemon])
        paths = [escape_path(f"{number}.service") for number in range(PATHS_LIMIT + 1)]
        bus.watch(paths, new_units=False)
        go_live(bus, systemd)
        systemd.changed(paths[-1])
        assert hear(bus)[0].path == paths[-1]
        bus.close()
        systemd.close()


# ---- hostile data


def live(peer: RawPeer) -> Bus:
    bus = Bus([peer.path])
    bus.tick(0.0)
    peer.accept()
    peer.send(b"OK 1234\r\n")
    wait(bus, lambda: bus._greeting is None, "the greeting")
    for serial in range(1, 9):
        peer.send(encode(2, serial, [(5, "u", serial)]))
    wait(bus, lambda: bus.is_live, "the subscription")
    return bus


HOSTILE = {
    "text": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a header of gigabytes": struct.pack("<cBBBIII", b"l", 4, 0, 1, 0, 1, 0xFFFFFFF0),
    "a body of gigabytes": struct.pack("<cBBBIII", b"l", 4, 0, 1, 0xFFFFFFF0, 1, 0),
    "another version": struct.pack("<cBBBIII", b"l", 4, 0, 2, 0, 1, 0),
    "fields that end early": struct.pack("<cBBBIII", b"l", 4, 0, 1, 0, 1, 5) + b"\x01\x01o\0\xff\0\0\0",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_message_ends_the_connection_and_nothing_else(peer: RawPeer, data: bytes) -> None:
    bus = live(peer)
    peer.send(data)
    wait(bus, partial(is_gone, bus), "the end")
    assert not bus.is_live
    assert bus.problem


def test_a_greeting_without_an_end_is_not_kept(peer: RawPeer) -> None:
    bus = Bus([peer.path])
    bus.tick(0.0)
    peer.accept()
    peer.send(b"O" * 5000)
    wait(bus, partial(is_gone, bus), "the end")
    assert bus.problem == "the peer does not speak D-Bus"


def signal(path: str, first: str, order: str = "<", more: bytes = b"") -> bytes:
    fields: list[tuple[int, str, str | int]] = [(1, "o", path), (3, "s", "PropertiesChanged"), (8, "g", "s")]
    return encode(4, 7, fields, text(first, order) + more, order=order)


@pytest.mark.parametrize("order", ["<", ">"])
def test_messages_are_read_however_they_are_cut(order: str) -> None:
    stream = b"".join(signal(f"/unit/{number}", "Unit", order, b"x" * number * 3000) for number in range(4))
    for size in (1, 7, 4096, len(stream)):
        decoder = Decoder()
        found = [
            message for at in range(0, len(stream), size) for message in decoder.feed(stream[at : at + size])
        ]
        assert [message.path for message in found] == ["/unit/0", "/unit/1", "/unit/2", "/unit/3"]
        assert all(message.first == "Unit" for message in found)


def test_a_long_body_is_skipped_and_not_kept() -> None:
    decoder = Decoder()
    long = signal("/long", "Unit", more=b"x" * (1 << 20))
    kept = []
    for at in range(0, len(long), 1000):
        decoder.feed(long[at : at + 1000])
        kept.append(len(decoder._buffer))
    assert max(kept) < BODY_KEPT + 2000
    assert [message.path for message in decoder.feed(signal("/next", "Unit"))] == ["/next"]


def test_a_field_of_a_later_specification_is_no_fault() -> None:
    data = bytearray(encode(4, 7, [(1, "o", "/x"), (200, "s", "later")]))
    at = data.index(b"\xc8\x01s\0")
    data[at + 2] = ord("t")
    (message,) = Decoder().feed(bytes(data))
    assert message.path == "/x"


def test_random_bytes_end_in_messages_or_a_bus_error() -> None:
    chance = random.Random(7)
    good = signal("/unit/x", "Unit") + encode(
        3, 8, [(4, "s", "e"), (5, "u", 3), (8, "g", "s")], text("words")
    )
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        decoder = Decoder()
        try:
            for at in range(0, len(data), 50):
                decoder.feed(bytes(data[at : at + 50]))
        except BusError:
            continue
        assert len(decoder._buffer) <= len(data)


def test_a_calls_arguments_are_aligned() -> None:
    call = encode_call(1, "a.b", "/x", "a.b.C", ["one", "four!", "x"])
    body, _, fields = struct.unpack_from("<III", call, 4)
    start = 16 + fields + -fields % 8
    assert len(call) == start + body
    assert call[start:] == b"\x03\0\0\0one\0" + b"\x05\0\0\0four!\0\0\0" + b"\x01\0\0\0x\0"
