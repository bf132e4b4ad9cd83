"""The part `abi`: compiled files against the interpreter, torch, CUDA and the driver; nothing is loaded."""

from __future__ import annotations

from ..slot import describe
from ..verify.checks import check
from .compiled import find_compiled
from .driver import check_driver
from .environment import Environment, find_environment, find_unit
from .libraries import check_libraries
from .python_abi import check_python_abi
from .symbols import check_symbols
from .torch_build import check_torch

__all__ = ["work"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..child import Channel

NAMES = ("python_abi", "torch", "symbols", "libraries", "driver")


def work(channel: Channel, message: dict[str, Any]) -> None:
    """Sends the checks `python_abi`, `torch`, `symbols`, `libraries` and `driver`."""
    environment = find_environment(message)
    if not isinstance(environment, Environment):
        channel.send({"checks": [check(name, "unknown", environment) for name in NAMES], "facts": {}})
        return
    files = find_compiled(environment)
    looks: dict[str, Callable[[], dict[str, Any]]] = {
        "python_abi": lambda: check_python_abi(environment, files),
        "torch": lambda: check_torch(environment, files, message),
        "symbols": lambda: check_symbols(environment, files),
        "libraries": lambda: check_libraries(environment, files, find_unit(environment, message), message),
        "driver": lambda: check_driver(environment, message),
    }
    channel.send({"checks": [_guarded(name, look) for name, look in looks.items()], "facts": {}})


def _guarded(name: str, look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """One damaged file must not take the other checks with it."""
    try:
        return look()
    except Exception as error:  # noqa: BLE001 - told as the check's own answer
        return check(name, "unknown", f"could not be told: {describe(error)}")
