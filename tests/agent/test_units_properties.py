"""A unit's state is found among whatever else systemd says of it over the bus, and hostile bytes end in an error."""

from __future__ import annotations

import contextlib
import random
import struct

import pytest

from dflash_console.agent.units.dbus import ANSWER_KEPT, REPLY, BusError, Decoder, Message
from dflash_console.agent.units.properties import STATES, read_states
from dflash_console.agent.units.text import PROPERTIES
from tests.agent.bus_peers import encode, members, properties


def test_no_state_is_read_that_systemctl_is_not_asked_for() -> None:
    assert set(PROPERTIES) >= STATES


def message(body: bytes, order: str = "<") -> Message:
    return Message(REPLY, {}, "", body, order)


@pytest.mark.parametrize("order", ["<", ">"])
def test_states_are_found_among_values_of_every_type(order: str) -> None:
    block = {
        "LoadState": "loaded",
        "NRestarts": "4294967295",
        "ExecMainStatus": "-1",
        "StateChangeTimestampMonotonic": str(2**64 - 1),
        "InvocationID": "00ff" * 8,
        "NeedDaemonReload": "no",
        "ControlGroup": "/system.slice/caf\u00e9.service",
    }
    assert read_states(message(properties(block, order), order)) == block


def test_random_values_of_random_types_are_skipped() -> None:
    chance = random.Random(5)
    for _ in range(300):
        strange = {f"X{number}": random_variant(chance, 4) for number in range(8)}
        body = properties({"ActiveState": "active", "MainPID": "7"}, strange=strange)
        assert read_states(message(body)) == {"ActiveState": "active", "MainPID": "7"}, strange


def random_variant(chance: random.Random, depth: int) -> tuple[str, object]:
    signature = random_type(chance, depth)
    return signature, random_value(chance, signature)


def random_type(chance: random.Random, depth: int) -> str:
    kind = chance.choice(["leaf", "leaf", "array", "struct", "dict"]) if depth else "leaf"
    if kind == "array":
        return "a" + random_type(chance, depth - 1)
    if kind == "struct":
        return "(" + "".join(random_type(chance, depth - 1) for _ in range(chance.randint(1, 3))) + ")"
    if kind == "dict":
        return f"a{{{chance.choice('sut')}{random_type(chance, depth - 1)}}}"
    return chance.choice("ybnqiuxtdsogv")


def random_value(chance: random.Random, signature: str) -> object:
    code = signature[0]
    if code == "a":
        return [random_value(chance, signature[1:]) for _ in range(chance.randint(0, 3))]
    if code in "({":
        return [random_value(chance, member) for member in members(signature[1:-1])]
    if code == "v":
        return random_variant(chance, 1)
    return "x" * chance.randint(0, 9) if code in "sog" else chance.randint(0, 1)


def test_an_answer_that_is_no_properties_or_is_cut_off_is_a_bus_error() -> None:
    whole = properties({"ActiveState": "active", "SubState": "running", "InvocationID": "00" * 16})
    for length in range(len(whole)):
        with contextlib.suppress(BusError):
            assert read_states(message(whole[:length])).keys() <= {"ActiveState", "SubState", "InvocationID"}
    deep = bytearray(properties({}, strange={"Deep": ("v", ("v", ("y", 1)))}))
    at = deep.index(b"\x01v\0\x01v\0")
    deep[at:at] = b"\x01v\0" * 20_000
    deep[0:4] = struct.pack("<I", len(deep) - 8)
    with pytest.raises(BusError):
        read_states(message(bytes(deep)))
    chance = random.Random(3)
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with contextlib.suppress(BusError):
            read_states(message(bytes(data)))


def test_an_answer_beyond_the_limit_is_no_answer() -> None:
    strange = {f"X{number}": ("s", "x" * 9000) for number in range(ANSWER_KEPT // 9000 + 2)}
    whole = encode(
        REPLY, 3, [(5, "u", 1), (8, "g", "a{sv}")], properties({"LoadState": "x"}, strange=strange)
    )
    decoder = Decoder()
    (cut,) = [found for at in range(0, len(whole), 4096) for found in decoder.feed(whole[at : at + 4096])]
    assert len(cut.body) == ANSWER_KEPT
    with pytest.raises(BusError):
        read_states(cut)
