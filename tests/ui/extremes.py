"""Hosts with the most extreme values that the model lets through, made from the model's own types."""

from __future__ import annotations

import random
from typing import Any

from msgspec import inspect

from dflash_console import model
from dflash_console.config import HostConfig
from dflash_console.fleet import HostView
from dflash_console.fleet.merge import snapshot_of
from dflash_console.model import LinkStatus, Sample, gpu_key
from tests.ui.builders import MONO, WALL

__all__ = ["extreme_view"]

LONGEST = 4096
TEXTS = (
    "",
    " ",
    "/",
    ".service",
    ".py",
    "-m",
    "x" * LONGEST,
    "/a" * (LONGEST // 2),
    "word " * (LONGEST // 5),
    "文" * LONGEST,
    "e\u0301" * (LONGEST // 2),
    "\u0301" * LONGEST,
    "ok",
    "[/b] 1.2.3",
)
CELLS = {"PackageCell": model.Package, "FilesystemCell": model.Filesystem}


def extreme_view(seed: int, *, most: int = 3) -> HostView:
    """A host whose every cell is a bound of its type, or a reason; lists hold up to `most` items."""
    draw = random.Random(seed)
    snapshot = snapshot_of(_value(inspect.type_info(Sample), draw, most))
    assert snapshot is not None
    states: tuple[model.LinkState, ...] = ("up", "up", "up", "stale", "unreachable", "agent_failed")
    link = LinkStatus(
        draw.choice(states),
        detail=draw.choice(TEXTS),
        latency_ms=draw.choice((0.0, 9.96, 12_345.6, 1e308)),
        since=draw.choice((0.0, WALL, 1e11)),
        next_try=draw.choice((None, 0.0, 1e11)),
    )
    rings: dict[str, tuple[int | None, ...]] = {
        gpu_key(gpu): tuple(draw.choice((None, 0, 100)) for _ in range(draw.choice((0, 1, 60, 240))))
        for gpu in snapshot.gpu.gpus
    }
    return HostView(
        config=HostConfig("odd", address="10.0.0.1", role=draw.choice(("source", "target", "observe"))),
        link=link,
        snapshot=snapshot,
        heard=draw.choice((None, 0.0, MONO)),
        utilization=rings,
        shared={gpu.uuid: ("other",) for gpu in snapshot.gpu.gpus if isinstance(gpu.uuid, str)},
        unread=frozenset(),
        notes={section: draw.choice(TEXTS) for section in model.SECTIONS if draw.random() < 0.3},
        failures=draw.choice((0, 10**6)),
        rebooted_at=draw.choice((None, 0.0, WALL)),
    )


def _value(kind: inspect.Type, draw: random.Random, most: int) -> Any:
    """One of the values that a type's edges are made of."""
    match kind:
        case inspect.StructType():
            fields = {field.name: _value(field.type, draw, most) for field in kind.fields}
            return kind.cls(**fields)
        case inspect.UnionType():
            return _value(draw.choice(kind.types), draw, most)
        case inspect.CustomType():
            made = draw.choice((CELLS[kind.cls.__name__], model.Missing))
            return _value(inspect.type_info(made), draw, most)
        case inspect.ListType():
            return [_value(kind.item_type, draw, most) for _ in range(draw.randint(0, most))]
        case inspect.TupleType():
            return tuple(_value(item, draw, most) for item in kind.item_types)
        case inspect.DictType():
            keys = draw.sample(TEXTS, draw.randint(0, min(most, len(TEXTS))))
            return {key: _value(kind.value_type, draw, most) for key in keys}
        case inspect.LiteralType():
            return draw.choice(kind.values)
        case inspect.IntType() | inspect.FloatType():
            assert kind.ge is not None, "every number of a host has bounds"
            assert kind.le is not None, "every number of a host has bounds"
            number = draw.choice((kind.ge, kind.le, min(kind.ge + 1, kind.le)))
            return int(number) if isinstance(kind, inspect.IntType) else float(number)
        case inspect.StrType():
            return draw.choice(TEXTS)
        case inspect.BoolType():
            return draw.random() < 0.5
        case inspect.NoneType():
            return None
    raise NotImplementedError(kind)
