"""Messages of an agent made from the model's own types: valid ones, and ones with a single value at or beyond its
bounds, whatever the field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from msgspec import inspect

from dflash_console.model import Answer, Filesystem, FromAgent, Hello, Note, Package, Sample

__all__ = ["Number", "Variant", "example", "messages", "structs", "variants"]

Variant: TypeAlias = tuple[str, Any]
"""The name of the field and the value that is put there, or the message that holds it."""

Number: TypeAlias = inspect.IntType | inspect.FloatType

Chooser: TypeAlias = Callable[[inspect.Type], list[Any]]
"""The values to be put in place of one of a type, each in a message of its own."""

CELLS: dict[str, type] = {"PackageCell": Package, "FilesystemCell": Filesystem}
MESSAGES: tuple[type, ...] = (Hello, Sample, Answer, Note)


def known(kind: inspect.Type) -> inspect.Type:
    """The type itself where a cell stands for it, without what msgspec wraps around it."""
    if isinstance(kind, inspect.Metadata):
        return known(kind.type)
    if isinstance(kind, inspect.CustomType):
        return inspect.type_info(CELLS[kind.cls.__name__])
    return kind


def example(kind: inspect.Type, number: Callable[[Number], float] = lambda _: 1) -> Any:
    """A small valid value, every field of a struct filled in, with `number` in place of each number."""
    kind = known(kind)
    match kind:
        case inspect.StructType():
            tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
            return {**tag, **{field.encode_name: example(field.type, number) for field in kind.fields}}
        case inspect.UnionType():
            return example(next(filter(is_value, map(known, kind.types)), inspect.NoneType()), number)
        case inspect.ListType():
            return [example(kind.item_type, number)]
        case inspect.TupleType():
            return [example(each, number) for each in kind.item_types]
        case inspect.DictType():
            return {"name": example(kind.value_type, number)}
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.StrType():
            return "word"
        case inspect.IntType() | inspect.FloatType():
            return number(kind)
        case inspect.BoolType():
            return True
        case inspect.RawType() | inspect.NoneType():
            return None
    raise AssertionError(kind)


def is_value(kind: inspect.Type) -> bool:
    """Whether it is not one of those that stand for a value that is not there."""
    is_reason = isinstance(kind, inspect.StructType) and kind.cls.__name__ == "Missing"
    return not is_reason and not isinstance(kind, inspect.NoneType)


def variants(kind: inspect.Type, choose: Chooser, name: str = "") -> Iterator[Variant]:
    """Examples with one value, anywhere in them, replaced by one that `choose` gives for its type."""
    kind = known(kind)
    yield from ((name, value) for value in choose(kind))
    match kind:
        case inspect.StructType():
            whole = example(kind)
            for field in kind.fields:
                for inner, value in variants(field.type, choose, field.encode_name):
                    yield inner, {**whole, field.encode_name: value}
        case inspect.UnionType():
            for each in kind.types:
                yield from variants(each, choose, name)
        case inspect.ListType():
            yield from ((inner, [value]) for inner, value in variants(kind.item_type, choose, name))
        case inspect.DictType():
            yield from ((inner, {"name": value}) for inner, value in variants(kind.value_type, choose, name))
        case inspect.TupleType():
            whole = example(kind)
            for at, each in enumerate(kind.item_types):
                for inner, value in variants(each, choose, name):
                    yield inner, [*whole[:at], value, *whole[at + 1 :]]


def messages(choose: Chooser) -> Iterator[Variant]:
    """The same for every message that an agent can send."""
    for kind in MESSAGES:
        yield from variants(inspect.type_info(kind), choose)


def structs(kind: Any = FromAgent) -> set[type]:
    """Every struct that can come with a type."""
    found: set[type] = set()

    def note(inner: inspect.Type) -> list[Any]:
        if isinstance(inner, inspect.StructType):
            found.add(inner.cls)
        return []

    list(variants(inspect.type_info(kind), note))
    return found
