"""Whatever the field: nothing absurd is decoded, and what a large host can really say is."""

from __future__ import annotations

import inspect as python
import json
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from dflash_console import model
from dflash_console.bounds import MOST_ITEMS
from dflash_console.errors import AgentFailed
from dflash_console.link.clean import decode
from dflash_console.link.frames import FRAME_LIMIT
from dflash_console.model import SECTIONS, Finding, LinkStatus, Sample, Snapshot, WatchSpec
from tests import pictures
from tests.extremes import example, messages, structs, variants

ABSURD_INTEGERS = (-(10**6), -(1 << 63), 1 << 63, 1 << 64, 10**400)
ABSURD_FLOATS = (-1e12, -1e308, 1e12, 1e308, 10**400)
OURS = {Finding, LinkStatus, Snapshot, WatchSpec}
"""What the console itself makes; it is not decoded."""


def absurd_numbers(kind: inspect.Type) -> list[Any]:
    if isinstance(kind, inspect.IntType):
        return list(ABSURD_INTEGERS)
    return list(ABSURD_FLOATS) if isinstance(kind, inspect.FloatType) else []


def numbers_beyond_their_bounds(kind: inspect.Type) -> list[Any]:
    if not isinstance(kind, inspect.IntType | inspect.FloatType):
        return []
    assert kind.ge is not None, "a number has no lower bound"
    assert kind.le is not None, "a number has no upper bound"
    return [kind.ge - 1, kind.le + max(1, kind.le // 10**6)]


def too_many(kind: inspect.Type) -> list[Any]:
    if isinstance(kind, inspect.ListType):
        assert kind.max_length is not None, "a list has no limit"
        return [[example(kind.item_type)] * (kind.max_length + 1)]
    if isinstance(kind, inspect.DictType):
        assert kind.max_length is not None, "a table has no limit"
        return [{str(number): example(kind.value_type) for number in range(kind.max_length + 1)}]
    assert not isinstance(kind, inspect.AnyType | inspect.SetType | inspect.VarTupleType | inspect.BytesType)
    return []


def as_json(message: Any) -> bytes:
    return json.dumps(message).encode()


def test_every_struct_of_the_model_is_judged_here_or_is_our_own() -> None:
    classes = {
        kind for _, kind in python.getmembers(model, python.isclass) if issubclass(kind, msgspec.Struct)
    }
    assert classes - {msgspec.Struct} == structs() | OURS


@pytest.mark.parametrize("choose", [absurd_numbers, numbers_beyond_their_bounds, too_many])
def test_an_absurd_value_in_any_field_is_refused_with_the_fields_name(choose: Any) -> None:
    seen = set()
    for field, message in messages(choose):
        seen.add(field)
        with pytest.raises(AgentFailed) as caught:
            decode(as_json(message))
        assert field in str(caught.value)
        assert len(str(caught.value)) < 600
    assert len(seen) >= 5


def test_what_is_refused_is_shown() -> None:
    report = {"source": "nvml", "driver": "1", "gpus": [{"index": 0, "memory_used": -4096}]}
    with pytest.raises(
        AgentFailed, match=r"Expected `int` >= 0 - at `\$\.gpu\.gpus\[0\]\.memory_used`: -4096$"
    ):
        decode(as_json({"type": "sample", "at": 1, "gpu": report}))
    with pytest.raises(AgentFailed, match=rf"of length <= {MOST_ITEMS} - at `\$\.paths`: it has 40000$"):
        decode(
            as_json(
                {"type": "sample", "at": 1, "paths": [example(inspect.type_info(model.PathInfo))] * 40_000}
            )
        )
    disk = {"mount": "/", "kind": "ext4", "total": 1 << 64, "free": 0}
    host = {**example(inspect.type_info(model.HostInfo)), "shm": disk}
    with pytest.raises(AgentFailed, match=r"at `\$\.host\.shm\.total`: 18446744073709551616$"):
        decode(as_json({"type": "sample", "at": 1, "host": host}))
    with pytest.raises(AgentFailed, match=r"at `\$\.host\.hostname`: it has 3$"):
        decode(as_json({"type": "sample", "at": 1, "host": {"hostname": [1, 2, 3]}}))
    with pytest.raises(AgentFailed, match=r"at `\$\.host\.cpus`: \"x{58,59}…$"):
        decode(as_json({"type": "sample", "at": 1, "host": {"cpus": "x" * 100_000}}))


def test_numbers_that_are_none_are_refused() -> None:
    for number in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000):
        for spoilt in ("", ',"x":"\\u0000"'):
            with pytest.raises(AgentFailed):
                decode(f'{{"type":"sample","at":{number}{spoilt}}}'.encode())


def test_a_section_that_there_is_not_is_refused() -> None:
    for section in SECTIONS:
        assert decode(as_json({"type": "note", "section": section, "text": "x"})) == model.Note(section, "x")
    with pytest.raises(AgentFailed, match=r"section`: \"s0-17\""):
        decode(as_json({"type": "note", "section": "s0-17", "text": "x"}))


def test_the_sections_are_those_of_a_sample_and_of_the_agent() -> None:
    from dflash_console.agent.main import SECTIONS as SPOKEN

    assert {*SECTIONS} == {*SPOKEN} == {name for name in Sample.__struct_fields__ if name != "at"}


def test_a_large_honest_host_passes_in_one_frame() -> None:
    command = 'python -m sglang.launch_server --model "/dev/shm/Qwen" '.ljust(400, "x")
    processes = [pictures.process(pid, command=command, venv="/root/ml-env") for pid in range(200)]
    slowed = ["sw_power_cap", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"]
    whole = Sample(
        1.7e9,
        pictures.host(cpus=1024, memory_total=1 << 46, load=(5000.0, 4000.0, 3000.0)),
        pictures.report(
            *(
                pictures.gpu(index, processes=processes, slowdowns=slowed, temperature=-50, power=10_000.0)
                for index in range(16)
            )
        ),
        [
            pictures.venv(
                f"/srv/{number}", package=pictures.package(modules=dict.fromkeys(map(str, range(100))))
            )
            for number in range(128)
        ],
        [pictures.unit(f"u{number}.service", command=command, restarts=10**9) for number in range(300)],
        [pictures.path(f"/srv/{number}", size=(1 << 63) - 1) for number in range(300)],
    )
    payload = msgspec.json.encode(whole)
    assert len(payload) < FRAME_LIMIT
    assert decode(payload) == whole


def test_what_the_agent_lets_pass_of_the_driver_lies_within_the_bounds() -> None:
    from dflash_console.agent.gpu import device, processes

    assert bounds_of(model.Gpu, "utilization") == (0, 100)
    least, most = bounds_of(model.Gpu, "temperature")
    assert least <= -50
    assert most >= 200
    assert bounds_of(model.Gpu, "power")[1] >= device.MOST_MILLIWATTS / 1000
    assert bounds_of(model.Gpu, "memory_used")[1] >= device.MOST_MEMORY
    assert bounds_of(model.Gpu, "ecc_corrected")[1] >= device.MOST_COUNT
    assert bounds_of(model.GpuProcess, "pid")[1] >= processes.MOST_PID


def bounds_of(kind: type, field: str) -> tuple[float, float]:
    """The least and the most that a field takes."""
    found: list[tuple[float, float]] = []

    def note(inner: inspect.Type) -> list[Any]:
        if isinstance(inner, inspect.IntType | inspect.FloatType):
            assert inner.ge is not None
            assert inner.le is not None
            found.append((inner.ge, inner.le))
        return []

    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    (wanted,) = (each for each in info.fields if each.name == field)
    list(variants(wanted.type, note))
    return found[0]
