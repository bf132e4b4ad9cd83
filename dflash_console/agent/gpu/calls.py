"""NVML's calls, each guarded: a value or a codes.Fault, whatever happens. Imports pynvml and ctypes, so
only the reader's child may import it."""

from __future__ import annotations

import ctypes

import pynvml

from .codes import (
    ARGUMENT_VERSION_MISMATCH,
    FUNCTION_NOT_FOUND,
    INSUFFICIENT_SIZE,
    ODD_ANSWER,
    Fault,
    fault,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

__all__ = ["ProcessList", "Versions", "call", "field_value", "text_of"]

VALUE_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""nvmlValueType_t -> member of the union; reading another one gives garbage."""


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function gives back, or a Fault."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        return fault(error.value)
    except pynvml.NVMLLibraryMismatchError:  # no NVMLError: an unversioned call of a library that lacks it
        return fault(FUNCTION_NOT_FOUND)
    except (AttributeError, OSError, TypeError, ValueError) as error:
        return Fault(ODD_ANSWER, f"{type(error).__name__}: {error}")


MOST_LISTED = 1 << 16
TRIES = 8
"""For a list that grows while it is read."""


class Versions:
    """A call that drivers know in different versions: the newest that this one knows, found at the first
    use."""

    def __init__(self, *functions: Callable[..., Any]) -> None:
        self._functions = list(functions)

    def __call__(self, handle: Any) -> Any:
        """What the call gives back, or a Fault."""
        while True:
            answer = call(self._functions[0], handle)
            is_unknown = isinstance(answer, Fault) and answer.number in (
                FUNCTION_NOT_FOUND,
                ARGUMENT_VERSION_MISMATCH,
            )
            if not is_unknown or len(self._functions) == 1:
                return answer
            del self._functions[0]


class _ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v2_t, which is also that of the v3 calls."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class ProcessList:
    """A call that lists a GPU's processes, as tuples of pid, bytes and MIG instance. pynvml asks twice each
    time, for the length and for the list; this one asks with room for as many as there were, and some
    more."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._room = (_ProcessInfo * 16)()

    def __call__(self, handle: Any) -> list[tuple[int, int, int]]:
        """The processes now. Raises NVMLError, ValueError for more than MOST_LISTED."""
        function = pynvml._nvmlGetFunctionPointer(self._name)
        number = INSUFFICIENT_SIZE
        for _ in range(TRIES):
            count = ctypes.c_uint(len(self._room))
            number = function(handle, ctypes.byref(count), self._room)
            if number != INSUFFICIENT_SIZE:
                break
            if count.value > MOST_LISTED:
                raise ValueError(f"a list of {count.value} processes")
            self._room = (_ProcessInfo * (count.value * 2 + 16))()
        if number:
            raise pynvml.NVMLError(number)
        return [(found.pid, found.memory, found.instance) for found in self._room[: count.value]]


def text_of(name: str, *handle: Any) -> Any:
    """The text of a call that fills a buffer, or a Fault: pynvml decodes strictly and loses the value to
    one odd byte."""
    function = call(pynvml._nvmlGetFunctionPointer, name)
    if isinstance(function, Fault):
        return function
    buffer = ctypes.create_string_buffer(256)
    number = function(*handle, buffer, ctypes.c_uint(len(buffer)))
    return fault(number) if number else buffer.value.decode("utf-8", "replace").strip()


def field_value(handle: Any, number: int) -> Any:
    """One of nvmlDeviceGetFieldValues, by its own return code and its own type, or a Fault."""
    answer = call(pynvml.nvmlDeviceGetFieldValues, handle, [number])
    if isinstance(answer, Fault):
        return answer
    field = answer[0]
    if field.nvmlReturn:
        return fault(field.nvmlReturn)
    if field.valueType < len(VALUE_TYPES):
        return getattr(field.value, VALUE_TYPES[field.valueType])
    return Fault(ODD_ANSWER, f"value type {field.valueType} is not known")
